"""What `apply` writes: the mended fields, a note for each, a list for people, and nothing else."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmend
from boxmend import ApplySettings
from tests.fabricated_runs import (
    DISCARDED,
    KEPT,
    RELABELLED,
    UNJUDGED,
    Visit,
    bytes_of,
    drawn,
    finished_run,
    run_on,
)

VISITS = [
    Visit(0, 0, RELABELLED, 1, 0.75, (12, 10, 30, 50)),  # a van: a truck, its box moved
    Visit(0, 1, KEPT, None, 0.5, (40, 20, 60, 44)),  # a truck whose box moved
    Visit(0, 2, DISCARDED, 0, 0.25),  # a bus, perhaps
    Visit(0, 3, KEPT, None, 1.0),  # a van
]


def apply_run(tmp_path: Path, format: str, **choices: Any) -> tuple[Path, Path, dict[str, Any]]:
    """Return the folders of a dataset and of the mended one, and the summary."""
    address = drawn(tmp_path, format)
    run = finished_run(tmp_path / "run", address, VISITS)
    result = boxmend.apply(run, tmp_path / "out", ApplySettings(**choices))
    return Path(address), tmp_path / "out", result.to_json()


def read_changes(out: Path) -> list[dict[str, str]]:
    with (out / "changes.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def entries(path: Path) -> dict[int, dict[str, Any]]:
    return {
        annotation["id"]: annotation for annotation in json.loads(path.read_bytes())["annotations"]
    }


def test_coco_differs_in_the_mended_fields_and_a_note(tmp_path: Path) -> None:
    data, out, summary = apply_run(tmp_path, "coco")
    before, after = (entries(one / "instances_train.json") for one in (data, out))
    assert after[10] == before[10] | {
        "category_id": 2,
        "bbox": [12, 10, 18, 40],
        "area": 720,
        "boxmend": {
            "confidence": 0.75,
            "reason": "label: truck instead of van in 1 of 1 visits; box: mean of 1 visit",
        },
    }
    assert after[11] == before[11] | {
        "bbox": [40, 20, 20, 24],
        "area": 480,
        "boxmend": {"confidence": 0.5, "reason": "box: mean of 1 visit"},
    }
    assert (after[12], after[13]) == (before[12], before[13])
    assert summary == {
        "annotations": 4,
        "changed": 2,
        "labels_changed": 1,
        "boxes_moved": 2,
        "unsure": 1,
        "discarded": "keep",
        "mean_label_confidence": 0.75,
        "mean_iou_of_moved": 0.8667,  # of 18/20 and 20/24
    }


def test_voc_differs_in_the_mended_fields_and_a_note(tmp_path: Path) -> None:
    data, out, _ = apply_run(tmp_path, "voc")
    before = (data / "Annotations/a.xml").read_text()
    note = (
        "\t\t</bndbox>\n\t\t<boxmend>\n\t\t\t<confidence>{}</confidence>\n"
        "\t\t\t<reason>{}</reason>\n\t\t</boxmend>\n\t</object>"
    )
    first, second = before.split("</object>")[:2]
    for old, new in (
        ("<name>van<", "<name>truck<"),
        ("<xmin>11<", "<xmin>13<"),
        ("\t\t</bndbox>\n\t", note.removesuffix("</object>").format(0.75, MENDED)),
    ):
        assert old in first
        first = first.replace(old, new)
    for old, new in (
        ("<ymax>40<", "<ymax>44<"),
        ("\t\t</bndbox>\n\t", note.removesuffix("</object>").format(0.5, "box: mean of 1 visit")),
    ):
        assert old in second
        second = second.replace(old, new)
    rest = "</object>".join(before.split("</object>")[2:])
    assert (out / "Annotations/a.xml").read_text() == f"{first}</object>{second}</object>{rest}"
    assert (out / "Annotations/b.xml").read_bytes() == (data / "Annotations/b.xml").read_bytes()


MENDED = "label: truck instead of van in 1 of 1 visits; box: mean of 1 visit"


def test_yolo_differs_in_the_mended_fields_alone(tmp_path: Path) -> None:
    data, out, _ = apply_run(tmp_path, "yolo")
    before, after = bytes_of(data), bytes_of(out)
    assert before["labels/train/a.txt"] == b"0 0.2 0.3 0.2 0.4\n1 0.5 0.3 0.2 0.2\n"
    assert after["labels/train/a.txt"] == b"1 0.21 0.3 0.18 0.4\n1 0.5 0.32 0.2 0.24\n"
    same = before.keys() - {"labels/train/a.txt"}
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after.keys() - before.keys() == {"changes.csv", "patch.json"}


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_the_comparison_sees_the_changes_and_the_check_nothing_wrong(
    tmp_path: Path, format: str
) -> None:
    data, out, _ = apply_run(tmp_path, format)
    before, after = boxmend.load(data), boxmend.load(out)
    comparison = boxmend.compare(before, after)
    assert (comparison.label_changed, comparison.box_changed, comparison.same) == (1, 2, 2)
    assert (comparison.added, comparison.removed, comparison.flags_changed) == (0, 0, 0)
    assert after.annotation_ids.tolist() == before.annotation_ids.tolist()
    assert boxmend.check(before) == boxmend.check(after) == []


def test_the_input_is_not_touched(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    before = bytes_of(Path(address))
    run = finished_run(tmp_path / "run", address, VISITS)
    run_before = bytes_of(run)
    boxmend.apply(run, tmp_path / "out")
    assert bytes_of(Path(address)) == before
    assert bytes_of(run) == run_before


def test_the_list_tells_every_change(tmp_path: Path) -> None:
    _, out, _ = apply_run(tmp_path, "coco", discarded="mark")
    first, second, third = read_changes(out)
    assert first == {
        "annotation_id": "10",
        "image": "a.png",
        "old_label": "van",
        "new_label": "truck",
        "old_x1": "10",
        "old_y1": "10",
        "old_x2": "30",
        "old_y2": "50",
        "new_x1": "12",
        "new_y1": "10",
        "new_x2": "30",
        "new_y2": "50",
        "iou": "0.9",
        "confidence": "0.75",
        "reason": MENDED,
    }
    assert (second["annotation_id"], second["new_label"], second["iou"]) == (
        "11",
        "truck",
        "0.8333",
    )
    assert (third["annotation_id"], third["image"], third["iou"]) == ("12", "b.png", "1")
    assert third["reason"] == "marked: unsure of bus in 1 of 1 visits"


def test_only_labels_leaves_boxes_and_only_boxes_leaves_labels(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    before = entries(Path(address) / "instances_train.json")
    run = finished_run(tmp_path / "run", address, VISITS)
    for only, keys in (("labels", {"category_id"}), ("boxes", {"bbox", "area"})):
        out = tmp_path / only
        boxmend.apply(run, out, ApplySettings(only=only))
        after = entries(out / "instances_train.json")
        changed = {key for key in before[10] if after[10][key] != before[10][key]}
        assert changed == keys
        assert (after[11] == before[11]) == (only == "labels")


def test_changes_need_the_confidence_that_is_asked_for(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    run = finished_run(tmp_path / "run", address, VISITS)
    for least, labels, boxes in ((0.75, 1, 1), (0.5, 1, 2), (0.76, 0, 0)):
        result = boxmend.apply(run, tmp_path / f"{least}", ApplySettings(min_confidence=least))
        summary = result.to_json()
        assert (summary["labels_changed"], summary["boxes_moved"]) == (labels, boxes)


def test_an_unknown_confidence_is_enough_for_no_limit_but_zero(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    visits = [Visit(0, 0, RELABELLED, 1, box=(12, 10, 30, 50))]
    run = finished_run(tmp_path / "run", address, visits)
    assert boxmend.apply(run, tmp_path / "a").to_json()["changed"] == 1
    note = entries(tmp_path / "a/instances_train.json")[10]["boxmend"]
    assert note == {"confidence": None, "reason": MENDED}
    assert read_changes(tmp_path / "a")[0]["confidence"] == ""
    strict = boxmend.apply(run, tmp_path / "b", ApplySettings(min_confidence=0.01))
    assert strict.to_json()["changed"] == 0


@pytest.mark.parametrize("format", ["coco", "voc", "yolo"])
def test_discarded_annotations_can_be_dropped(tmp_path: Path, format: str) -> None:
    data, out, summary = apply_run(tmp_path, format, discarded="drop")
    assert (summary["changed"], summary["unsure"], summary["discarded"]) == (3, 1, "drop")
    before, after = boxmend.load(data), boxmend.load(out)
    assert len(after) == 3
    assert np.array_equal(after.boxes[2], before.boxes[3])
    row = read_changes(out)[2]
    assert row["reason"] == "dropped: unsure of bus in 1 of 1 visits"
    assert (row["old_label"], row["old_x2"]) == ("bus", "25")
    assert [row[key] for key in ("new_label", "new_x1", "new_y2", "iou")] == [""] * 4


def test_a_dropped_annotation_takes_its_moved_box_with_it(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    visits = [Visit(0, 0, DISCARDED, 1, 0.5, (12, 10, 30, 50))]
    run = finished_run(tmp_path / "run", address, visits)
    dropped = boxmend.apply(run, tmp_path / "a", ApplySettings(discarded="drop")).to_json()
    assert (dropped["changed"], dropped["boxes_moved"]) == (1, 0)
    kept = boxmend.apply(run, tmp_path / "b").to_json()
    assert (kept["changed"], kept["boxes_moved"], kept["labels_changed"]) == (1, 1, 0)


@pytest.mark.parametrize(("format", "flag"), [("coco", "is_crowd"), ("voc", "is_difficult")])
def test_discarded_annotations_can_be_marked(tmp_path: Path, format: str, flag: str) -> None:
    data, out, _ = apply_run(tmp_path, format, discarded="mark")
    before, after = boxmend.load(data), boxmend.load(out)
    assert getattr(after, flag).tolist() == [False, False, True, False]
    assert after.labels[2] == before.labels[2]
    assert np.array_equal(after.boxes[2:], before.boxes[2:])


@pytest.mark.parametrize(("format", "to"), [("coco", "voc"), ("voc", "coco"), ("coco", "yolo")])
def test_another_format_can_be_written(tmp_path: Path, format: str, to: str) -> None:
    address = drawn(tmp_path, format)
    run = finished_run(tmp_path / "run", address, VISITS)
    saved = boxmend.apply(run, tmp_path / "out", format=to).saved
    assert saved.format == to
    comparison = boxmend.compare(boxmend.load(address), boxmend.load(tmp_path / "out"))
    assert (comparison.label_changed, comparison.box_changed, comparison.same) == (1, 2, 2)
    if to == "coco":
        first = entries(tmp_path / "out/instances_train.json")[1]
        assert first["boxmend"] == {"confidence": 0.75, "reason": MENDED}
    if to == "voc":
        assert (tmp_path / "out/Annotations/a.xml").read_text().count("<boxmend>") == 2


def test_applying_again_replaces_the_note(tmp_path: Path) -> None:
    _, out, _ = apply_run(tmp_path, "coco")
    again = [Visit(0, 0, RELABELLED, 2, 0.5)]
    run = finished_run(tmp_path / "run-2", str(out), again)
    boxmend.apply(run, tmp_path / "out-2")
    before, after = (entries(tmp_path / one / "instances_train.json") for one in ("out", "out-2"))
    assert after[10]["boxmend"] == {
        "confidence": 0.5,
        "reason": "label: bus instead of truck in 1 of 1 visits",
    }
    assert after[10]["category_id"] == 3
    assert after[11] == before[11]


def test_a_run_that_judged_nothing_gives_the_same_bytes(tmp_path: Path) -> None:
    for format in ("coco", "voc"):
        address = drawn(tmp_path / format, format)
        visits = [Visit(0, row, UNJUDGED) for row in range(4)]
        run = finished_run(tmp_path / format / "run", address, visits)
        out = tmp_path / format / "out"
        assert boxmend.apply(run, out).to_json()["changed"] == 0
        after = bytes_of(out)
        assert after.pop("changes.csv").count(b"\n") == 1
        assert json.loads(after.pop("patch.json"))["files"] == {}
        assert after == bytes_of(Path(address))
        assert boxmend.revert(out) == []
        assert bytes_of(out) == bytes_of(Path(address))


def test_an_empty_ledger_changes_nothing(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run", drawn(tmp_path, "coco"), [])
    assert boxmend.apply(run, tmp_path / "out").to_json()["changed"] == 0


def test_warm_up_is_known_from_the_settings(tmp_path: Path) -> None:
    address = drawn(tmp_path, "coco")
    visits = [Visit(0, 0, RELABELLED, 1, 1.0), Visit(1, 1, RELABELLED, 2, 1.0)]
    run = finished_run(tmp_path / "run", address, visits, warm_up=0.5)  # steps 0 to 9 of 20
    boxmend.apply(run, tmp_path / "out")
    assert boxmend.load(tmp_path / "out").labels.tolist() == [0, 2, 2, 0]


def test_several_addresses_are_mended_together(tmp_path: Path) -> None:
    first, second = drawn(tmp_path / "x", "voc"), drawn(tmp_path / "y", "voc")
    visits = [Visit(0, 0, RELABELLED, 1, 1.0), Visit(0, 4, RELABELLED, 0, 1.0)]  # by name
    run = finished_run(tmp_path / "run", [first, second], visits)
    boxmend.apply(run, tmp_path / "out")
    mended = [boxmend.load(tmp_path / "out" / name) for name in ("data", "data-2")]
    names = [[one.label_names[label] for label in one.labels] for one in mended]
    assert names == [["truck", "truck", "bus", "van"], ["bus", "truck", "bus", "van"]]


def test_names_do_not_become_formulas(tmp_path: Path) -> None:
    names = ("=1+1", "@SUM(A1)", "-2")
    address = drawn(tmp_path, "yolo", names=names)
    visits = [Visit(0, 0, RELABELLED, 1, 1.0), Visit(0, 1, RELABELLED, 2, 1.0)]
    run = finished_run(tmp_path / "run", address, visits)
    boxmend.apply(run, tmp_path / "out")
    first, second = read_changes(tmp_path / "out")
    assert (first["old_label"], first["new_label"]) == ("'=1+1", "'@SUM(A1)")
    assert second["new_label"] == "'-2"
    assert boxmend.load(tmp_path / "out").label_names == names


def test_a_dataset_in_memory_is_mended_by_giving_it_again(tmp_path: Path) -> None:
    dataset = boxmend.load(drawn(tmp_path, "coco"))
    dataset.labels[3] = 1  # no file says so
    dataset.notes = {11: {"said": "before"}}
    run = run_on(dataset, tmp_path / "run", [], [])
    boxmend.apply(run, tmp_path / "out", data=dataset)
    assert boxmend.load(tmp_path / "out").labels.tolist() == [0, 1, 2, 1]
    assert entries(tmp_path / "out/instances_train.json")[11]["boxmend"] == {"said": "before"}


@pytest.mark.parametrize(("relabelled", "doubtful"), [(2, False), (3, True)])
def test_more_changed_labels_than_kept_ones_are_doubtful(
    relabelled: int, doubtful: bool, tmp_path: Path
) -> None:
    address = drawn(tmp_path / "data", "coco")  # four annotations with the labels 0, 1, 2, 0
    visits = [Visit(0, row, RELABELLED, (row + 1) % 3) for row in range(relabelled)]
    visits += [Visit(0, row) for row in range(relabelled, 4)]
    run = finished_run(tmp_path / "run", address, visits)
    assert boxmend.apply(run, tmp_path / "out").is_doubtful is doubtful
