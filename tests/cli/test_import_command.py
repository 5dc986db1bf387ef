"""`boxmend export`, `import` and `apply` of an audit, as they are called."""

import json
from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.cli import run
from boxmend.cli.yields import are_few
from tests.cli.cli_answers import answer, coco, hashes
from tests.fabricated_runs import Fix, audit_run, drawn


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """A cat at (1, 2, 4, 6), which is spurious (0.99), and one missing at (5, 5, 15, 15) (0.6)."""
    fixes = [
        Fix("s", Kind.SPURIOUS, 0, 0.99, p_wrong=0.99, reason="nothing there"),
        Fix("m", Kind.MISSING, -1, 0.6, "cat", (5, 5, 15, 15), p_wrong=0.75, reason="a cat"),
    ]
    return audit_run(tmp_path / "run", str(coco(tmp_path)), fixes)


def submit_answers(out: Path, path: Path) -> Path:
    """What Label Studio gives back when all suggestions are submitted as they are."""
    tasks = json.loads((out / "tasks.json").read_text())
    for task in tasks:
        task["annotations"] = [{"result": task["predictions"][0]["result"], "completed_by": 1}]
    path.write_text(json.dumps(tasks))
    return path


def test_apply_prints_the_numbers_of_applied_and_remaining_fixes(
    audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["apply", str(audit), "--out", str(tmp_path / "out"), "--precision", "0.9"]) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()] == [
        ["what", "is"],
        ["annotations", "1"],
        ["fixes", "taken", "1"],
        ["expected", "precision", "0.99"],
        ["left", "for", "review", "1"],
        ["left", "likely", "wrong", "1"],
        ["accepted", "by", "people", "0"],
        ["added", "0"],
        ["removed", "1"],
        ["labels", "changed", "0"],
        ["boxes", "moved", "0"],
        [],  # means: 0.99, and with the missing cat 0.795, whose own 0.6 is enough from 0.9 on
        ["precision", "missing", "spurious", "in", "all"],
        ["0.95", "0", "1", "1"],
        ["0.9", "0", "1", "1"],
        ["0.8", "0", "1", "1"],
        ["0.7", "1", "1", "2"],
    ]
    assert "1 fixes were applied, with an expected precision of 0.990" in printed.err
    left = "1 of the others are more likely wrong than not, and 0 are less likely"
    assert f"{left}: `boxmend review {audit}`" in printed.err
    assert run(["revert", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/instances_train.json").read_bytes() == (
        tmp_path / "instances_train.json"
    ).read_bytes()


def test_the_yields_are_printed_for_few_fixes_alone_and_are_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    boxes = [(1.0 + k, 2.0, 4.0 + k, 6.0) for k in range(21)]
    drawn(tmp_path, "coco", boxes)
    sure = [Fix(f"s{k}", Kind.SPURIOUS, k, 0.99) for k in range(20)]
    made = [*sure, Fix("t", Kind.SPURIOUS, 20, 0.6, p_wrong=0.4)]
    audit = audit_run(tmp_path / "run", str(tmp_path / "data"), made)
    assert run(["apply", str(audit), "--out", str(tmp_path / "many")]) == 0
    printed = capsys.readouterr()
    assert "0.95" not in printed.out
    assert "0 of the others are more likely wrong than not, and 1 are less likely" in printed.err
    command = ["apply", str(audit), "--precision", "1", "--out", str(tmp_path / "none")]
    assert run(command) == 0
    printed = capsys.readouterr()
    assert "no fix was applied: none reaches the precision" in printed.err
    assert "precision  spurious  in all\n0.95       20        20\n" in printed.out
    status, outcome = answer(capsys, "apply", audit, "--out", tmp_path / "json")
    assert (status, outcome["left_likely_wrong"]) == (0, 0)
    assert [counts["spurious"] for counts in outcome["yields"].values()] == [20, 21, 21, 21]
    assert list(outcome["yields"]) == ["0.95", "0.9", "0.8", "0.7"]


def test_that_no_precision_takes_a_fix_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [Fix("s", Kind.SPURIOUS, 0, 0.6, p_wrong=0.6)]
    audit = audit_run(tmp_path / "run", str(coco(tmp_path)), made)
    assert run(["apply", str(audit), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert "no precision down to 0.7 takes a fix" in printed.err


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["--precision", "1.5"], 2, "precision is 1.5; expected a number from 0 to 1"),
        (["--precision", "high"], 2, "high"),
        (["--only", "labels,names"], 2, "only is 'names'"),
        (["--min-confidence", "0.5"], 2, "not to fixes"),
        (["--precision", "0.9", "--discarded", "drop"], 2, "not to fixes"),
    ],
)
def test_wrong_options_are_refused(
    audit: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    words: str,
) -> None:
    assert run(["apply", str(audit), "--out", str(tmp_path / "out"), *options]) == status
    printed = capsys.readouterr()
    assert words in printed.out + printed.err
    assert not (tmp_path / "out").exists()


def test_what_people_did_elsewhere_is_applied(
    audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "to-check"
    status, outcome = answer(
        capsys, "export", audit, "--to", "label-studio", "--out", out, "--most", 9
    )
    assert (status, outcome["suspects"]) == (0, 2)
    file = submit_answers(out, tmp_path / "back.json")
    status, outcome = answer(capsys, "import", audit, file)
    assert status == 0
    assert (outcome["accepted"], outcome["rejected"], outcome["known_already"]) == (1, 1, 0)
    status, outcome = answer(capsys, "import", audit, file)
    assert (outcome["accepted"], outcome["rejected"], outcome["known_already"]) == (0, 0, 2)

    _, outcome = answer(capsys, "apply", audit, "--out", tmp_path / "mended")
    counts: dict[str, Any] = {key: outcome[key] for key in ("added", "removed", "left_for_review")}
    assert counts == {"added": 1, "removed": 0, "left_for_review": 0}


def test_import_says_what_it_did(
    audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "to-check"
    assert run(["export", str(audit), "--to", "cvat", "--out", str(out), "--most", "9"]) == 0
    text = (out / "annotations.xml").read_text().replace('label="cat"', 'label="dog"', 1)
    (out / "back.xml").write_text(text)
    capsys.readouterr()
    assert run(["import", str(audit), str(out / "back.xml")]) == 0
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines()][5] == ["accepted", "1"]
    assert "1 boxes were ignored: they are rotated, lie outside the image" in printed.err
    assert f"1 verdicts added; `boxmend apply {audit}` uses them" in printed.err


def test_import_refuses_foreign_files(
    audit: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = hashes(audit)
    (tmp_path / "odd.json").write_text("[]")
    assert run(["import", str(audit), str(tmp_path / "nowhere.json")]) == 2
    assert run(["import", str(audit), str(tmp_path / "odd.json")]) == 3
    assert "has no task that" in capsys.readouterr().err
    assert hashes(audit) == before


def test_the_help_tells_of_import(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "Import verdicts" in capsys.readouterr().out
    assert run(["import", "--help"]) == 0
    assert "--export" in capsys.readouterr().out


def test_few_are_fewer_than_twenty_or_than_likely_errors_left() -> None:
    assert [are_few(20, 0), are_few(19, 0), are_few(100, 100), are_few(100, 101)] == [
        *(False, True, False, True)
    ]
