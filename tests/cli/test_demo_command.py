"""boxmend demo: three trainings, a mended dataset, and the figures as they are written."""

import json
from pathlib import Path

import pytest

import boxmend
from boxmend.bench import demonstration
from boxmend.cli import run
from boxmend.errors import BoxmendError
from tests.cli.cli_answers import answer

KEYS = {
    *("clean", "noisy", "mend", "labels_wrong_before", "labels_wrong_after"),
    *("mean_iou_before", "mean_iou_after", "seed", "seconds"),
}


def test_the_demo_leaves_a_summary_a_mended_dataset_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    status, facts = answer(capsys, "demo", "--images", "20", "--epochs", "1", "--out", out)
    assert status == 0
    assert facts == json.loads((out / "summary.json").read_text())
    assert set(facts) == KEYS
    assert (out / "demo.png").stat().st_size > 10_000
    clean, noisy, mended = (
        boxmend.load(out / f"{name}:train") for name in ("clean", "noisy", "mended")
    )
    assert mended.annotation_ids.tolist() == clean.annotation_ids.tolist()
    for dataset, when in ((noisy, "before"), (mended, "after")):
        wrong = 100 * float((dataset.labels != clean.labels).mean())
        assert facts[f"labels_wrong_{when}"] == pytest.approx(wrong, abs=0.005)
    assert 0.4 < facts["mean_iou_before"] < 0.6
    assert (out / "mended" / "changes.csv").exists()


def test_the_demo_does_not_write_over_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert run(["demo", "--images", "20", "--out", str(tmp_path)]) == 3
    assert str(tmp_path) in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_a_training_that_fails_ends_the_demo_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demonstration, "TRAININGS", {"mend": ("noisy", "no-such-method")})
    steps = demonstration.prepare(
        tmp_path, images=10, seed=0, epochs=1, progress=lambda done, total: None
    )
    with pytest.raises(BoxmendError, match=r"the training .mend. failed: .*no-such-method"):
        demonstration.train_all(tmp_path, steps=steps, seed=0, progress=lambda done, total: None)


def test_the_demo_says_what_training_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(["demo", "--out", str(tmp_path / "demo")]) == 2
    assert "pip install 'boxmend[train]'" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_the_demo_wins_back_most_of_what_the_noise_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, facts = answer(capsys, "demo", "--seed", "3", "--out", tmp_path / "demo")
    assert status == 0
    assert facts["mend"] > facts["noisy"] + 10
    assert facts["labels_wrong_after"] < facts["labels_wrong_before"] - 15
    assert facts["mean_iou_after"] > facts["mean_iou_before"] + 0.1
