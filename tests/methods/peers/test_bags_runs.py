"""Whole trainings by OA-MIL and DISCO: exact resuming, and the ledger."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import boxmend
from boxmend.runs import ledger
from boxmend.runs.settings import DiscoSettings, OaMilSettings, Optimisation, TrainSettings
from boxmend.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = TrainSettings(
    detector="tiny",
    epochs=3,
    batch_size=4,
    image_size="96",
    log_every=1,
    checkpoint_every=2,
    warm_up=0.0,
    oa_mil=OaMilSettings(selection_from=1 / 3, extension_from=2 / 3, extension_rounds=1, gamma=0.5),
    disco=DiscoSettings(correction_from=1 / 3, exponent=0.5),
    optimisation=Optimisation(optimizer="adamw", lr=1e-3),
)
BOTH = pytest.mark.parametrize("method", ["oa-mil", "disco"])


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("toys") / "toys"
    boxmend.synthesize(out, images=15, seed=4)
    return str(out)


@BOTH
def test_a_resumed_run_gives_the_same_weights_and_ledger(
    method: str, toys: str, tmp_path: Path
) -> None:
    """Stopped between checkpoints in the last epoch, when all parts of a method are at work."""
    settings, data = replace(FEW, method=method), [f"{toys}:train"]

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 8:
            raise RuntimeError("enough")

    whole = train(data, tmp_path / "whole", settings)
    with pytest.raises(RuntimeError, match="enough"):
        train(data, tmp_path / "run", settings, log=stop)
    run = train(data, tmp_path / "run", settings, resume=True)
    one, other = (load_file(place.path / "model.safetensors") for place in (whole, run))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
    for part in (whole.path / "ledger").iterdir():
        assert part.read_bytes() == (run.path / "ledger" / part.name).read_bytes()


@BOTH
def test_the_ledger_records_changed_boxes_and_no_label_changes(
    method: str, toys: str, tmp_path: Path
) -> None:
    run = train([f"{toys}:train"], tmp_path / "run", replace(FEW, method=method))
    table = ledger.read(run.path)
    column = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    is_first = column["epoch"] == 0
    assert set(column["verdict"]) == {"unjudged"}
    assert (column["old_label"] == column["new_label"]).all()
    moved = np.abs(column["final_x1"] - column["noisy_x1"])
    assert moved[is_first].max() < 1e-3
    assert moved[~is_first].max() > 0.1
    has_bag = column["num_candidates"] > 0
    assert np.isfinite(column["confidence"][has_bag]).all()
    boxmend.apply(run.path, tmp_path / "mended")
    before, after = boxmend.load(f"{toys}:train"), boxmend.load(f"{tmp_path / 'mended'}:train")
    assert before.labels.tolist() == after.labels.tolist()
    assert np.abs(before.boxes - after.boxes).max() > 0.1
