"""A Mender that is resumed from a checkpoint equals one that was not interrupted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boxmend import Mender, MenderSettings
from tests.repair.mender.mender_scenes import Noise, Scene, predictions_of, scene

EPOCHS = 5
ANNOTATIONS = ("labels", "boxes", "weights", "confidences", "soft_labels")


def train(mender: Mender, drawn: Scene, epochs: range) -> None:
    """Update with other detections after every epoch."""
    predictions = predictions_of(drawn)
    for epoch in epochs:
        mender.annotations()
        random = np.random.default_rng(epoch)
        mender.update(epoch, predictions.take(random.random(len(predictions)) < 0.8))


def files_of(run: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "settings.json", "finished")
    files = [run / name for name in names] + sorted((run / "ledger").iterdir())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.parametrize(("when", "kept"), [(1, "dict"), (3, "npz"), (4, "dict")])
def test_a_resumed_mender_equals_an_uninterrupted_one(tmp_path: Path, when: int, kept: str) -> None:
    drawn = scene(Noise(labels=0.3, boxes=0.2, missing=0.1, spurious=0.05), images=80)
    settings = MenderSettings(missing="add")
    whole = Mender(drawn.dataset, settings, out=tmp_path / "whole")
    train(whole, drawn, range(EPOCHS))

    first = Mender(drawn.dataset, settings, out=tmp_path / "parts")
    train(first, drawn, range(when))
    state: Any = first.state_dict()
    if kept == "npz":
        np.savez(tmp_path / "state.npz", **state)
        state = np.load(tmp_path / "state.npz")
    train(first, drawn, range(when, min(when + 1, EPOCHS)))  # lost when it is killed
    first.close()  # as the end of the process does

    second = Mender(drawn.dataset, settings, out=tmp_path / "parts", resume=True)
    second.load_state_dict(state)
    assert second.last_epoch == when - 1
    train(second, drawn, range(when, EPOCHS))
    for name in ANNOTATIONS:
        one, other = (getattr(mender.annotations(), name) for mender in (whole, second))
        assert (one == other).all(), name
    whole.finish()
    second.finish()
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")


def test_a_state_does_not_change_with_later_updates(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=40)
    mender = Mender(drawn.dataset, out=tmp_path / "run")
    train(mender, drawn, range(1))
    state = mender.state_dict()
    before = {name: np.array(value) for name, value in state.items()}
    train(mender, drawn, range(1, 4))
    for name, value in before.items():
        assert np.array_equal(state[name], value, equal_nan=value.dtype.kind == "f"), name
    assert all(isinstance(value, np.ndarray | int | float | str) for value in state.values())


def test_without_a_state_a_resumed_run_starts_again(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=40)
    mender = Mender(drawn.dataset, out=tmp_path / "run")
    train(mender, drawn, range(3))
    mender.close()
    again = Mender(drawn.dataset, out=tmp_path / "run", resume=True)
    train(again, drawn, range(2))
    finished = again.finish()
    assert finished.summary()["ledger_rows"] == 2 * len(drawn.dataset)
    assert len(finished.read_metrics()) == 2
