"""Verdicts read back: the same gestures in both tools give the same verdicts."""

import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts, latest_verdicts, read_verdicts
from boxmend.errors import OutputError
from boxmend.repair.export import export
from boxmend.repair.importing.verdicts import Imported, import_verdicts
from boxmend.runs.folder import sole_writer
from tests.repair.export.annotation_tools import TOOLS, Cvat, LabelStudio, Tool
from tests.repair.export.exported_audits import audit_run, exported_audit, submitted
from tests.repair.export.exported_runs import Drawn

SUGGESTED = {
    "label 10": ("accept", None, None),
    "box 10": ("accept", None, None),
    "box 11": ("accept", None, None),
    "missing a": ("accept", None, None),
    "label 13": ("accept", None, None),
    "spurious 14": ("reject", None, None),  # it was left where it is
    "double 15": ("reject", None, None),
}
Said = dict[str, tuple[str, str | None, tuple[float, ...] | None]]


class Office:
    """An audit, what was handed over of it, and the tool that people have it in."""

    def __init__(self, folder: Path, to: str) -> None:
        self.run, self.out = exported_audit(folder, to)
        self.tool: Tool = TOOLS[to](self.out)

    def imported(self) -> Imported:
        return import_verdicts(self.run, self.tool.exported(), self.out)

    def said(self) -> Said:
        self.imported()
        return {
            verdict.fix: (verdict.answer, verdict.label, verdict.box)
            for verdict in read_verdicts(self.run)
        }


@pytest.fixture(params=TOOLS)
def office(tmp_path: Path, request: pytest.FixtureRequest) -> Office:
    return Office(tmp_path, request.param)


def test_what_is_left_as_suggested_is_accepted(office: Office) -> None:
    imported = office.imported()
    verdicts = {verdict.fix: verdict for verdict in read_verdicts(office.run)}
    assert {key: (one.answer, one.label, one.box) for key, one in verdicts.items()} == SUGGESTED
    assert {verdict.mode for verdict in verdicts.values()} == {"import"}
    assert imported.to_json() == {
        "from": imported.to,
        "images": 2,
        "images_not_finished": 0,
        "images_of_others": 0,
        "accepted": 5,
        "accepted_otherwise": 0,
        "rejected": 2,
        "known_already": 0,
        "fixes_gone": 0,
        "not_readable": 0,
        "beyond_fixes": 0,
    }


OLD_10, NEW_10 = (20, 10, 80, 50), (20, 10, 100, 50)
OLD_11 = (100, 20, 140, 60)


@pytest.mark.parametrize(
    ("region", "change", "expected"),
    [
        (
            "annotation-0",
            {"label": "van", "box": OLD_10},
            {"label 10": ("reject", None, None), "box 10": ("reject", None, None)},
        ),
        (
            "annotation-0",
            {"label": "truck", "box": OLD_10},
            {"label 10": ("accept", "truck", None), "box 10": ("reject", None, None)},
        ),
        (
            "annotation-0",
            {"box": (22, 10, 90, 50)},
            {"label 10": ("accept", None, None), "box 10": ("accept", None, (22, 10, 90, 50))},
        ),
        ("annotation-1", {"box": OLD_11}, {"box 11": ("reject", None, None)}),
        ("annotation-1", {"label": "bus"}, {"box 11": ("accept", "bus", None)}),
        (
            "annotation-1",
            {"label": "bus", "box": OLD_11},
            {"box 11": ("accept", "bus", OLD_11)},
        ),
        (
            "annotation-3",
            {"box": (10, 50, 40, 90)},
            {"label 13": ("accept", None, (10, 50, 40, 90))},
        ),
        (
            "annotation-3",
            {"label": "van", "box": (10, 50, 40, 90)},
            {"label 13": ("accept", "van", (10, 50, 40, 90))},
        ),
        ("annotation-1", {"box": (100.3, 20, 149.8, 60)}, {}),  # a hand that trembles
        ("missing-0", {"label": "bus"}, {"missing a": ("accept", "bus", None)}),
        (
            "missing-0",
            {"box": (150, 60, 180, 90)},
            {"missing a": ("accept", None, (150, 60, 180, 90))},
        ),
        ("annotation-4", {"label": "van"}, {"spurious 14": ("accept", "van", None)}),
    ],
)
def test_what_is_changed_says_so(
    office: Office, region: str, change: dict[str, Any], expected: Said
) -> None:
    office.tool.change(region, **change)
    assert office.said() == SUGGESTED | expected


