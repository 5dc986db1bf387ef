"""Rates and averages by hand."""

import pytest
import torch
from torch import nn

from boxmend.settings import Optimisation
from boxmend.training.optimisation import average_of, build_optimizer, decay_at, follow, rate_at

STEP = Optimisation(warm_up_steps=10, drop_at=0.75)


@pytest.mark.parametrize(
    ("step", "rate"),
    [(0, 0.001), (5, 0.001 + 0.999 / 2), (10, 1.0), (74, 1.0), (75, 0.1), (99, 0.1)],
)
def test_the_rate_rises_holds_and_drops(step: int, rate: float) -> None:
    assert rate_at(step, 100, 1.0, STEP) == pytest.approx(rate)


def test_a_short_training_warms_up_for_a_tenth_of_it() -> None:
    assert rate_at(2, 20, 1.0, STEP) == 1.0
    assert rate_at(1, 20, 1.0, STEP) == pytest.approx(0.001 + 0.999 / 2)


def test_a_cosine_ends_at_zero() -> None:
    cosine = Optimisation(schedule="cosine", warm_up_steps=0)
    assert rate_at(0, 100, 2.0, cosine) == pytest.approx(2.0)
    assert rate_at(50, 100, 2.0, cosine) == pytest.approx(1.0)
    assert rate_at(100, 100, 2.0, cosine) == pytest.approx(0.0, abs=1e-12)


def test_the_average_follows_the_weights() -> None:
    network = nn.Linear(1, 1)
    average = average_of(network)
    nn.init.constant_(network.weight, 3.0)
    nn.init.constant_(average.weight, 1.0)  # type: ignore[arg-type]
    follow(average, network, 0.75)
    assert average.weight.item() == pytest.approx(0.75 * 1 + 0.25 * 3)  # type: ignore[operator]
    assert network.weight.item() == 3.0
    assert not average.weight.requires_grad


def test_the_decay_starts_low() -> None:
    assert decay_at(0, 0.998) == pytest.approx(0.1)
    assert decay_at(90, 0.998) == pytest.approx(0.91)
    assert decay_at(10**6, 0.998) == 0.998


def test_frozen_parameters_are_not_optimised() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    layers[0].requires_grad_(False)
    optimizer = build_optimizer(layers.parameters(), Optimisation(), 0.1)
    assert [len(group["params"]) for group in optimizer.param_groups] == [2]
    assert isinstance(
        build_optimizer(layers.parameters(), Optimisation(optimizer="adamw"), 0.1),
        torch.optim.AdamW,
    )
