"""boxmend quickstart: an audit from the drawing to the report, as it is called."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.bench import quickstart
from boxmend.cli import run
from boxmend.cli.quickstart import NEXT_COMMANDS
from boxmend.data.boxes import compute_iou
from boxmend.data.files.temporary import temporary_path
from boxmend.data.noise import Origin, read_truth
from boxmend.web.report.page import GENERATOR
from tests.cli.cli_answers import answer, hashes

IMAGES = ("--images", "60")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a quickstart, and what it printed."""
    out = tmp_path_factory.mktemp("quickstart") / "quick start"
    code = (
        "import sys; from boxmend.cli import run; status = run(sys.argv[1:]);"
        "sys.exit(status or 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, "quickstart", "--out", str(out), *IMAGES]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def commands_of(printed: str) -> list[list[str]]:
    """The commands that the quickstart says it ran, as lists of words."""
    return [shlex.split(line) for line in re.findall(r"^\d\. boxmend (.*)$", printed, re.MULTILINE)]


def test_every_step_is_printed_as_a_command(written: tuple[Path, str]) -> None:
    out, printed = written
    assert commands_of(printed) == [
        ["check", f"{out}/data/data.yaml"],
        [
            *("audit", f"{out}/data/data.yaml", "--predictions", f"{out}/predictions.json"),
            *("--unseen", "--out", f"{out}/audit"),
        ],
        ["apply", f"{out}/audit", "--precision", "0.95", "--out", f"{out}/mended"],
        ["report", f"{out}/audit", "--truth", f"{out}/data/truth.parquet"],
    ]
    assert "simulated detections" in printed
    assert "No detector made them" in " ".join(printed.split())
    assert all(len(line) <= 80 for line in printed.splitlines() if str(out) not in line)
    for name in re.findall(r"boxmend ([a-z]+)", NEXT_COMMANDS):
        assert name in boxmend.cli.COMMANDS


def test_the_printed_commands_give_the_same_files(
    written: tuple[Path, str], tmp_path: Path
) -> None:
    out, printed = written
    check, audit, apply, report = commands_of(printed)
    assert run(check) == 0
    assert run([*audit[:-1], str(tmp_path / "audit")]) == 0
    assert run(["apply", str(tmp_path / "audit"), *apply[2:-1], str(tmp_path / "mended")]) == 0
    assert run(["report", str(tmp_path / "audit"), *report[2:]]) == 0
    for name in ("audit/fixes.parquet", "audit/audit.json", "mended/changes.csv"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    labels = [path.relative_to(out) for path in sorted((out / "mended/labels").rglob("*.txt"))]
    assert len(labels) > 50
    for path in labels:
        assert (tmp_path / path).read_bytes() == (out / path).read_bytes()


def test_the_table_is_counted_against_the_truth(written: tuple[Path, str]) -> None:
    out, printed = written
    rows = {
        match[1].strip(): [int(number) for number in match[2].split()]
        for match in re.finditer(r"^([a-z ]+?)((?: +\d+){4})$", printed, re.MULTILINE)
    }
    truth = read_truth(out / "data" / "truth.parquet")
    dataset = boxmend.load(out / "data" / "data.yaml")
    box_of = dict(zip(dataset.annotation_ids.tolist(), dataset.boxes, strict=True))
    is_real = (truth.origins != Origin.MISSING) & (truth.origins != Origin.SPURIOUS)
    boxes = np.stack([box_of[name] for name in truth.annotation_ids[is_real].tolist()])
    is_bad = compute_iou(boxes, truth.boxes[is_real]) < 0.7
    assert rows["wrong label"][0] == int(truth.label_changed.sum())
    assert rows["bad box"][0] == int(is_bad.sum())
    assert rows["missing"][0] == int((truth.origins == Origin.MISSING).sum())
    assert rows["spurious"][0] == int((truth.origins == Origin.SPURIOUS).sum())
    assert rows["duplicate"][0] == int((truth.origins == Origin.DUPLICATE).sum())
    total = [sum(rows[kind][k] for kind in rows if kind != "in all") for k in range(4)]
    assert rows["in all"] == total
    assert total[2] > total[0] / 2  # most errors are repaired
    assert total[3] <= 0.05 * total[2]  # and few fixes are wrong
    share = round(100 * total[2] / total[0])
    assert f"{total[2]} of {total[0]} errors ({share} %) are repaired" in " ".join(printed.split())


def test_the_mended_labels_are_nearer_to_the_clean_ones(written: tuple[Path, str]) -> None:
    out, _ = written
    clean, noisy, mended = (
        boxmend.load(out / name / "data.yaml") for name in ("clean", "data", "mended")
    )
    before, after = (boxmend.compare(clean, dataset) for dataset in (noisy, mended))
    assert after.label_changed < before.label_changed / 2


def test_the_report_is_compared_with_the_truth(written: tuple[Path, str]) -> None:
    page = (written[0] / "audit" / "report.html").read_text(encoding="utf-8")
    assert GENERATOR in page
    assert "Errors found and repaired, by the truth" in page


def test_a_second_call_uses_what_is_there(
    written: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    out, printed = written
    before = hashes(out)
    assert run(["quickstart", "--out", str(out), *IMAGES]) == 0
    again = capsys.readouterr().out
    assert re.sub(r"took \d+ seconds", "", again) == re.sub(r"took \d+ seconds", "", printed)
    assert hashes(out) == before


def test_it_continues_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(quickstart, "audit_predictions", interrupted)
        assert run(["quickstart", "--out", str(out), "--images", "10"]) == 3
    assert (out / "predictions.json").is_file()
    assert not (out / "audit").exists()
    status, facts = answer(capsys, "quickstart", "--out", out, "--images", "10")
    assert status == 0
    assert facts["report"] == str(out / "audit" / "report.html")
    assert (out / "audit" / "report.html").is_file()
    assert facts["repairs"]["in all"]["errors"] > facts["repairs"]["in all"]["repaired"]


def test_it_continues_where_it_was_killed_before_its_record_was_complete(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    temporary_path(out / "quickstart.json").write_text("{")
    assert quickstart.start_quickstart(out, 10).out == out
    assert [path.name for path in out.iterdir()] == ["quickstart.json"]


@pytest.mark.parametrize("there", ["file", "folder", "other settings", "damaged marker"])
def test_nothing_else_is_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], there: str
) -> None:
    out = tmp_path / "out"
    if there == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        name = "mine.txt" if there == "folder" else "quickstart.json"
        text = "{" if there == "damaged marker" else '{"made_by": "boxmend quickstart"}\n'
        (out / name).write_text(text)
    before = hashes(tmp_path)
    assert run(["quickstart", "--out", str(out), *IMAGES]) == 3
    message = capsys.readouterr().err
    assert f"{out}: " in message
    assert "name a new one" in message or "a new or an empty one" in message
    assert hashes(tmp_path) == before


def test_too_few_images_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quickstart", "--out", str(tmp_path / "out"), "--images", "9"]) == 2
    assert "images is 9; expected 10 or more" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_most_errors_are_repaired_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, facts = answer(capsys, "quickstart", "--out", tmp_path / "out")
    assert status == 0
    total = facts["repairs"]["in all"]
    assert total["repaired"] > 0.7 * total["errors"]
    assert total["wrong"] < 0.05 * total["applied"]
