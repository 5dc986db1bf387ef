"""Rates and averages by hand."""

import math

import pytest
import torch
from torch import nn

from boxmend.runs.settings import Optimisation
from boxmend.training.optimisation import (
    average_decay_at,
    build_optimizer,
    clip_gradients,
    copy_for_average,
    learning_rate_at,
    update_average,
)

STEP = Optimisation(warm_up_steps=10, drop_at=0.75)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.001), (5, 0.001 + 0.999 / 2), (10, 1.0), (74, 1.0), (75, 0.1), (99, 0.1)],
)
def test_the_rate_rises_holds_and_drops(step: int, rate: float) -> None:
    assert learning_rate_at(step, 100, 1.0, STEP) == pytest.approx(rate)


def test_a_short_training_warms_up_for_a_tenth_of_it() -> None:
    assert learning_rate_at(2, 20, 1.0, STEP) == 1.0
    assert learning_rate_at(1, 20, 1.0, STEP) == pytest.approx(0.001 + 0.999 / 2)


def test_a_cosine_ends_at_zero() -> None:
    cosine = Optimisation(schedule="cosine", warm_up_steps=0)
    assert learning_rate_at(0, 100, 2.0, cosine) == pytest.approx(2.0)
    assert learning_rate_at(50, 100, 2.0, cosine) == pytest.approx(1.0)
    assert learning_rate_at(100, 100, 2.0, cosine) == pytest.approx(0.0, abs=1e-12)


def test_the_average_follows_the_weights() -> None:
    network = nn.Linear(1, 1)
    average = copy_for_average(network)
    nn.init.constant_(network.weight, 3.0)
    nn.init.constant_(average.weight, 1.0)
    update_average(average, network, 0.75)
    assert average.weight.item() == pytest.approx(0.75 * 1 + 0.25 * 3)
    assert network.weight.item() == 3.0
    assert not average.weight.requires_grad


def test_the_decay_starts_low() -> None:
    assert average_decay_at(0, 0.998) == pytest.approx(0.1)
    assert average_decay_at(90, 0.998) == pytest.approx(0.91)
    assert average_decay_at(10**6, 0.998) == 0.998


def test_frozen_parameters_are_not_optimised() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    layers[0].requires_grad_(False)
    optimizer = build_optimizer(layers.parameters(), Optimisation(), 0.1)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2]
    assert isinstance(
        build_optimizer(layers.parameters(), Optimisation(optimizer="adamw"), 0.1),
        torch.optim.AdamW,
    )


def test_sgd_decays_weights_and_keeps_momentum() -> None:
    # gradient + 0.1 * weight: 2 + 0.1 = 2.1, then 1 + 0.1 * 0.79 = 1.079 and half of 2.1
    weight = nn.Parameter(torch.tensor([1.0]))
    settings = Optimisation(momentum=0.5, weight_decay=0.1)
    optimizer = build_optimizer([weight], settings, 0.1)
    weight.grad = torch.tensor([2.0])
    optimizer.step()
    assert weight.item() == pytest.approx(1 - 0.1 * 2.1)
    weight.grad = torch.tensor([1.0])
    optimizer.step()
    assert weight.item() == pytest.approx(0.79 - 0.1 * (0.5 * 2.1 + 1.079))


def test_adamw_decays_weights() -> None:
    # Without a gradient a weight shrinks by the rate times the decay alone: 1 - 0.1 * 0.5.
    weight = nn.Parameter(torch.tensor([1.0]))
    settings = Optimisation(optimizer="adamw", weight_decay=0.5)
    optimizer = build_optimizer([weight], settings, 0.1)
    weight.grad = torch.zeros(1)
    optimizer.step()
    assert weight.item() == pytest.approx(0.95)


def test_a_long_training_warms_up_for_the_steps_of_its_setting() -> None:
    # 10 steps, although a tenth of the training would be 100.
    assert learning_rate_at(5, 1000, 1.0, STEP) == pytest.approx(0.001 + 0.999 / 2)
    assert learning_rate_at(10, 1000, 1.0, STEP) == 1.0


def test_a_cosine_falls_from_the_end_of_the_warm_up_to_the_last_step() -> None:
    # 20 steps of warm-up and 180 of decay: a quarter is over at step 65, a half at step 110.
    cosine = Optimisation(schedule="cosine", warm_up_steps=20)
    assert learning_rate_at(20, 200, 2.0, cosine) == pytest.approx(2.0)
    assert learning_rate_at(110, 200, 2.0, cosine) == pytest.approx(1.0)
    assert learning_rate_at(65, 200, 2.0, cosine) == pytest.approx(1 + math.sqrt(0.5))
    assert learning_rate_at(200, 200, 2.0, cosine) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("max_norm", "scaled"), [(2.5, [1.5, 2.0]), (5.0, [3, 4]), (0.0, [3, 4])])
def test_gradients_are_scaled_to_a_norm_or_left_alone(max_norm: float, scaled: list[float]) -> None:
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    assert clip_gradients([weight], max_norm).item() == pytest.approx(5.0)
    assert weight.grad.tolist() == pytest.approx(scaled)
