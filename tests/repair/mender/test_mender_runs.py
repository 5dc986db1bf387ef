"""The run that a Mender leaves: commands that work on runs of `train` work on it."""

import json
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend import Mender, Predictions
from boxmend.cli import run
from boxmend.data.synth.detections import simulate_detections
from boxmend.runs.opening import open_run_with_history
from boxmend.scoring.corrections import assess
from boxmend.scoring.truth import known_truth
from tests.repair.mender.mender_scenes import Noise, mend, predictions_of, scene

SIZE = 96
EPOCHS = (0, 3, 6, 9, 12, 15)  # every third


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mender")
    assert run(["synth", "--images", "150", "--out", str(folder / "toys")]) == 0
    noise = ["--labels", "symmetric:0.3", "--boxes", "uniform:0.3"]
    assert run(["noise", f"{folder / 'toys'}:train", *noise, "--out", str(folder / "noisy")]) == 0
    return folder / "noisy"


def detections_of(dataset: boxmend.Dataset) -> Predictions:
    """What a good detector would see in the drawn images, whose names count from 1."""
    names = dataset.images.file_names
    found = simulate_detections(0, [int(Path(name).stem) - 1 for name in names], SIZE)
    ids = [names[row] for row in found.image_rows.tolist()]
    return Predictions(ids, found.boxes, found.labels, found.scores)


@pytest.fixture(scope="module")
def finished(noisy: Path) -> Path:
    dataset = boxmend.load(noisy)
    mender = Mender(dataset, out=noisy.parent / "run")
    predictions = detections_of(dataset)
    for epoch in EPOCHS:
        mender.annotations()
        mender.update(epoch, predictions)
    return mender.finish().path


def test_the_run_is_scored_like_that_of_a_training(finished: Path, noisy: Path) -> None:
    opened = open_run_with_history(finished)
    scores = assess(opened, known_truth(noisy / "truth.parquet", opened.dataset)).changes
    assert scores.labels.noise_before == pytest.approx(0.3, abs=0.01)
    assert scores.labels.noise_after is not None
    assert scores.labels.noise_after < 0.08
    assert scores.boxes.mean_iou_after is not None
    assert scores.boxes.mean_iou_before is not None
    assert scores.boxes.mean_iou_after > scores.boxes.mean_iou_before + 0.2
    assert opened.history.warm_up_steps == 2


def test_the_ledger_has_every_visit(finished: Path) -> None:
    trained = boxmend.open_run(finished)
    table = trained.ledger.to_arrow()
    n = len(trained.dataset)
    assert table.num_rows == n * len(EPOCHS) == trained.summary()["ledger_rows"]
    assert table["epoch"].to_pylist()[::n] == [0, 1, 2, 3, 4, 5]
    verdicts = table["verdict"].to_pylist()
    assert set(verdicts[: 2 * n]) == {"unjudged"}
    assert verdicts.count("relabelled") > 0.2 * 4 * n
    assert np.isinf(table["threshold"].to_numpy()[:n]).all()
    metrics = trained.read_metrics()
    assert [line["trainer_epoch"] for line in metrics] == list(EPOCHS)
    assert metrics[-1]["relabelled"] > 0.25
    assert metrics[1]["relabelled"] == 0
    noise = trained.summary()["noise"]
    assert noise["box_noise_low"] <= 0.3 <= noise["box_noise_high"]
    assert noise["label_noise_low"] < 0.3 < noise["label_noise_high"]
    assert len(trained.changes) > 0.9 * n


def test_commands_work_on_the_run(
    finished: Path, noisy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = sorted(path for path in noisy.rglob("*.json") if path.name != "noise.json")
    before = {path.name: path.read_bytes() for path in documents}
    assert run(["report", str(finished), "--truth", str(noisy / "truth.parquet")]) == 0
    page = (finished / "report.html").read_text()
    assert "mender" in page
    assert run(["audit", str(finished), "--json"]) in (0, 1)
    capsys.readouterr()
    mended = tmp_path / "mended"
    assert run(["apply", str(finished), "--out", str(mended), "--json"]) == 0
    changes = json.loads(capsys.readouterr().out)
    assert changes["changed"] > 0
    assert run(["revert", str(mended)]) == 0
    names = {path.name: path.read_bytes() for path in mended.rglob("*.json")}
    assert all(names[name] == content for name, content in before.items() if name in names)
    assert set(before) & set(names)


def test_a_dataset_in_memory_is_mended_from_the_run(tmp_path: Path) -> None:
    drawn = scene(Noise(labels=0.3), images=300)
    finished = mend(drawn.dataset, predictions_of(drawn), tmp_path / "run").finish()
    mended = finished.mended()
    assert (mended.labels != drawn.true_labels).mean() < 0.06
