"""The converter of the relabelled blood cells, on two small datasets made by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests import ROOT

TOOL = ROOT / "tools" / "relabelled_cells.py"
CORNERS = "<xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax>"
OBJECT = "<object><name>{}</name><bndbox>" + CORNERS + "</bndbox></object>"
SIZE = "<size><width>64</width><height>48</height></size>"
XML = "<annotation><filename>{}.jpg</filename>" + SIZE + "{}</annotation>"


def run(*arguments: Path | str) -> "subprocess.CompletedProcess[str]":
    """Run the tool in a process of its own."""
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def repositories(tmp_path: Path) -> tuple[Path, Path]:
    """Write BCCD with photographs a and b, and TXL-PBC with b under another name."""
    bccd, txl = tmp_path / "bccd", tmp_path / "txl"
    voc = bccd / "BCCD"
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (voc / folder).mkdir(parents=True)
    for name, shade in (("a", 40), ("b", 200)):
        Image.new("L", (64, 48), shade).save(voc / "JPEGImages" / f"{name}.jpg")
        cell = OBJECT.format("RBC", 11, 6, 30, 25) + OBJECT.format("WBC", 1, 1, 8, 8)
        (voc / "Annotations" / f"{name}.xml").write_text(XML.format(name, cell))
    (voc / "ImageSets/Main/trainval.txt").write_text("a\nb\n")
    for split in ("train", "val", "test"):
        (txl / "TXL_PBC/images" / split).mkdir(parents=True)
        (txl / "TXL_PBC/labels" / split).mkdir(parents=True)
    places = "".join(f"{split}: images/{split}\n" for split in ("train", "val", "test"))
    (txl / "TXL_PBC/data.yaml").write_text(f"{places}names: [WBC, RBC]\n")
    renamed = (voc / "JPEGImages/b.jpg").read_bytes()
    (txl / "TXL_PBC/images/val/0ff1.jpg").write_bytes(renamed)
    lines = "1 0.5 0.5 0.25 0.5\n0 0.125 0.125 0.25 0.25\n1 0.875 0.75 0.125 0.25\n"
    (txl / "TXL_PBC/labels/val/0ff1.txt").write_text(lines)
    return bccd, txl


def test_photographs_are_paired_by_their_bytes(
    repositories: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "cells"
    ended = run(*repositories, "--out", out)
    assert ended.returncode == 0, ended.stderr
    names = ("all", "original", "relabelled")
    read = {name: json.loads((out / f"instances_{name}.json").read_text()) for name in names}
    listed = {name: [image["file_name"] for image in read[name]["images"]] for name in names}
    assert listed == {"all": ["a.jpg", "b.jpg"], "original": ["b.jpg"], "relabelled": ["b.jpg"]}
    assert {image["id"] for image in read["original"]["images"]} == {2}  # the same as in "all"
    labels = {category["id"]: category["name"] for category in read["relabelled"]["categories"]}
    boxes = [(labels[e["category_id"]], e["bbox"]) for e in read["relabelled"]["annotations"]]
    assert boxes == [("RBC", [24, 12, 16, 24]), ("WBC", [0, 0, 16, 12]), ("RBC", [52, 30, 8, 12])]
    assert [annotation["bbox"] for annotation in read["original"]["annotations"]] == [
        [10, 5, 20, 20],
        [0, 0, 8, 8],
    ]
    assert sorted(path.name for path in (out / "images").iterdir()) == ["a.jpg", "b.jpg"]


def test_wrong_folders_are_named(repositories: tuple[Path, Path], tmp_path: Path) -> None:
    bccd, txl = repositories
    (txl / "TXL_PBC/images/val/0ff1.jpg").write_bytes((bccd / "BCCD/JPEGImages/a.jpg").read_bytes())
    assert run(bccd, txl, "--out", tmp_path / "first").returncode == 0
    ended = run(bccd, txl, "--out", tmp_path / "first")
    assert (ended.returncode, "exists already" in ended.stderr) == (3, True)
    Image.new("L", (64, 48), 90).save(txl / "TXL_PBC/images/val/0ff1.jpg")
    ended = run(bccd, txl, "--out", tmp_path / "second")
    assert (ended.returncode, "no photograph in common" in ended.stderr) == (3, True)
