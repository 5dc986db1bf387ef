"""A run that ends abruptly anywhere and is resumed has the metrics of one that never stopped."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from boxmend.data.dataset import Dataset
from boxmend.runs import metrics as metric_lines
from boxmend.runs.folder import Run
from boxmend.runs.settings import TrainSettings
from boxmend.training import checkpoint
from boxmend.training.best import BestEpoch
from boxmend.training.loop import Training
from boxmend.training.train import Interrupted, train
from tests.training.small_runs import QUICK, Box, drawn

pytestmark = pytest.mark.usefixtures("one_thread")

BOXES: list[tuple[int, Box]] = [(row, (10.0, 20.0, 60.0 + row, 70.0)) for row in range(4)]
TIMES = ("images_per_second", "seconds_left")
POINTS = ((metric_lines, "append"), (checkpoint, "save"), (BestEpoch, "consider"))
CASES = {
    "a line and a checkpoint at each step": replace(QUICK, log_every=1, checkpoint_every=1),
    "a checkpoint between lines": replace(QUICK, log_every=3, checkpoint_every=1),
    "scored after each epoch": replace(QUICK, log_every=5, checkpoint_every=9, keep_best=True),
}


class Killed(BaseException):
    """Stands for SIGKILL: no code of boxmend catches it."""


@contextmanager
def killed_at(number: int) -> Iterator[None]:
    """Raise before the chosen one of all calls of POINTS, counted from 0.

    What matters after a call is the same as before the next one.
    """
    moments = iter(range(10**6))

    def reach() -> None:
        if next(moments) == number:
            raise Killed

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            reach()
            return function(*arguments, **options)

        return call

    with ExitStack() as patches:
        for place, name in POINTS:
            patches.enter_context(patch.object(place, name, watched(getattr(place, name))))
        yield


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


def untimed(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in line.items() if name not in TIMES}
        for line in run.read_metrics()
    ]


def run_of(dataset: Dataset, out: Path, settings: TrainSettings, **options: Any) -> Run:
    return train(dataset, out, settings, val=dataset if settings.keep_best else (), **options)


@pytest.mark.parametrize("case", CASES)
def test_metrics_do_not_show_where_a_run_was_killed(
    case: str, dataset: Dataset, tmp_path: Path
) -> None:
    settings = CASES[case]
    whole = untimed(run_of(dataset, tmp_path / "whole", settings))
    for number in range(1000):
        out = tmp_path / f"killed-{number}"
        try:
            with killed_at(number):
                run_of(dataset, out, settings)
        except Killed:
            run = run_of(dataset, out, settings, resume=True)
            assert untimed(run) == whole, f"killed at {number}"
        else:
            break
    assert number >= 9


def test_metrics_do_not_show_where_a_run_was_asked_to_stop(
    dataset: Dataset, tmp_path: Path
) -> None:
    settings = replace(QUICK, epochs=3, log_every=4)
    whole = untimed(run_of(dataset, tmp_path / "whole", settings))
    step = Training.train_on
    for asked in range(1, 7):

        def stop(training: Training, batch: Any, at: int = asked) -> None:
            step(training, batch)
            if training.step == at:
                os.kill(os.getpid(), signal.SIGTERM)

        out = tmp_path / f"stopped-{asked}"
        with patch.object(Training, "train_on", stop), pytest.raises(Interrupted):
            run_of(dataset, out, settings)
        assert untimed(run_of(dataset, out, settings, resume=True)) == whole


def test_a_checkpoint_of_an_older_version_is_resumed_by_its_step(
    dataset: Dataset, tmp_path: Path
) -> None:
    settings = replace(QUICK, log_every=1, checkpoint_every=1)
    whole = untimed(run_of(dataset, tmp_path / "whole", settings))
    save = checkpoint.save

    def save_like_before(run: Path, state: dict[str, Any]) -> None:
        save(run, {key: state[key] for key in checkpoint.PARTS})
        if state["step"] == 3:
            raise Killed

    with patch.object(checkpoint, "save", save_like_before), pytest.raises(Killed):
        run_of(dataset, tmp_path / "run", settings)
    assert untimed(run_of(dataset, tmp_path / "run", settings, resume=True)) == whole
