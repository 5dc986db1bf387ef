"""Names that are out to break a parser, a path or a page."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import Dataset, as_ids
from boxmend.data.formats import load
from boxmend.errors import DataError, OutputError
from boxmend.repair.export import TARGETS, ExportOptions, export
from tests.fabricated_runs import run_on
from tests.repair.export.exported_runs import VISITS, Drawn, json_of

HOSTILE = [
    "<script>alert(1)</script>",
    "]]><!--",
    "&amp;&#0;",
    "\"'><Label value='x'/>",
    "\x00\x01\x1f\x7f",
    "line\nend\ttab\r",
    "\ud800 half",
    "\ufffe\uffff",
    "../../etc/passwd",
    "=HYPERLINK(1)",
    "$image",
    " ",
    "",
    "n" * 10_000,
    "\u202egnp.exe",
    "{{7*7}}",
]


def hostile_dataset(folder: Path, names: list[str], files: list[str] | None = None) -> Dataset:
    """The dataset made by hand with other names, in memory: no file could hold them all."""
    folder.mkdir(exist_ok=True)
    dataset = load(Drawn().write(folder))
    dataset.label_names = tuple(names)
    if files:
        dataset.images.file_names[:] = files
        dataset.images.paths[:] = [str(folder / "images" / name) for name in files]
    dataset.sources[0].format = "drawn"  # so that new documents are made
    return dataset


def hand_over(folder: Path, dataset: Dataset, to: str, **options: Any) -> Path:
    run = run_on(dataset, folder / "run", ["memory"], VISITS)
    return export(run, folder / "out", to, data=dataset, options=ExportOptions(**options)).out


def check(out: Path, to: str, num_labels: int) -> None:
    """Everything parses, names agree among the files, and no name is there twice."""
    for path in out.glob("*.json"):
        json.loads(path.read_text("utf-8"))
    written = [label["written_as"] for label in json_of(out / "export.json")["labels"]]
    assert len(set(written)) == len(written) == num_labels
    if to == "label-studio":
        root = ElementTree.parse(out / "config.xml").getroot()
        assert [element.tag for element in root.iter()] == [
            *("View", "Image", "RectangleLabels"),
            *["Label"] * num_labels,
        ]
        assert [label.attrib["value"] for label in root.iter("Label")] == written
        for task in json_of(out / "tasks.json"):
            for region in task["predictions"][0]["result"]:
                assert set(region["value"]["rectanglelabels"]) <= set(written)
    if to == "cvat":
        root = ElementTree.parse(out / "annotations.xml").getroot()
        assert [name.text for name in root.findall("meta/task/labels/label/name")] == written
        assert [one["name"] for one in json_of(out / "labels.json")] == written
        assert {box.attrib["label"] for box in root.iter("box")} <= set(written)
        assert sum(1 for _ in root.iter("box")) == 6


@pytest.mark.parametrize("to", TARGETS)
def test_hostile_label_names_break_nothing(tmp_path: Path, to: str) -> None:
    names = list(dict.fromkeys(HOSTILE))
    dataset = hostile_dataset(tmp_path, names)
    out = hand_over(tmp_path, dataset, to)
    check(out, to, len(names))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("images", "instances_train.json", "out", "run")
    ]


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize(
    "file_name",
    ["<&\"'>.png", "a\x01b.png", "\udc80.png", "#?%20 .png", "n" * 5_000 + ".png", "a/b\nc.png"],
    ids=["markup", "control", "bytes", "address", "long", "line"],
)
def test_hostile_file_names_break_nothing(tmp_path: Path, to: str, file_name: str) -> None:
    dataset = hostile_dataset(tmp_path, ["a", "b", "c"], [file_name, "other.png"])
    out = hand_over(tmp_path, dataset, to)
    check(out, to, 3)
    assert json_of(out / "export.json")["images"][0]["file_name"].endswith(".png")


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", ["../outside.png", "a/../../b.png"])
def test_no_image_is_placed_outside_of_the_output(tmp_path: Path, to: str, name: str) -> None:
    dataset = hostile_dataset(tmp_path / "data", ["a", "b", "c"])
    dataset.images.file_names[0] = name  # the file itself is there
    with pytest.raises(OutputError, match="outside of the output folder"):
        hand_over(tmp_path, dataset, to, images_as="copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


@pytest.mark.parametrize("to", TARGETS)
def test_hostile_annotation_ids_come_through_as_the_ledger_spells_them(
    tmp_path: Path, to: str
) -> None:
    dataset = hostile_dataset(tmp_path, ["a", "b", "c"])
    ids = ["<b>", "\ud800", "x" * 3_000, "\"'&", "#1", "a\nb"]
    dataset.annotation_ids = as_ids(ids)
    out = hand_over(tmp_path, dataset, to)
    images = json_of(out / "export.json")["images"]
    exported_ids = [one["annotation_id"] for image in images for one in image["annotations"]]
    assert exported_ids == ["<b>", "\\ud800", "x" * 3_000, "\"'&", "#1", "a\nb"]
    check(out, to, 3)


@settings(deadline=None, max_examples=25)
@given(names=st.lists(st.text(st.characters(), max_size=6), min_size=3, max_size=3, unique=True))
def test_any_label_names_give_files_that_parse(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    dataset = hostile_dataset(folder, names)
    run = run_on(dataset, folder / "run", ["memory"], VISITS)
    for to in ("label-studio", "cvat"):
        check(export(run, folder / to, to, data=dataset).out, to, 3)


def test_a_box_that_is_no_number_is_refused_by_id(tmp_path: Path) -> None:
    dataset = hostile_dataset(tmp_path, ["a", "b", "c"])
    dataset.boxes[5] = np.nan
    with pytest.raises(DataError, match="annotation 15: has no valid label, image or box"):
        hand_over(tmp_path, dataset, "coco")
