"""`boxmend export`, as it is called."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from boxmend.cli import run
from boxmend.repair.export import TARGETS
from boxmend.runs.judgement import Judgement
from tests.cli.cli_answers import answer, coco, hashes
from tests.fabricated_runs import Visit, finished_run

TARGET_NAMES = list(TARGETS)


def run_with(folder: Path, verdict: Judgement, loss: float) -> Path:
    """A finished run on a dataset of one cat, whose label it judges so."""
    visit = Visit(0, 0, verdict, confidence=0.5, loss=loss, threshold=1.0)
    return finished_run(folder / "run", str(coco(folder)), [visit])


@pytest.fixture
def trained_run(tmp_path: Path) -> Path:
    """A run that is unsure of the one annotation there is."""
    return run_with(tmp_path, Judgement.DISCARDED, 2.0)


@pytest.mark.parametrize("to", TARGET_NAMES)
def test_the_summary_is_printed_and_says_where_to_read_on(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    out = tmp_path / "out"
    assert run(["export", str(trained_run), "--to", to, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["what", "is"],
        ["suspects", "1"],
        ["images", "1"],
        ["other", "annotations", "0"],
    ]
    assert f"wrote {out} for {to}; {out}/README.md explains how to import it" in printed.err
    assert (out / "README.md").is_file()
    assert "image files not found: 1, the first" in printed.err


def test_the_summary_as_json(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result = answer(
        capsys, "export", trained_run, "--to", "coco", "--out", tmp_path / "out", "--changes"
    )
    assert status == 0
    assert result == {
        "out": str(tmp_path / "out"),
        "to": "coco",
        "files": ["instances_suggested.json", "export.json", "README.md"],
        "images": 1,
        "suspects": 1,
        "others": 0,
        "images_missing": 1,
        "images_left_out": 0,
        "fixes_not_exported": 0,
    }


def test_exporting_more_than_there_are_is_reported(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["export", trained_run, "--to", "coco", "--out", tmp_path / "out", "--most", 1_000]
    assert run([str(token) for token in tokens]) == 0
    assert "--most asks for 1,000; suspects in this run: 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tokens", "status", "message"),
    [
        (["--most", "0"], 2, "--most is 0; expected at least 1"),
        (["--most", "-5"], 2, "--most is -5; expected at least 1"),
        (["--most", "many"], 2, "many"),
        (["--most", "5", "--changes"], 2, "--changes and --most exclude each other"),
        (["--image-prefix", "http://x/"], 2, "--image-prefix is for label-studio"),
        (["--images-as", "move"], 2, "move"),
        (["--data", "nowhere"], 2, "nowhere: no such file or folder"),
    ],
)
def test_wrong_usage_is_reported_and_writes_nothing(
    trained_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tokens: list[str],
    status: int,
    message: str,
) -> None:
    before = hashes(tmp_path)
    result = ["export", str(trained_run), "--to", "coco", "--out", str(tmp_path / "out"), *tokens]
    assert run(result) == status
    printed = capsys.readouterr()
    assert message in printed.err + printed.out
    assert hashes(tmp_path) == before


def test_cvat_takes_whole_images_only(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["--to", "cvat", "--out", str(tmp_path / "out"), "--no-whole-images"]
    assert run(["export", str(trained_run), *tokens]) == 2
    assert "CVAT replaces all annotations of a task" in capsys.readouterr().err


def test_an_unknown_tool_is_named_with_the_known_ones(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(trained_run), "--to", "paint", "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    for name in ("paint", *TARGET_NAMES):
        assert name in printed.err + printed.out


def test_data_problems_end_with_status_3(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["export", str(trained_run), "--to", "coco", "--out", str(tmp_path / "out")]
    (trained_run / "finished").rename(trained_run / "almost")
    assert run(tokens) == 3
    assert (
        "the run is unfinished; continue it with `boxmend train --resume`"
        in capsys.readouterr().err
    )
    (trained_run / "almost").rename(trained_run / "finished")
    coco(tmp_path, bbox=[1, 2, 3, 5])
    assert run(tokens) == 3
    assert "not the data that" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_without_changes_ends_with_status_3_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calm = run_with(tmp_path, Judgement.KEPT, 0.1)
    tokens = ["export", str(calm), "--to", "coco", "--out", str(tmp_path / "out")]
    assert run(tokens) == 3
    assert "changed no annotation" in capsys.readouterr().err
    assert run([*tokens, "--most", "1"]) == 0


def test_an_output_that_is_there_is_left_alone(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = ["export", str(trained_run), "--to", "coco", "--out", str(tmp_path / "out")]
    assert run(tokens) == 0
    before = hashes(tmp_path)
    assert run(tokens) == 3
    assert "the folder is not empty" in capsys.readouterr().err
    assert hashes(tmp_path) == before


def test_no_torch_is_needed(trained_run: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from boxmend.cli import run; "
        f"sys.exit(run(['export', {str(trained_run)!r}, '--to', 'coco', '--out', 'out', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0
    assert json.loads(done.stdout)["suspects"] == 1
    assert (tmp_path / "out/instances_suggested.json").is_file()


def test_the_choices_of_the_command_are_the_targets_of_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["export", "--help"]) == 0
    result = capsys.readouterr().out
    assert all(name in result for name in TARGET_NAMES)
