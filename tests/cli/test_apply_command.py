"""`boxmend apply` and `boxmend revert`, as they are called."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from boxmend.cli import run
from tests.cli.cli_answers import answer, coco, hashes
from tests.fabricated_runs import DISCARDED, Visit, finished_run


@pytest.fixture
def trained_run(tmp_path: Path) -> Path:
    """A finished run on a dataset of one cat at (1, 2, 4, 6), which it would like to move."""
    visit = Visit(0, 0, DISCARDED, confidence=0.5, box=(2, 3, 5, 7), loss=1.0, threshold=1.0)
    return finished_run(tmp_path / "run", str(coco(tmp_path)), [visit])


def test_the_summary_is_printed(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["apply", str(trained_run), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["what", "is"],
        ["annotations", "1"],
        ["changed", "1"],
        ["labels", "changed", "0"],
        ["boxes", "moved", "1"],
        ["unsure", "1"],
        ["discarded", "keep"],
        ["mean", "label", "confidence"],
        ["mean", "iou", "of", "moved", "0.3333"],  # 2 x 3 of 12 + 12 - 6
    ]
    assert "1 images were not found" in printed.err
    assert f"`boxmend revert {tmp_path / 'out'}` undoes the changes" in printed.err


def test_apply_and_revert_answer_in_json(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (tmp_path / "instances_train.json").read_bytes()
    out = tmp_path / "out"
    status, result = answer(capsys, "apply", trained_run, "--out", out, "--discarded", "mark")
    assert status == 0
    assert result == {
        "out": str(out),
        "format": "coco",
        "files": 1,
        "images_missing": 1,
        "lost": [],
        "annotations": 1,
        "changed": 1,
        "labels_changed": 0,
        "boxes_moved": 1,
        "unsure": 1,
        "discarded": "mark",
        "mean_label_confidence": None,
        "mean_iou_of_moved": 0.3333,
    }
    assert b'"iscrowd": 1' in (out / "instances_train.json").read_bytes()
    assert answer(capsys, "revert", out) == (
        0,
        {"out": str(out), "files": ["instances_train.json"]},
    )
    assert (out / "instances_train.json").read_bytes() == before
    assert sorted(hashes(out)) == ["instances_train.json"]


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--only", "names"], 2, "only is 'names'"),
        (["--min-confidence", "2"], 2, "min_confidence is 2.0; expected a number from 0 to 1"),
        (["--min-confidence", "high"], 2, "high"),
        (["--discarded", "burn"], 2, "burn"),
        (["--to", "yolo", "--discarded", "mark"], 2, "YOLO has no flag"),
        (["--data", "nowhere"], 2, "nowhere: no such file"),
    ],
)
def test_wrong_options_are_refused(
    trained_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    words: str,
) -> None:
    assert run(["apply", str(trained_run), "--out", str(tmp_path / "out"), *options]) == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    assert not (tmp_path / "out").exists()


def test_data_that_moved_are_named(trained_run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "instances_train.json", tmp_path / "elsewhere")
    command = ["apply", str(trained_run), "--out", str(tmp_path / "out")]
    assert run(command) == 3
    assert run([*command, "--data", str(tmp_path / "elsewhere")]) == 0


def test_only_and_confidence_reach_the_library(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for k, options in enumerate((["--only", "labels"], ["--min-confidence", "0.6"])):
        _, result = answer(capsys, "apply", trained_run, "--out", tmp_path / f"{k}", *options)
        assert result["changed"] == 0
    _, result = answer(
        capsys, "apply", trained_run, "--out", tmp_path / "2", "--only", "boxes, labels"
    )
    assert result["changed"] == 1


def test_reverting_what_was_not_applied_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["revert", str(tmp_path)]) == 3
    assert run(["revert", str(tmp_path / "nowhere")]) == 2
    assert "nothing to revert" in capsys.readouterr().err


def test_neither_needs_torch(trained_run: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from boxmend.cli import run;"
        "sys.exit(run(sys.argv[1:]))"
    )
    for command in (
        ["apply", str(trained_run), "--out", str(tmp_path / "o")],
        ["revert", str(tmp_path / "o")],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *command], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
