"""Whole trainings of the tiny detector on a few drawn images."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import boxmend
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.methods.table import METHODS
from boxmend.runs import folder as runs
from boxmend.runs import ledger
from boxmend.runs.settings import Optimisation, TrainSettings
from boxmend.training.train import Interrupted, train

pytestmark = pytest.mark.usefixtures("one_thread")

FEW = TrainSettings(
    detector="tiny",
    weights="none",
    epochs=2,
    batch_size=4,
    image_size="96",
    log_every=2,
    checkpoint_every=3,
    warm_up=0.5,
    optimisation=Optimisation(optimizer="adamw", lr=1e-3),
)


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toys") / "toys"
    boxmend.synthesize(out, images=20, seed=4)
    return out


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_trains_and_leaves_a_whole_run(
    method: str, toys: Path, tmp_path: Path
) -> None:
    lines: list[dict[str, object]] = []
    settings = replace(FEW, method=method)
    run = train(
        [f"{toys}:train"], tmp_path / "run", settings, val=[f"{toys}:val"], log=lines.append
    )
    assert run.is_finished
    dataset = boxmend.load(f"{toys}:train")
    table = ledger.read(run.path)
    assert table.num_rows == 2 * len(dataset)  # every annotation, every epoch
    for epoch in (0, 1):
        seen = table.filter(table["epoch"].to_numpy() == epoch)["annotation_id"].to_pylist()
        assert sorted(seen) == sorted(dataset.annotation_ids.tolist())
    names = set(load_file(run.path / "model.safetensors"))
    assert any(name.endswith("cls_score.bias") for name in names)
    assert not any(name.startswith("twin.") for name in names)
    assert 0 <= run.summary()["val"]["voc_ap50_area"] <= 1
    assert all(np.isfinite(line["loss"]) for line in run.read_metrics() if "loss" in line)
    assert lines


def test_boxes_in_the_ledger_are_in_pixels_of_the_image(toys: Path, tmp_path: Path) -> None:
    run = train([f"{toys}:train"], tmp_path / "run", FEW)
    dataset = boxmend.load(f"{toys}:train")
    table = ledger.read(run.path).to_pydict()
    row_of = {identity: row for row, identity in enumerate(dataset.annotation_ids.tolist())}
    for k, identity in enumerate(table["annotation_id"]):
        box = dataset.boxes[row_of[identity]]
        noisy = [table[f"noisy_{side}"][k] for side in ("x1", "y1", "x2", "y2")]
        np.testing.assert_allclose(noisy, box, atol=1e-4)
        if table["epoch"][k] == 0:  # in warm-up nothing moves, whatever flips and scales there were
            final = [table[f"final_{side}"][k] for side in ("x1", "y1", "x2", "y2")]
            np.testing.assert_allclose(final, box, atol=1e-3)


def parts_of(run: Path) -> dict[str, bytes]:
    """The files of a ledger; bytes, since a loss that a method does not have is NaN."""
    parts = {path.name: path.read_bytes() for path in (run / "ledger").iterdir()}
    assert parts
    return parts


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", ["mend", "mend-paper", "lr --keep-best --val TOYS:val", "co-teaching"]
)
def test_a_killed_run_resumes_to_the_same_weights_and_ledger(
    options: str, toys: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "boxmend", "train", f"{toys}:train", "--method"]
    command += options.replace("TOYS", str(toys)).split()
    command += ["--detector", "tiny", "--weights", "none", "--epochs", "3", "--batch-size", "4"]
    command += ["--image-size", "96", "--log-every", "1", "--checkpoint-every", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole = tmp_path / "whole"
    subprocess.run(
        [*command, "--out", str(whole)], check=True, env=environment, capture_output=True
    )
    killed, kills = tmp_path / "killed", 0
    for after in (3, 7):
        process = subprocess.Popen(
            [*command, "--out", str(killed), "--resume"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            lines = (
                (killed / "metrics.jsonl").read_text()
                if (killed / "metrics.jsonl").exists()
                else ""
            )
            if lines.count('"loss"') >= after:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        process.wait()
    assert kills == 2
    subprocess.run(
        [*command, "--out", str(killed), "--resume"],
        check=True,
        env=environment,
        capture_output=True,
    )
    one, other = weights_of(whole), weights_of(killed)
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert parts_of(whole) == parts_of(killed)
    assert runs.open_run(whole).summary() == runs.open_run(killed).summary()
    steps = [line["step"] for line in runs.open_run(killed).read_metrics() if "loss" in line]
    assert steps == sorted(set(steps))


def test_two_equal_runs_have_equal_ledgers(toys: Path, tmp_path: Path) -> None:
    first = train([f"{toys}:train"], tmp_path / "a", FEW)
    second = train([f"{toys}:train"], tmp_path / "b", FEW)
    assert parts_of(first.path) == parts_of(second.path)
    assert all(
        torch.equal(value, weights_of(second.path)[key])
        for key, value in weights_of(first.path).items()
    )


def test_a_finished_run_is_not_overwritten(toys: Path, tmp_path: Path) -> None:
    quick = replace(FEW, epochs=1)
    train([f"{toys}:train"], tmp_path / "run", quick)
    for resume in (False, True):
        with pytest.raises(OutputError, match="finished"):
            train([f"{toys}:train"], tmp_path / "run", quick, resume=resume)
        with pytest.raises(OutputError, match="finished"):  # before data and weights are read
            train(["nowhere"], tmp_path / "run", replace(quick, weights="no.file"), resume=resume)


def test_what_a_kill_after_the_end_left_goes_with_the_next_training(
    toys: Path, tmp_path: Path
) -> None:
    run = train([f"{toys}:train"], tmp_path / "run", replace(FEW, epochs=1)).path
    before = sorted(path.name for path in run.iterdir())
    for name in (".lock", "checkpoint.pt", "best-3.safetensors"):
        (run / name).write_bytes(b"")
    with pytest.raises(OutputError, match="finished"):
        train([f"{toys}:train"], run, replace(FEW, epochs=1))
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_stopped_run_saves_and_continues(toys: Path, tmp_path: Path) -> None:
    def stop(line: dict[str, object]) -> None:
        if line.get("step") == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="--resume"):
        train([f"{toys}:train"], tmp_path / "run", FEW, log=stop)
    assert not runs.open_run(tmp_path / "run").is_finished
    assert train([f"{toys}:train"], tmp_path / "run", FEW, resume=True).is_finished


def test_other_data_or_settings_are_refused_on_resume(toys: Path, tmp_path: Path) -> None:
    def stop(line: dict[str, object]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        train([f"{toys}:train"], tmp_path / "run", FEW, log=stop)
    with pytest.raises(UsageError, match="epochs"):
        train([f"{toys}:train"], tmp_path / "run", replace(FEW, epochs=5), resume=True)
    with pytest.raises(DataError):
        train([f"{toys}:val"], tmp_path / "run", FEW, resume=True)


def test_images_without_objects_and_a_single_class_train(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "toys", images=6, seed=1)
    path = tmp_path / "toys" / "instances_train.json"
    document = json.loads(path.read_text())
    first = document["images"][0]["id"]
    document["categories"] = [{"id": 1, "name": "toy"}]
    document["annotations"] = [
        annotation | {"category_id": 1}
        for annotation in document["annotations"]
        if annotation["image_id"] != first
    ]
    path.write_text(json.dumps(document))
    assert train([str(path)], tmp_path / "run", FEW).is_finished


def test_an_unknown_method_or_detector_lists_what_exists(toys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tiny"):
        train([f"{toys}:train"], tmp_path / "run", replace(FEW, detector="huge"))
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="mend-paper"):
        train([f"{toys}:train"], tmp_path / "run", replace(FEW, method="magic"))
    assert not (tmp_path / "run").exists()