def without(*fixes: str) -> Said:
    return {fix: said for fix, said in SUGGESTED.items() if fix not in fixes}


@pytest.mark.parametrize(
    ("region", "expected", "beyond"),
    [
        ("annotation-4", SUGGESTED | {"spurious 14": ("accept", None, None)}, 0),
        ("annotation-5", SUGGESTED | {"double 15": ("accept", None, None)}, 0),
        ("missing-0", SUGGESTED | {"missing a": ("reject", None, None)}, 0),
        # the audit had a weaker suspicion that it is spurious: that holds now
        ("annotation-3", without("label 13") | {"spurious 13": ("accept", None, None)}, 0),
        # no fix removes it, so nothing can be said
        ("annotation-0", without("label 10", "box 10"), 1),
        ("annotation-2", SUGGESTED, 1),  # the crowd
    ],
)
def test_what_is_deleted_says_so(office: Office, region: str, expected: Said, beyond: int) -> None:
    office.tool.delete(region)
    assert office.said() == expected
    assert office.imported().num_beyond == beyond


def test_what_no_fix_is_about_is_counted(office: Office) -> None:
    office.tool.draw()
    office.tool.change("annotation-2", box=(0, 0, 100, 100))
    assert office.said() == SUGGESTED
    assert office.imported().num_beyond == 2


def test_labels_that_the_dataset_does_not_have_say_nothing(office: Office) -> None:
    office.tool.change("annotation-1", label="lorry")
    assert office.said() == without("box 11")
    assert office.imported().num_unreadable == 1


def test_the_same_file_twice_changes_nothing(office: Office) -> None:
    office.tool.change("annotation-0", label="truck", box=(22.126, 10, 90, 50))
    first = office.imported()
    before = (office.run / "verdicts.jsonl").read_bytes()
    again = office.imported()
    assert (office.run / "verdicts.jsonl").read_bytes() == before
    assert (len(again.verdicts), again.num_known) == (0, len(first.verdicts))
    append_verdicts(office.run, [Verdict("box 10", "reject")])  # on second thoughts, on the page
    assert len(office.imported().verdicts) == 0


def test_an_import_waits_for_no_other_writer_and_says_so(office: Office) -> None:
    with (
        sole_writer(office.run),
        pytest.raises(OutputError, match="another process is writing into this run"),
    ):
        office.imported()
    assert not (office.run / "verdicts.jsonl").exists()
    assert office.imported().verdicts


def test_what_stands_already_is_not_repeated(office: Office) -> None:
    append_verdicts(office.run, [Verdict("missing a", "accept", who="Kim")])
    imported = office.imported()
    assert imported.num_known == 1
    assert "missing a" not in [verdict.fix for verdict in imported.verdicts]


def test_boxes_at_the_border_are_as_suggested(tmp_path: Path) -> None:
    drawn = Drawn()
    drawn.boxes[4] = [-20, 50, 120, 70]  # annotation 14, cut at x = 0 and y = 100 in Label Studio
    run = audit_run(tmp_path, drawn)
    out = export(run, tmp_path / "out", "label-studio", most=99).out
    import_verdicts(run, submitted(out, tmp_path / "back.json"))
    assert {verdict.fix: verdict.answer for verdict in read_verdicts(run)}[
        "spurious 14"
    ] == "reject"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for to, name in (("label-studio", "project-1.json"), ("cvat", "out/annotations.xml")):
        run, out = exported_audit(tmp_path / to, to)
        TOOLS[to](out).exported()
        path = tmp_path / to / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert len(import_verdicts(run, path, out).verdicts) == len(SUGGESTED), to


