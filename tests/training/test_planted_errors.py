"""Trainings that plant errors: the same ones at every start, in memory only, and audited later."""

from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.auditing.fixes.table import Kind
from boxmend.auditing.folders import audit_run
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats.writing import WriteOptions
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.noise.writing import write_noisy
from boxmend.data.synth import synthesize
from boxmend.errors import DataError, UsageError
from boxmend.runs import ledger
from boxmend.runs.opening import open_run_with_history
from boxmend.runs.planting import PLANTED_KEY, plant_errors
from boxmend.runs.settings import Optimisation, TrainSettings
from boxmend.training.train import train
from tests.training.small_runs import assert_stops_change_nothing, drawn, trained

BOXES = [(image, (8.0 * k, 10.0, 8.0 * k + 30, 50.0)) for image in range(4) for k in range(5)]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Twenty annotations on four images."""
    return drawn(tmp_path / "data", BOXES)


def test_the_ledger_has_the_annotations_with_planted_errors(
    dataset: Dataset, tmp_path: Path
) -> None:
    run, log = trained(dataset, tmp_path / "run", probe=0.2, seed=5)
    assert {"note": "planted errors into 20.0% of the annotations, in memory only"} in log
    seen = plant_errors(dataset, 0.2, seed=5)
    assert run.facts()["data"]["sha256"] == fingerprint(dataset)
    assert run.facts()["data"][PLANTED_KEY] == fingerprint(seen)
    table = ledger.read(run.path, ["annotation_id", "old_label", "noisy_x1"])
    rows = table["annotation_id"].to_numpy() - 100
    assert set(rows.tolist()) == set(range(20))
    assert table["old_label"].to_numpy().tolist() == seen.labels[rows].tolist()
    assert table["noisy_x1"].to_numpy() == pytest.approx(seen.boxes[rows, 0])
    opened = open_run_with_history(run.path, dataset)
    differs = (seen.labels != dataset.labels) | (seen.boxes != dataset.boxes).any(axis=1)
    assert opened.history.planted.rows.tolist() == np.flatnonzero(differs).tolist()
    assert len(opened.history.planted) == 4
    estimated = run.read_metrics()[-1]["label_noise"]  # of what the training saw
    noise = run.summary()["noise"]["label_noise"]
    assert noise == pytest.approx(max((estimated - 0.1) / 0.9, 0))
    assert estimated > 0


def test_without_the_setting_nothing_is_planted(dataset: Dataset, tmp_path: Path) -> None:
    run, _ = trained(dataset, tmp_path / "run", probe=0.0)
    assert PLANTED_KEY not in run.facts()["data"]
    assert len(open_run_with_history(run.path, dataset).history.planted) == 0


def test_a_resumed_run_has_the_same_planted_errors(dataset: Dataset, tmp_path: Path) -> None:
    assert_stops_change_nothing(dataset, tmp_path, {"probe": 0.2})


def test_a_run_is_not_resumed_with_other_planted_errors(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = trained(dataset, tmp_path / "run", probe=0.2)
    (run.path / "finished").unlink()
    with pytest.raises(UsageError, match=r"probe: 0.2, now 0.1"):
        trained(dataset, tmp_path / "run", probe=0.1, resume=True)
    other = plant_errors(dataset, 0.2, seed=77)  # as by a version with other random numbers
    monkeypatch.setattr("boxmend.training.train.plant_errors", lambda *arguments: other)
    with pytest.raises(DataError, match="the data differ"):
        trained(dataset, tmp_path / "run", probe=0.2, resume=True)


def test_too_small_a_share_leaves_no_folder(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="less than one of 20 annotations"):
        trained(dataset, tmp_path / "run", probe=0.01)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_whole_run_is_probed_and_keeps_the_annotations(tmp_path: Path) -> None:
    synthesize(tmp_path / "clean", images=120, seed=0, size=96)
    noise = NoiseSettings(labels="symmetric:0.2", boxes="uniform:0.3")
    clean = boxmend.load(f"{tmp_path / 'clean'}:train")
    write_noisy(disturb(clean, noise), noise, tmp_path / "noisy", WriteOptions())
    address = f"{tmp_path / 'noisy'}:train"
    optimisation = Optimisation(optimizer="adamw", lr=3e-3, schedule="cosine")
    settings = TrainSettings(
        detector="tiny", image_size="96", epochs=12, batch_size=8, optimisation=optimisation,
        probe=0.1,
    )  # fmt: skip
    run = train([address], tmp_path / "run", settings)
    planted = open_run_with_history(run.path).history.planted
    audited = audit_run(run.path)
    probe = audited.audit.probe
    assert probe is not None
    num_labels = probe[Kind.WRONG_LABEL]["any other class"].planted
    assert num_labels == round(0.1 * len(audited.dataset)) // 2
    assert not set(planted.rows.tolist()) & set(audited.audit.fixes.rows.tolist())
    boxmend.apply(run.path, tmp_path / "mended")
    before, after = audited.dataset, boxmend.load(f"{tmp_path / 'mended'}:train")
    assert (after.labels[planted.rows] == before.labels[planted.rows]).all()
    assert (after.boxes[planted.rows] == before.boxes[planted.rows]).all()
    assert (after.labels != before.labels).any()
