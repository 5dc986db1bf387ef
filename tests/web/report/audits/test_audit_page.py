"""The page of an audit as a file: its words, its tables, its command, and what it refuses."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend.auditing.fixes.table import FIXES_FILE, Kind
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.data.files.locks import try_lock
from boxmend.errors import DataError, OutputError
from boxmend.runs.folder import Run
from boxmend.web.report.content import apply_command
from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.page import SCRIPTS
from boxmend.web.report.writing import write_report
from tests.fabricated_runs import RELABELLED
from tests.web.report.audits.audited_folders import NOTE, RECORDED, made_audit
from tests.web.report.drawn_records import seen
from tests.web.report.drawn_runs import drawn_run
from tests.web.report.read_pages import Parts, parts_of, said
from tests.web.review.reviewed_runs import FIXES, NAMES


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made_audit(tmp_path)


def test_the_page_says_what_was_found(run: Path) -> None:
    result = boxmend.write_report(run)
    assert result.shows == "fixes"
    assert (result.num_shown, result.num_without_picture) == (8, 0)
    words = said(result.path)
    for text in (
        "This audit compared 16 annotations on 8 images with the predictions of a detector.",
        "25.0 % of the labels are wrong (95 % interval 12.5 % to 37.5 %).",
        "It proposes 8 fixes. 3 fixes reach a precision of 0.95 together",
        "about 97 % of them are right",
        # 0.8, 0.7, 0.6 and 0.5 are likely errors, 0.4 is not.
        "Of the others, 4 are more likely an error than not",
        "1 not judged: their images have no detections",
    ):
        assert text in words
    assert NOTE in words
    assert "Errors found and repaired" not in words
    assert "Measured by people" not in words


def rows_of(path: Path, title: str) -> list[list[str]]:
    """The cells of a table of the summary, row by row."""
    page = path.read_text(encoding="utf-8")
    section = page[page.index(f"<h2>{title}</h2>") :].partition("</section>")[0]
    body = section[section.index("<tbody>") :].partition("</tbody>")[0]
    rows = []
    for row in body.split("<tr>")[1:]:
        cells = Parts(row.replace("</th>", "\t").replace("</td>", "\t")).texts[""]
        rows.append([" ".join(cell.split()) for cell in "".join(cells).split("\t")[:-1]])
    return rows


def test_yields_are_counted_by_kind_and_lead_to_the_gallery(run: Path) -> None:
    path = write_report(run).path
    assert rows_of(path, "Fixes that a precision applies") == [
        ["wrong label", "2", "2", "2", "3"],
        ["bad box", "1", "1", "1", "1"],
        ["missing", "0", "1", "1", "1"],
        ["spurious", "0", "0", "1", "1"],
        ["duplicate", "0", "0", "0", "1"],
        ["in all", "3", "4", "5", "7"],
    ]
    hrefs = [a.get("href") for tag, a in parts_of(path).tags if tag == "a"]
    assert {"#precision=0.95", "#precision=0.7", "#pair=0-2"} <= set(hrefs)


def test_the_probe_is_a_table_of_shares_with_intervals(run: Path) -> None:
    assert rows_of(write_report(run).path, "Reliability, measured by planted errors") == [
        [
            "wrong label: any other class",
            "25",
            "100 (87\u2060\u2013\u2060100)",
            "40 (23\u2060\u2013\u206059)",
        ],
        [
            "wrong label: a class that <b>looks alike",
            "15",
            "33 (15\u2060\u2013\u206058)",
            "100 (57\u2060\u2013\u2060100)",
        ],
        ["missing", "40", "0 (0\u2060\u2013\u20609)", "\u2013"],
    ]


def test_the_truth_adds_what_was_repaired(run: Path) -> None:
    # The data themselves are the truth, so there is no error and each of the three fixes harms.
    truth = str(run.parent / "data")
    path = write_report(run, settings=ReportSettings(truth=truth)).path
    assert "repair 0 of 0 errors, and 3 of 3 fixes are wrong." in said(path)
    assert rows_of(path, "Errors found and repaired, by the truth")[-1] == [
        *("in all", "0", "0", "0", "3")
    ]


def test_people_s_samples_measure_the_precision(run: Path) -> None:
    append_verdicts(
        run,
        [
            Verdict("f0", "accept", mode="sample"),
            Verdict("f1", "accept", mode="sample"),
            Verdict("f2", "reject", mode="sample"),
        ],
    )
    words = said(write_report(run).path)
    assert "Measured by people" in words
    assert "of all sampled fixes right 66.7 % 2 of 3; 95 % interval 21 % to 94 %" in words
    assert "of fixes of wrong label right 100.0 % 2 of 2" in words
    assert "decided by people 3 2 accepted, 1 rejected" in words


def test_without_fixes_there_is_no_gallery(tmp_path: Path) -> None:
    result = write_report(made_audit(tmp_path, []))
    assert result.num_shown == 0
    words = said(result.path)
    assert "It proposes no fix." in words
    assert "The audit proposes no fix." in words


def test_a_precision_that_no_fix_reaches_is_said(tmp_path: Path) -> None:
    run = made_audit(tmp_path, FIXES[3:])
    assert "None of them reaches a precision of 0.95: people have to decide." in said(
        write_report(run).path
    )


def test_the_command_has_the_name_of_the_folder_and_nothing_of_the_machine(run: Path) -> None:
    path = write_report(run).path
    command = parts_of(path).data["command"]
    assert command == {"folder": "run", "data": "", "replaced": [], "why_none": ""}
    assert str(run.parent) not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "folder", "replaced"),
    [
        ("audit", "audit", []),
        ("my audit; rm -rf ~", "'my audit; rm -rf ~'", []),
        ("it's", "'it'\"'\"'s'", []),
        ("-x", "./-x", []),
        ("$(touch x)`y`", "'$(touch x)`y`'", []),
        ("two\nlines", "AUDIT", ["AUDIT"]),
        ("esc\x1b[2J", "AUDIT", ["AUDIT"]),
        ("a\u202eb", "AUDIT", ["AUDIT"]),
        ("\udcff", "AUDIT", ["AUDIT"]),
        ("x" * 201, "AUDIT", ["AUDIT"]),
    ],
)
def test_a_name_is_quoted_for_the_shell_or_replaced(
    name: str, folder: str, replaced: list[str]
) -> None:
    command = apply_command(name, "AUDIT", is_moved=False)
    assert (command["folder"], command["replaced"]) == (folder, replaced)


def test_moved_data_are_part_of_the_command(run: Path) -> None:
    data = str(run.parent / "data")
    path = write_report(run, settings=ReportSettings(data=data)).path
    command = parts_of(path).data["command"]
    assert (command["data"], command["replaced"]) == (" --data DATA", ["DATA"])


def test_verdicts_on_the_fixes_of_a_training_run_leave_it_without_a_command(
    run: Path, tmp_path: Path
) -> None:
    trained = drawn_run(tmp_path / "trained", [seen(0, 0, RELABELLED, 2)])
    parts = parts_of(write_report(trained).path)
    assert parts.data["command"]["why_none"] == ""
    shutil.copy(run / FIXES_FILE, trained / FIXES_FILE)
    append_verdicts(trained, [Verdict("f0", "accept")])
    page = write_report(trained).path
    assert "What the run found and changed" in said(page)
    assert "`boxmend apply` makes these fixes" in parts_of(page).data["command"]["why_none"]


def test_hostile_names_and_notes_are_text_and_nothing_else(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script>"
    found = [replace(one, reason=f"{hostile}\u202e\x00") for one in FIXES]
    recorded = RECORDED | {"notes": [hostile, "x" * 100_000], "evidence": hostile}
    run = made_audit(tmp_path, found, recorded)
    page = write_report(run).path.read_text(encoding="utf-8")
    parts = Parts(page)
    assert [tag for tag, _ in parts.tags].count("script") == 1 + len(SCRIPTS["audit"])
    assert "img" not in {tag for tag, _ in parts.tags}
    assert parts.data["labels"] == list(NAMES)
    assert parts.data["reasons"] == [f"{hostile}\ufffd\ufffd"]
    assert len(page) < 400_000
    assert "\x00" not in page
    assert "\u202e" not in page


def test_nothing_is_overwritten_and_two_reports_at_once_are_refused(run: Path) -> None:
    page = write_report(run).path
    before = page.read_bytes()
    with try_lock(run / "report-images"), pytest.raises(OutputError, match="another process"):
        write_report(run)
    assert page.read_bytes() == before
    page.write_text("mine")
    with pytest.raises(OutputError, match="`boxmend report` did not write it"):
        write_report(run)
    assert page.read_text() == "mine"


def test_a_report_again_is_the_same_and_replaces_figures_that_are_gone(run: Path) -> None:
    page = write_report(run).path
    before = page.read_bytes()
    names = {path.name for path in (run / "figures").glob("*.svg")}
    assert names == {"rates.svg", "yields.svg", "probe.svg"}
    assert write_report(run).path.read_bytes() == before
    Run(run).write_json("audit.json", RECORDED | {"probe": None, "rates": {}})
    result = write_report(run)
    assert result.figures == ["yields"]
    assert {path.name for path in (run / "figures").glob("*.svg")} == {"yields.svg"}


def test_an_unfinished_audit_and_damaged_fixes_are_refused(run: Path) -> None:
    table = run / FIXES_FILE
    content = table.read_bytes()
    table.write_bytes(content[:-20] + b"x" * 20)
    with pytest.raises(DataError, match=r"fixes\.parquet: "):
        write_report(run)
    table.write_bytes(content)
    (run / "finished").unlink()
    with pytest.raises(DataError, match="the audit is unfinished"):
        write_report(run)
    assert not (run / "report.html").exists()


def test_kinds_have_an_option_each(run: Path) -> None:
    data: dict[str, Any] = parts_of(write_report(run).path).data
    assert data["kinds"] == [kind.words for kind in Kind]
    assert len(data["options"]) == len(Kind)
