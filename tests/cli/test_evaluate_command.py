"""`boxmend evaluate` as a script and as a person sees it."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from boxmend.cli import run
from boxmend.detector import build, save
from boxmend.runs.folder import create
from boxmend.training.card import ModelCard
from tests.cli.cli_answers import answer, hashes

BOX = [10, 10, 40, 40]
FIGURES = [
    *("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large"),
    *("AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"),
    *("voc_ap50_11point", "voc_ap50_area"),
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A dataset with one cat of medium size, and a file of one detection that finds it."""
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 90, "height": 90}],
        "annotations": [{"id": 7, "image_id": 1, "category_id": 3, "bbox": BOX}],
        "categories": [{"id": 3, "name": "cat"}, {"id": 4, "name": "[red]dog[/red]"}],
    }
    (tmp_path / "instances_val.json").write_text(json.dumps(document))
    listed = [{"image_id": "a", "category_id": "cat", "bbox": BOX, "score": 0.5}]
    (tmp_path / "found.json").write_text(json.dumps(listed))
    return tmp_path


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a random detector of what the drawn dataset shows."""
    folder = tmp_path_factory.mktemp("made") / "run"
    begun = create(folder, {}, {})
    card = ModelCard("tiny", ("arrow", "gear"), (1, 2), "96")
    save(build("tiny", 2), folder / "model.safetensors", card.metadata())
    begun.finish()
    return folder


@pytest.fixture
def model(data_folder: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be written into."""
    return Path(shutil.copytree(data_folder, tmp_path / "run"))


def test_the_scores_of_a_file_are_fractions(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(files)
    data = files / "instances_val.json"
    status, result = answer(
        capsys, "evaluate", "--predictions", files / "found.json", "--data", data
    )
    assert status == 0
    assert list(result) == [*FIGURES, "images", "detections", "annotations", "by_label"]
    undefined = {key for key in FIGURES if key.endswith(("small", "large"))}
    for key in FIGURES:
        assert result[key] == (None if key in undefined else pytest.approx(1.0, abs=1e-12))
    assert result["by_label"]["cat"]["detections"] == 1
    assert result["by_label"]["[red]dog[/red]"]["AP"] is None
    assert hashes(files) == before


def test_people_see_two_tables(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = ["evaluate", "--predictions", str(files / "found.json")]
    assert run([*tokens, "--data", str(files / "instances_val.json")]) == 0
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].split() == ["what", "is"]
    assert ["AP", "1.0000"] in [line.split() for line in lines]
    assert ["AP_small", "-"] in [line.split() for line in lines]
    assert ["detections", "1"] in [line.split() for line in lines]
    cat, dog = lines[-2:]
    assert cat.split() == ["cat", "1.0000", "1.0000", "1.0000", "1.0000", "1", "1"]
    assert dog.split() == ["[red]dog[/red]", "-", "-", "-", "-", "0", "0"]
    assert printed.err == ""


def test_a_run_is_scored_and_its_detections_written(
    model: Path, toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, data = tmp_path / "found.json", f"{toys}:val"
    status, result = answer(capsys, "evaluate", model, "--data", data, "--detections-out", out)
    assert status == 0
    assert result["images"] == 6
    assert result["by_label"]["ring"]["AP"] is None
    written = json.loads((model / "evaluation.json").read_bytes())
    assert {key: written[key] for key in result} == result
    results = json.loads(out.read_bytes())
    assert len(results) == result["detections"]
    assert run(["evaluate", str(model), "--data", data]) == 0
    printed = capsys.readouterr()
    assert "note: the model has no class moon, plus, ring, star: left out" in printed.err
    assert f"wrote {model / 'evaluation.json'}" in printed.err
    assert printed.out.startswith("what")


@pytest.mark.parametrize(
    ("tokens", "status", "message"),
    [
        ([], 2, "give a run, or --predictions"),
        (["--data", "DATA"], 2, "give a run, or --predictions"),
        (["--predictions", "FOUND"], 2, "by --data"),
        (["RUN"], 2, "by --data, or the truth"),
        (["RUN", "--detections-out", "OUT", "--truth", "DATA"], 2, "needs the images of --data"),
        (["RUN", "--predictions", "FOUND", "--data", "DATA"], 2, "give either a run"),
        (["--predictions", "FOUND", "--data", "DATA", "DATA"], 2, "repeat --data for each"),
        (["--predictions", "FOUND", "--data", "DATA", "--truth", "DATA"], 2, "give a run"),
        (["--predictions", "FOUND", "--data", "DATA", "--compare"], 2, "--truth"),
        (["--predictions", "FOUND", "--data", "nowhere"], 2, "nowhere: no such file"),
        (["--predictions", "nowhere", "--data", "DATA"], 2, "nowhere: no such file"),
        (["--predictions", "DATA", "--data", "DATA"], 3, "score is missing"),
        (["--predictions", "FOUND", "--data", "FOUND"], 3, "and not a COCO dataset"),
        (["nowhere", "--data", "DATA"], 2, "nowhere: no such run"),
        (["RUN", "--data", "DATA"], 3, "share no class with the run"),
        (["RUN", "--data", "DATA", "--detections-out", "FOUND"], 3, "exists already"),
    ],
)
def test_errors_are_reported_and_nothing_is_written(
    files: Path,
    model: Path,
    capsys: pytest.CaptureFixture[str],
    tokens: list[str],
    status: int,
    message: str,
) -> None:
    before = hashes(files)
    places = {
        "DATA": files / "instances_val.json",
        "FOUND": files / "found.json",
        "RUN": model,
        "OUT": files / "out.json",
    }
    assert run(["evaluate", *(str(places.get(token, token)) for token in tokens)]) == status
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert hashes(files) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"image_id": "b"},
            'detection 0 (the first is 0): the data have no image with image_id "b"',
        ),
        (
            {"category_id": 9},
            "no class with category_id 9; their classes are cat (3)",
        ),
        ({"score": float("nan")}, "score is NaN, not a finite number"),
        ({"score": float("inf")}, "score is Infinity, not a finite number"),
    ],
)
def test_detections_that_cannot_be_used_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    document = json.loads((files / "found.json").read_text())
    (files / "found.json").write_text(json.dumps([document[0] | change]))
    data = files / "instances_val.json"
    status, result = answer(
        capsys, "evaluate", "--predictions", files / "found.json", "--data", data
    )
    assert status == 3
    assert message in result
    assert str(files / "found.json") in result


def test_a_run_without_torch_says_what_to_install(
    files: Path, model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = ("boxmend.training.prediction", "boxmend.training.train")
    for name in [name for name in sys.modules if name.startswith(rooms)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    data = str(files / "instances_val.json")
    assert run(["evaluate", str(model), "--data", data]) == 2
    assert "pip install 'boxmend[train]'" in capsys.readouterr().err
    assert run(["evaluate", "--predictions", str(files / "found.json"), "--data", data]) == 0
