"""Whole trainings with NOTE-RCNN: its two stages, and a stop at any step of them."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from boxmend.data.dataset import Dataset
from boxmend.runs import ledger
from boxmend.runs.folder import Run
from boxmend.runs.settings import Optimisation
from tests.training.small_runs import Box, assert_stops_change_nothing, drawn, ensure_sound, trained

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: dict[str, Any] = {
    "method": "note-rcnn",
    "epochs": 3,
    "optimisation": Optimisation(lr=1e-3, schedule="cosine", warm_up_steps=0),
}
BOXES: list[tuple[int, Box]] = [
    (row, (10.0 + 30 * part, 20.0, 38.0 + 30 * part + row, 70.0))
    for row in range(4)
    for part in range(2)
]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Eight annotations: three of the first two labels, two of the third."""
    return drawn(tmp_path / "data", BOXES)


def verdicts(run: Run, epoch: int) -> list[str]:
    table = ledger.read(run.path, ["epoch", "verdict"])
    found: list[str] = table.filter(table["epoch"].to_numpy() == epoch)["verdict"].to_pylist()
    return found


def test_seeds_are_chosen_after_the_plain_stage_and_stay(dataset: Dataset, tmp_path: Path) -> None:
    run, _ = trained(dataset, tmp_path / "run", **SETTINGS)
    ensure_sound(run)
    for epoch in range(3):
        assert verdicts(run, epoch) == ["unjudged"] * 8
    seeds = [line["seeds"] for line in run.read_metrics() if "seeds" in line]
    assert seeds == [5 / 8]  # half of 3, 3 and 2, rounded up
    names = set(load_file(run.path / "model.safetensors"))
    assert not any(name.startswith("twin.") for name in names)
    assert "roi_heads.box_predictor.more.1.weight" in names


def test_a_single_epoch_is_plain(dataset: Dataset, tmp_path: Path) -> None:
    run, _ = trained(dataset, tmp_path / "run", **(SETTINGS | {"epochs": 1}))
    ensure_sound(run)
    assert set(verdicts(run, 0)) == {"unjudged"}


def test_a_run_stopped_at_any_step_ends_the_same(dataset: Dataset, tmp_path: Path) -> None:
    """Two of six steps are plain; one stop falls between the last of these and the choice."""
    assert_stops_change_nothing(dataset, tmp_path, SETTINGS)
