"""Single steps of a training: which rate, which random numbers, which gradients, which average."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from boxmend.runs.settings import Optimisation, resolve_settings
from boxmend.training.assembly import make_detector, make_training
from boxmend.training.loop import Training, TrainingOutput, train
from boxmend.training.optimisation import learning_rate_at
from boxmend.training.processes import Processes
from tests.training.small_runs import QUICK, drawn

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES = [(row, (10.0 + row, 20.0, 60.0, 70.0)) for row in (0, 1, 2, 3)]


def make_small_training(
    tmp_path: Path, optimisation: Optimisation | None = None, **changes: Any
) -> Training:
    """A training without noise, of two epochs of four steps."""
    changes = {"method": "baseline", "batch_size": 1, "image_size": "64", **changes}
    settings = replace(QUICK, optimisation=optimisation or Optimisation(lr=1e-3), **changes)
    settings = resolve_settings(settings)
    data, detector = drawn(tmp_path / "data", BOXES), make_detector(settings, 3)
    alone = Processes(torch.device("cpu"))
    output = TrainingOutput(tmp_path / "run", pytest.fail)
    training, _ = make_training(settings, data, detector, alone, output)
    return training


def gradients(training: Training) -> list[torch.Tensor]:
    return [
        parameter.grad.clone() for parameter in training.parameters if parameter.grad is not None
    ]


def test_each_step_has_its_rate_and_its_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimisation = Optimisation(lr=1e-3, schedule="cosine", warm_up_steps=0)
    training = make_small_training(tmp_path, optimisation, seed=5)
    seeds: list[int] = []
    start = training.random_numbers.start

    def note_seed(seed: int) -> None:
        seeds.append(seed)
        start(seed)

    monkeypatch.setattr(training.random_numbers, "start", note_seed)
    rates = []
    for batch in training.loader.epoch(0):
        training.train_on(batch)
        rates += [group["lr"] for group in training.optimizer.param_groups]
    assert rates == [learning_rate_at(step, 8, 1e-3, optimisation) for step in range(4)]
    assert len(set(rates)) == 4
    assert seeds == [(5 << 32) + step for step in range(4)]


def test_gradients_are_those_of_one_step_alone(tmp_path: Path) -> None:
    training = make_small_training(tmp_path, Optimisation(lr=0.0, weight_decay=0.0))
    batch = next(iter(training.loader.epoch(0)))
    collected = []
    for _ in range(2):
        training.step = 0
        training.train_on(batch)
        collected.append(gradients(training))
    assert any(one.any() for one in collected[0])
    for first, second in zip(*collected, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("max_norm", [0.01, 0.0])
def test_gradients_are_scaled_to_the_norm_of_the_settings(tmp_path: Path, max_norm: float) -> None:
    training = make_small_training(tmp_path, Optimisation(lr=1e-3, max_norm=max_norm))
    training.train_on(next(iter(training.loader.epoch(0))))
    norm = torch.stack([gradient.norm() for gradient in gradients(training)]).norm().item()
    logged_norm = training.recorder.flush()["norm"]
    assert logged_norm > 0.1  # as it was before
    assert norm == pytest.approx(max_norm or logged_norm, rel=1e-3)


def test_the_average_of_the_weights_follows_every_step(tmp_path: Path) -> None:
    # the decay of the first step is 1 / 10, that of the second 2 / 11
    training = make_small_training(tmp_path, Optimisation(lr=0.1, average_decay=0.9))
    key = "roi_heads.box_predictor.cls_score.weight"

    def weight() -> torch.Tensor:
        state: torch.Tensor = training.detector.network.state_dict()[key]
        return state.clone()

    seen = [weight()]
    for batch in list(training.loader.epoch(0))[:2]:
        training.train_on(batch)
        seen.append(weight())
    assert not torch.equal(seen[1], seen[2])
    after_one = 0.1 * seen[0] + 0.9 * seen[1]
    expected = 2 / 11 * after_one + 9 / 11 * seen[2]
    torch.testing.assert_close(training.teacher.network.state_dict()[key], expected)


def test_a_method_learns_whether_an_epoch_ended_in_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of eight steps are warm-up: the first epoch, and no step of the second."""
    training, calls = make_small_training(tmp_path, warm_up=0.5), []

    def end_epoch(epoch: int, *, is_warm_up: bool) -> dict[str, Any]:
        calls.append((epoch, is_warm_up))
        return {}

    monkeypatch.setattr(training.method, "end_epoch", end_epoch)
    train(training, lambda figures: None)
    assert calls == [(0, True), (1, False)]
