"""CVAT's XML and labels, read back by Python's own parsers."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from boxmend.errors import UsageError
from boxmend.repair.export import ExportOptions, export
from tests.repair.export.exported_runs import Drawn, drawn_run, exported, json_of

Element = ElementTree.Element


def root_in(folder: Path, drawn: Drawn | None = None) -> Element:
    return ElementTree.parse(exported(folder, "cvat", drawn) / "annotations.xml").getroot()


def attributes_of(box: Element) -> dict[str, str]:
    return {
        attribute.attrib["name"]: attribute.text or "" for attribute in box.findall("attribute")
    }


def boxes_of(root: Element) -> dict[str, Element]:
    return {attributes_of(box)["annotation_id"]: box for box in root.iter("box")}


def corners(box: Element) -> list[float]:
    return [float(box.attrib[side]) for side in ("xtl", "ytl", "xbr", "ybr")]


def test_boxes_are_corners_in_pixels(tmp_path: Path) -> None:
    boxes = boxes_of(root_in(tmp_path))
    assert corners(boxes["10"]) == [20, 10, 80, 50]
    assert corners(boxes["11"]) == [100, 20, 150, 60]  # where it moved to
    assert boxes["10"].attrib["label"] == "truck"
    assert boxes["13"].attrib["label"] == "van"
    assert boxes["10"].attrib["source"] == "auto"
    assert boxes["14"].attrib["source"] == "manual"


def test_attributes_say_what_it_was_and_why(tmp_path: Path) -> None:
    boxes = boxes_of(root_in(tmp_path))
    assert attributes_of(boxes["10"]) == {
        "status": "suspect",
        "annotation_id": "10",
        "score": "0.875",
        "doubt": "0.75",
        "old_label": "van",
        "old_box": "20 10 80 50",
        "reason": "label: truck instead of van in 1 of 1 visits",
        "region": "annotation-0",
    }
    assert attributes_of(boxes["11"])["reason"] == (
        "label: truck kept in 1 of 1 visits, doubt 0.00; "
        "box: moved, IoU 0.80 with the annotated one"
    )
    assert attributes_of(boxes["13"])["reason"] == "label: unsure of van in 1 of 1 visits"


def test_images_are_whole_and_others_are_marked(tmp_path: Path) -> None:
    boxes = boxes_of(root_in(tmp_path))
    statuses = {identity: attributes_of(box)["status"] for identity, box in boxes.items()}
    assert statuses == {
        "10": "suspect",
        "11": "suspect",
        "12": "ignored",
        "13": "suspect",
        "14": "other",
        "15": "other",
    }
    assert attributes_of(boxes["14"])["old_label"] == ""


def test_images_are_numbered_as_cvat_numbers_frames(tmp_path: Path) -> None:
    root = root_in(tmp_path, Drawn(file_names=("b/2.png", "a/10.png")))
    frames = [(image.attrib["id"], image.attrib["name"]) for image in root.findall("image")]
    assert frames == [("0", "a/10.png"), ("1", "b/2.png")]
    assert {(one.attrib["width"], one.attrib["height"]) for one in root.findall("image")} == {
        ("200", "100")
    }


def test_the_version_and_the_labels_are_reported(tmp_path: Path) -> None:
    root = root_in(tmp_path)
    assert root.findtext("version") == "1.1"
    assert root.findtext("meta/task/size") == "2"
    assert [name.text for name in root.findall("meta/task/labels/label/name")] == [
        *("van", "truck", "bus")
    ]


def test_every_attribute_that_is_written_is_declared(tmp_path: Path) -> None:
    out = exported(tmp_path, "cvat")
    labels = json_of(out / "labels.json")
    assert [label["name"] for label in labels] == ["van", "truck", "bus"]
    root = ElementTree.parse(out / "annotations.xml").getroot()
    used = {name for box in root.iter("box") for name in attributes_of(box)}
    for label in labels:
        declared = {attribute["name"]: attribute for attribute in label["attributes"]}
        assert set(declared) == used
        assert declared["status"]["values"] == ["suspect", "other", "ignored"]
        assert {one["input_type"] for name, one in declared.items() if name != "status"} == {"text"}


def test_parts_of_images_are_refused_as_cvat_would_lose_the_rest(tmp_path: Path) -> None:
    run = drawn_run(tmp_path)
    with pytest.raises(UsageError, match="CVAT replaces all annotations"):
        export(run, tmp_path / "out", "cvat", options=ExportOptions(whole_images=False))
    assert not (tmp_path / "out").exists()


def test_label_names_fit_into_what_cvat_takes(tmp_path: Path) -> None:
    long = "x" * 10_000
    out = exported(tmp_path, "cvat", Drawn(names=(f"{long}a", f"{long}b", " c ")))
    names = [label["name"] for label in json_of(out / "labels.json")]
    assert names == ["x" * 64, "x" * 60 + " (2)", "c"]
    boxes = boxes_of(ElementTree.parse(out / "annotations.xml").getroot())
    assert boxes["10"].attrib["label"] == names[1]
    assert attributes_of(boxes["10"])["old_label"] == "x" * 4096
    assert len(attributes_of(boxes["10"])["reason"]) < 200
