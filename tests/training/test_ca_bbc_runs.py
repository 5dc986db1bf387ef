"""Whole trainings with CA-BBC: what its ledger tells, and stops at any step."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from boxmend.data.dataset import Dataset
from boxmend.runs import ledger
from boxmend.runs.folder import Run
from boxmend.runs.settings import CaBbcSettings
from tests.training.small_runs import (
    SIDES,
    Box,
    assert_stops_change_nothing,
    drawn,
    ensure_sound,
    trained,
)

pytestmark = pytest.mark.usefixtures("one_thread")

CA_BBC: dict[str, Any] = {"method": "ca-bbc", "ca_bbc": CaBbcSettings(queue_length=4)}
BOXES: list[tuple[int, Box]] = [
    (row, (10.0 + 30 * part, 20.0, 38.0 + 30 * part + row, 70.0))
    for row in range(4)
    for part in range(2)
]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return drawn(tmp_path / "data", BOXES)


def boxes_of(run: Run, kind: str, epoch: int) -> Any:
    table = ledger.read(run.path)
    table = table.filter(table["epoch"].to_numpy() == epoch)
    return np.stack([table[f"{kind}_{side}"].to_numpy() for side in SIDES], -1)


def test_boxes_stay_in_warm_up_and_step_by_a_tenth_at_most_after_it(
    dataset: Dataset, tmp_path: Path
) -> None:
    run, _ = trained(dataset, tmp_path / "run", box_noise=0.4, **CA_BBC)
    ensure_sound(run)
    assert np.array_equal(boxes_of(run, "final", 0), boxes_of(run, "noisy", 0))
    noisy, matched = boxes_of(run, "noisy", 1), boxes_of(run, "matched", 1)
    sides = np.tile(noisy[:, 2:] - noisy[:, :2], 2)
    shares = np.abs(matched - noisy) / sides
    assert 0 < shares.max() <= 0.1 + 1e-5
    steps = [line["box_step"] for line in run.read_metrics() if "box_step" in line]
    assert steps[0] == 0
    assert steps[-1] > 0
    names = set(load_file(run.path / "model.safetensors"))
    assert {f"roi_heads.box_predictor.heads.{k}.1.cls_score.bias" for k in (0, 1)} <= names


@pytest.mark.parametrize("box_noise", [0.4, "auto"])
def test_a_run_stopped_at_any_step_ends_the_same(
    box_noise: float | str, dataset: Dataset, tmp_path: Path
) -> None:
    assert_stops_change_nothing(dataset, tmp_path, CA_BBC | {"box_noise": box_noise})
