"""What of an audit goes to people: chosen, joined by annotation, in every tool's words."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.errors import DataError
from boxmend.repair.export import TARGETS, ExportOptions, export
from tests.repair.export.exported_audits import audit_run, exported_audit
from tests.repair.export.exported_runs import drawn_run, json_of


def suspects(out: Path) -> dict[str, Any]:
    """Records of the manifest by the ids of their fixes."""
    images = json_of(out / "export.json")["images"]
    listed = [one for image in images for one in image["annotations"]]
    return {"+".join(one["fixes"]): one for one in listed if "fixes" in one}


def test_an_annotation_is_exported_once_as_it_should_be(tmp_path: Path) -> None:
    _, out = exported_audit(tmp_path, "coco")
    suspicion = suspects(out)
    assert set(suspicion) == {
        *("label 10+box 10", "box 11", "missing a", "label 13", "spurious 14", "double 15"),
    }
    assert suspicion["label 10+box 10"] == {
        "region": "annotation-0",
        "annotation_id": 10,
        "status": "suspect",
        "old_label": "van",
        "old_box": [20, 10, 80, 50],
        "fixes": ["label 10", "box 10"],
        "kinds": ["wrong label", "bad box"],
        "label": "bus",
        "box": [20, 10, 100, 50],
        "score": 0.5,
        "doubt": 0.875,
        "suspicion": 0.875,
        "reason": "wrong label: why label 10; bad box: why box 10",
    }
    missing, spurious = suspicion["missing a"], suspicion["spurious 14"]
    assert (missing["annotation_id"], missing["old_label"], missing["old_box"]) == (None,) * 3
    assert (missing["label"], missing["box"]) == ("van", [150, 60, 190, 90])
    assert (spurious["label"], spurious["box"]) == ("truck", spurious["old_box"])
    assert spurious["reason"] == "spurious, to be removed: why spurious 14"


def test_what_is_left_for_review_is_the_default(tmp_path: Path) -> None:
    run = audit_run(tmp_path)  # 0.97 is precise enough, with 0.9 the mean is below 0.95
    exported = export(run, tmp_path / "left", "coco")
    assert exported.num_improbable == 1  # "spurious 13", of a probability of 0.25
    left = suspects(exported.out)
    assert set(left) == {
        *("label 10+box 10", "box 11", "missing a", "label 13", "spurious 14"),
    }
    options = ExportOptions(changes=True)
    assert set(suspects(export(run, tmp_path / "made", "coco", options=options).out)) == {
        "double 15",
    }
    most_likely = export(run, tmp_path / "most", "coco", most=3)
    assert most_likely.num_improbable == 0  # it is what was asked for
    most = suspects(most_likely.out)
    assert set(most) == {"double 15", "spurious 14", "label 10"}


def test_what_people_judged_is_not_exported_again(tmp_path: Path) -> None:
    run = audit_run(tmp_path)
    append_verdicts(run, [Verdict("label 10", "reject"), Verdict("double 15", "accept")])
    suspicion = suspects(export(run, tmp_path / "out", "coco", most=99).out)
    assert "label 10" not in "".join(suspicion)
    assert "double 15" not in suspicion
    assert suspicion["box 10"]["label"] == "van"  # without the label that was rejected
    append_verdicts(run, [Verdict(one, "reject") for key in suspicion for one in key.split("+")])
    append_verdicts(run, [Verdict("spurious 13", "reject")])
    with pytest.raises(DataError, match="nothing to export: no fix is left for review"):
        export(run, tmp_path / "none", "coco", most=99)


def test_doubts_not_worth_reviewing_are_reported(tmp_path: Path) -> None:
    run = audit_run(tmp_path)
    judged = ["label 10", "box 10", "box 11", "missing a", "label 13", "spurious 14"]
    append_verdicts(run, [Verdict(one, "reject", mode="pattern") for one in judged])
    with pytest.raises(DataError, match="none of the 1 fixes left for review"):
        export(run, tmp_path / "none", "coco")


def test_missing_ones_get_ids_that_are_not_in_use(tmp_path: Path) -> None:
    _, out = exported_audit(tmp_path, "coco")
    entries = {
        entry["id"]: entry for entry in json_of(out / "instances_suggested.json")["annotations"]
    }
    assert sorted(entries) == [10, 11, 12, 13, 14, 15, 16]
    assert entries[16]["bbox"] == [150, 60, 40, 30]
    assert entries[16]["boxmend"]["fixes"] == ["missing a"]
    assert len(boxmend.load(str(out / "instances_suggested.json"))) == 7


def test_label_studio_has_a_region_for_each(tmp_path: Path) -> None:
    _, out = exported_audit(tmp_path, "label-studio")
    task = next(one for one in json_of(out / "tasks.json") if one["data"]["file_name"] == "a.png")
    listed = {one["id"]: one for one in task["predictions"][0]["result"]}
    assert set(listed) == {"annotation-0", "annotation-1", "annotation-2", "missing-0"}
    value = listed["missing-0"]["value"]  # of 200 x 100 pixels
    assert [value[side] for side in ("x", "y", "width", "height")] == [75, 60, 20, 30]
    assert value["rectanglelabels"] == ["van"]
    assert task["data"]["boxmend_data"] == json_of(out / "export.json")["data_sha256"]


def test_cvat_has_a_box_for_each(tmp_path: Path) -> None:
    _, out = exported_audit(tmp_path, "cvat")
    boxes = ElementTree.parse(out / "annotations.xml").getroot().findall("image/box")
    attributes = [{one.get("name"): one.text or "" for one in box} for box in boxes]
    by_region = {attribute["region"]: attribute for attribute in attributes}
    assert set(by_region) == {f"annotation-{row}" for row in range(6)} | {"missing-0"}
    assert by_region["missing-0"]["annotation_id"] == ""
    assert by_region["missing-0"]["old_label"] == ""
    assert by_region["annotation-0"]["old_label"] == "van"


def test_fiftyone_has_missing_ones_among_the_mended_alone(tmp_path: Path) -> None:
    _, out = exported_audit(tmp_path, "fiftyone")
    first, _ = json_of(out / "samples.json")["samples"]
    assert len(first["annotated"]["detections"]) == 3
    mended = first["mended"]["detections"]
    assert [one["kinds"] for one in mended] == [
        *(["wrong label", "bad box"], ["bad box"], ["missing"]),
    ]
    assert "old_label" not in mended[2]


@pytest.mark.parametrize("to", TARGETS)
def test_counts_are_of_boxes(tmp_path: Path, to: str) -> None:
    run = audit_run(tmp_path)
    counts = export(run, tmp_path / "out", to, most=99).to_json()
    assert (counts["images"], counts["suspects"], counts["others"]) == (2, 6, 1)


def test_a_training_run_that_was_audited_hands_over_its_fixes(tmp_path: Path) -> None:
    run = drawn_run(tmp_path / "trained")
    assert "fixes" not in str(json_of(export(run, tmp_path / "a", "coco").out / "export.json"))
    audit = audit_run(tmp_path / "audit")
    (run / "fixes.parquet").write_bytes((audit / "fixes.parquet").read_bytes())
    assert "missing a" in suspects(export(run, tmp_path / "b", "coco").out)