def test_a_copy_that_people_made_of_a_box_is_another_box(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    tool = Cvat(out)
    image, box = tool._find("annotation-1")
    copy = ElementTree.SubElement(image, "box", box.attrib | {"label": "bus", "xtl": "5.00"})
    copy.extend(box)  # CVAT copies attributes, too
    imported = import_verdicts(run, tool.exported(), out)
    assert {
        verdict.fix: (verdict.answer, verdict.label, verdict.box) for verdict in imported.verdicts
    } == SUGGESTED
    assert imported.num_beyond == 1


def test_of_an_image_that_is_there_twice_the_last_one_counts(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    tool = LabelStudio(out)
    first = json.loads(tool.exported().read_text())
    tool.delete("missing-0")
    path = tool.exported()
    path.write_text(json.dumps(first + json.loads(path.read_text())))
    append_verdicts(run, [Verdict("missing a", "reject")])
    imported = import_verdicts(run, path)
    assert (len(imported.verdicts), imported.num_known) == (len(SUGGESTED) - 1, 1)
    assert latest_verdicts(read_verdicts(run))["missing a"].answer == "reject"


def test_odd_label_names_are_known_again(tmp_path: Path) -> None:
    for to, tool in TOOLS.items():
        folder = tmp_path / to
        drawn = Drawn(names=("v$n", " \n'\"<&>" + "x" * 80, "\u2603"))
        run, out = exported_audit(folder, to, drawn)
        import_verdicts(run, tool(out).exported(), out)
        answers = {
            verdict.fix: (verdict.answer, verdict.label, verdict.box)
            for verdict in read_verdicts(run)
        }
        assert answers == SUGGESTED, to


def test_label_studio_tells_who_and_when_and_needs_no_other_file(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    path = submitted(out, tmp_path / "back.json")
    shutil.rmtree(out)
    import_verdicts(run, path)
    first = read_verdicts(run)[0]
    assert (first.who, first.when) == ("kim@example.org", "2026-11-01T10:05:00.000000Z")


@pytest.mark.parametrize(("who", "name"), [(7, "7"), (None, None), ([], None), ({"id": 3}, "3")])
def test_people_are_known_by_what_there_is(tmp_path: Path, who: Any, name: str | None) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    import_verdicts(run, submitted(out, tmp_path / "back.json", completed_by=who))
    assert {verdict.who for verdict in read_verdicts(run)} == {name}


def test_unfinished_tasks_give_no_verdict(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    tasks = json.loads(submitted(out, tmp_path / "back.json").read_text())
    tasks[0]["annotations"] = []
    tasks[1]["annotations"][0]["was_cancelled"] = True
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    imported = import_verdicts(run, tmp_path / "back.json")
    assert (imported.num_images, imported.num_unfinished, imported.verdicts) == (0, 2, ())
    assert not (run / "verdicts.jsonl").exists()


def test_of_several_annotations_the_latest_counts(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "label-studio")
    tasks = json.loads(submitted(out, tmp_path / "back.json").read_text())
    for task in tasks:
        earlier = task["annotations"][0] | {"result": [], "updated_at": "2026-10-31T10:00:00Z"}
        task["annotations"].append(earlier)
    (tmp_path / "back.json").write_text(json.dumps(tasks))
    import_verdicts(run, tmp_path / "back.json")
    answers = {
        verdict.fix: (verdict.answer, verdict.label, verdict.box) for verdict in read_verdicts(run)
    }
    assert answers == SUGGESTED


def test_a_task_of_cvat_may_have_other_and_fewer_images(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    text = (out / "annotations.xml").read_text()
    (tmp_path / "back.xml").write_text(text.replace('name="b.png"', 'name="c.png"'))
    imported = import_verdicts(run, tmp_path / "back.xml", out / "export.json")
    assert (imported.num_images, imported.num_unfinished, imported.num_foreign) == (1, 1, 1)
    assert {verdict.fix for verdict in imported.verdicts} == {
        "label 10",
        "box 10",
        "box 11",
        "missing a",
    }


def test_the_manifest_is_found_beside_the_file(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    assert len(import_verdicts(run, out / "annotations.xml").verdicts) == 7


def test_the_manifest_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    run, out = exported_audit(tmp_path, "cvat")
    text = (out / "export.json").read_text()
    assert '"boxmend_export": 2' in text or '"boxmend_export":2' in text
    old = json.loads(text)
    del old["boxmend_export"], old["digest"]
    (out / "export.json").unlink()
    (out / "handover.json").write_text(json.dumps({"boxmend_handover": 1, **old}))
    assert len(import_verdicts(run, out / "annotations.xml").verdicts) == 7


def test_fixes_that_a_later_audit_does_not_have_are_counted(office: Office) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = office.run / "fixes.parquet"
    table = pq.read_table(path)
    kept = table.filter(pa.compute.not_equal(table["fix"], "missing a"))
    pq.write_table(kept.replace_schema_metadata(table.schema.metadata), path)
    assert office.said() == without("missing a")
    assert office.imported().num_stale == 1


def test_a_proposal_that_a_later_audit_changed_is_accepted_as_it_was_seen(office: Office) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = office.run / "fixes.parquet"
    table = pq.read_table(path)
    k = table.schema.get_field_index("new_x2")
    values = [170.0 if one == 150 else one for one in table["new_x2"].to_pylist()]
    changed = table.set_column(k, "new_x2", pa.array(values))
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
    assert office.said() == SUGGESTED | {"box 11": ("accept", None, (100, 20, 150, 60))}
