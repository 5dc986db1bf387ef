"""`boxmend report`, as it is called."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from boxmend.cli import run
from boxmend.runs.folder import Run
from tests.cli.cli_answers import answer
from tests.fabricated_runs import RELABELLED, Visit, finished_run


@pytest.fixture
def trained_run(tmp_path: Path) -> Path:
    """A finished run on two cats in one image, of which one would rather be a dog."""
    data = tmp_path / "data"
    data.mkdir()
    Image.new("RGB", (60, 40), (80, 120, 160)).save(data / "a.jpg")
    (data / "instances_train.json").write_text(
        '{"images": [{"id": 1, "file_name": "a.jpg", "width": 60, "height": 40}], "annotations": ['
        '{"id": 7, "image_id": 1, "category_id": 1, "bbox": [5, 5, 20, 20]},'
        '{"id": 8, "image_id": 1, "category_id": 1, "bbox": [30, 5, 20, 20]}],'
        ' "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]}'
    )
    visits = [
        Visit(0, 0, RELABELLED, 1, confidence=0.75, loss=2.0, threshold=1.0),
        Visit(0, 1, confidence=0.75, loss=0.5, threshold=1.0),
    ]
    return finished_run(tmp_path / "run", str(data), visits)


def test_what_was_written_is_printed(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(trained_run)]) == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["report", str(trained_run / "report.html")] in lines
    assert ["annotations", "shown", "1"] in lines
    assert printed.err.splitlines()[-1] == f"open {trained_run / 'report.html'} in a browser"
    assert (trained_run / "figures" / "losses.svg").is_file()
    assert (trained_run / "figures" / "losses.csv").is_file()


def test_it_answers_in_json(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, result = answer(capsys, "report", trained_run)
    assert status == 0
    page = trained_run / "report.html"
    assert result.pop("figures")
    assert result == {
        "out": str(page),
        "annotations_shown": 1,
        "bytes": page.stat().st_size,
        "figure_folder": str(trained_run / "figures"),
        "picture_folder": str(trained_run / "report-images"),
        "pictures_embedded": True,
        "without_picture": 0,
    }


def test_pictures_outside_the_page_are_mentioned(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "own.html"
    assert run(["report", str(trained_run), "--out", str(out), "--no-embed"]) == 0
    assert f"the pictures stay in {tmp_path / 'own-images'}" in capsys.readouterr().err
    assert out.is_file()
    (tmp_path / "data" / "a.jpg").unlink()
    assert run(["report", str(trained_run), "--out", str(out)]) == 0
    assert "1 annotation has no picture: its image cannot be read" in capsys.readouterr().err


def test_a_file_of_an_earlier_version_is_noted_once_and_a_damaged_one_refused(
    trained_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = trained_run / "evaluation.json"
    evaluation.write_text('{"voc_ap50_area": 0.625, "by_label": {}}')
    assert run(["report", str(trained_run)]) == 0
    assert capsys.readouterr().err.count(f"note: {evaluation}: has no digest") == 1
    Run(trained_run).write_json("evaluation.json", {"voc_ap50_area": 0.625, "by_label": {}})
    assert run(["report", str(trained_run)]) == 0
    assert "digest" not in capsys.readouterr().err
    evaluation.write_text(evaluation.read_text().replace("0.625", "0.725"))
    assert run(["report", str(trained_run)]) == 3
    assert f"{evaluation}: is damaged" in capsys.readouterr().err


def test_truth_and_other_runs_reach_the_page(trained_run: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_run, tmp_path / "other")
    (tmp_path / "other" / "evaluation.json").write_text('{"voc_ap50_area": 0.5, "by_label": {}}')
    (trained_run / "evaluation.json").write_text('{"voc_ap50_area": 0.625, "by_label": {}}')
    others = ["--baseline", str(tmp_path / "other"), "--beside", str(tmp_path / "other")]
    data = str(tmp_path / "data")
    assert run(["report", str(trained_run), "--truth", data, "--data", data, *others]) == 0
    page = (trained_run / "report.html").read_text()
    assert "62.5" in page
    assert "+12.5 points" in page
    assert "Compared with the truth" in page


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--out", "page.pdf"], 2, "choose a name like report.html"),
        (["--truth", "nowhere"], 2, "nowhere"),
        (["--baseline", "nowhere"], 2, "nowhere: no such folder"),
        (["--beside", "nowhere"], 2, "nowhere: no such folder"),
        (["--data", "nowhere"], 2, "nowhere: no such file"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    trained_run: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    words: str,
) -> None:
    assert run(["report", str(trained_run), *options]) == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    assert not (trained_run / "report.html").exists()
    assert not (trained_run / "figures").exists()


def test_no_run_and_an_unfinished_one_are_refused(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", str(tmp_path / "nowhere")]) == 2
    assert run(["report", str(tmp_path / "data")]) == 3
    (trained_run / "finished").unlink()
    assert run(["report", str(trained_run)]) == 3
    assert "the run is unfinished" in capsys.readouterr().err


def test_it_needs_no_torch(trained_run: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from boxmend.cli import run;"
        "sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(trained_run)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
