"""`boxmend predict` as a script sees it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from boxmend.cli import run
from boxmend.detector import build, save
from boxmend.runs.folder import create
from boxmend.training.card import ModelCard
from tests.cli.cli_answers import answer


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A finished run of a random detector."""
    folder = tmp_path / "run"
    begun = create(folder, {}, {})
    card = ModelCard("tiny", ("disc", "star"), (4, 9), "64")
    save(build("tiny", 2), folder / "model.safetensors", card.metadata())
    begun.finish()
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(2):
        Image.new("RGB", (64, 48 + number), (90, 60 * number, 200)).save(folder / f"{number}.png")
    return folder


def test_it_writes_results_and_tells_how_many(
    model: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "9.jpg").write_text("no image")
    out = tmp_path / "found.json"
    status, result = answer(capsys, "predict", model, photos, "--out", out, "--score-threshold", 0)
    assert status == 0
    results = json.loads(out.read_bytes())
    assert result["detections"] == len(results) > 0
    assert (result["out"], result["images"]) == (str(out), 2)
    assert len(result["skipped"]) == 1
    assert "9.jpg" in result["skipped"][0]
    keys = ["image_id", "category_id", "bbox", "score", "file_name", "category_name"]
    assert all(list(one) == keys for one in results)
    again = tmp_path / "again.json"
    tokens = ["predict", str(model), str(photos), "--out", str(again), "--score-threshold", "0"]
    assert run(tokens) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{again}: 2 images, {len(results):,} detections\n"
    assert "left out: " in printed.err
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize(
    ("tokens", "status", "message"),
    [
        (["RUN", "--out", "OUT"], 2, "no images given"),
        (["RUN", "PHOTOS"], 2, "--out"),
        (["RUN", "PHOTOS/7.png", "--out", "OUT"], 2, "7.png: no such file or folder"),
        (["RUN", "PHOTOS", "--out", "OUT", "--score-threshold", "2"], 2, "score_threshold is 2"),
        (["PHOTOS", "PHOTOS", "--out", "OUT"], 3, "is not the folder of a run"),
        (["PHOTOS/0.png", "PHOTOS", "--out", "OUT"], 3, "0.png: not a readable safetensors file"),
        (["nowhere", "PHOTOS", "--out", "OUT"], 2, "nowhere: no such run"),
        (["RUN", "PHOTOS", "--out", "PHOTOS"], 3, "exists already"),
        (["RUN", "EMPTY", "--out", "OUT"], 3, "contains no images"),
    ],
)
@pytest.mark.usefixtures("model", "photos")
def test_errors_are_reported_and_nothing_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tokens: list[str],
    status: int,
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    filled = list(tokens)
    for word in ("RUN", "PHOTOS", "OUT", "EMPTY"):
        filled = [token.replace(word, str(tmp_path / word.lower())) for token in filled]
    assert run(["predict", *filled]) == status
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert not (tmp_path / "out").exists()


def test_help_and_settings_import_no_torch() -> None:
    for statement in (
        "from boxmend.cli import run; run(['predict', '--help'])",
        "import boxmend; boxmend.TrainSettings(epochs=3)",
    ):
        code = f"import sys; {statement}; sys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_predicting_without_torch_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = ("boxmend.training.prediction", "boxmend.training.train")
    for name in [name for name in sys.modules if name.startswith(rooms)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert run(["predict", "run", "photos", "--out", str(tmp_path / "out")]) == 2
    assert "pip install 'boxmend[train]'" in capsys.readouterr().err
