"""Whole trainings by co-teaching: two models and exact resuming."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import boxmend
from boxmend.runs import ledger
from boxmend.runs.folder import Run
from boxmend.runs.settings import CoTeachingSettings, Optimisation, TrainSettings
from boxmend.training.train import train

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = TrainSettings(
    method="co-teaching",
    detector="tiny",
    epochs=3,
    batch_size=4,
    image_size="96",
    log_every=1,
    checkpoint_every=2,
    label_noise=0.4,
    co_teaching=CoTeachingSettings(queue_length=12),
    optimisation=Optimisation(optimizer="adamw", lr=1e-3),
)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("toys") / "toys"
    boxmend.synthesize(out, images=15, seed=4)
    return str(out)


@pytest.fixture(scope="module")
def whole(toys: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("runs") / "whole"
    return train([f"{toys}:train"], out, FEW, val=[f"{toys}:val"])


def test_a_resumed_run_gives_the_same_models_and_ledger(
    toys: str, whole: Run, tmp_path: Path
) -> None:
    """Stop in the last epoch, between checkpoints, when annotations are being dropped."""

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 8:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        train([f"{toys}:train"], tmp_path / "run", FEW, val=[f"{toys}:val"], log=stop)
    run = train([f"{toys}:train"], tmp_path / "run", FEW, val=[f"{toys}:val"], resume=True)
    for name in ("model.safetensors", "model-b.safetensors"):
        one, other = (load_file(place.path / name) for place in (whole, run))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)
    for part in (whole.path / "ledger").iterdir():
        assert part.read_bytes() == (run.path / "ledger" / part.name).read_bytes()
    assert whole.summary() == run.summary()
    table = ledger.read(whole.path)
    verdicts = set(zip(table["epoch"].to_pylist(), table["verdict"].to_pylist(), strict=True))
    assert {verdict for epoch, verdict in verdicts if epoch == 0} == {"unjudged"}
    assert {verdict for epoch, verdict in verdicts if epoch == 2} >= {"kept", "discarded"}


def test_a_run_has_both_models_which_differ_and_are_scored(whole: Run) -> None:
    one, other = (
        load_file(whole.path / name) for name in ("model.safetensors", "model-b.safetensors")
    )
    assert one.keys() == other.keys()
    frozen = {key for key in one if torch.equal(one[key], other[key])}
    assert "backbone.stem.0.weight" in frozen  # the same weights to start from
    assert not any(key.startswith(("rpn.", "roi_heads.")) for key in frozen)
    summary = whole.summary()
    assert summary["val"].keys() == summary["val_b"].keys()
    assert all(0 <= value <= 1 for value in summary["val_b"].values())
