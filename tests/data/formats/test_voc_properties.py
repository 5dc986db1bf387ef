"""Patched VOC documents of any layout differ only in the changed values."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from boxmend.data.formats import voc
from boxmend.data.formats.documents import format_number
from boxmend.data.formats.voc.scanning import escape_xml
from tests.data.formats.voc_folders import read, read_back, save_to_memory, voc_folder


@dataclass
class Leaf:
    """A value of a document with the text around it, which changes must keep."""

    before: str
    text: str
    after: str


@dataclass
class Layout:
    codec: str
    pieces: list[str | Leaf]
    objects: list[list[Leaf]]  # name, xmin, ymin, xmax, ymax
    names: list[str]
    boxes: list[list[float]]

    def encoded(self) -> bytes:
        texts = [piece if isinstance(piece, str) else piece.text for piece in self.pieces]
        return "".join(texts).encode(self.codec, "xmlcharrefreplace")


NAMES = st.text("ab<>&;'\" \xe9\u4e2d", min_size=1, max_size=6).map(str.strip).filter(bool)
NOISE = st.sampled_from(["", "", " ", "\n\t", "\r\n", "<!-- <x> 7 -->", "<?pi 3?>", " <!---->\n"])
COORDINATES = st.integers(-50, 9_999).map(lambda value: value / 4)
OTHERS = st.sampled_from(
    [
        "<pose>Left</pose>",
        "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>",
        "<difficult>0</difficult>",
        "<custom a='>'><name>no</name></custom>",
        "<!-- </object> -->",
        "<truncated/>",
    ]
)
CODECS = {
    "utf-8": "",
    "latin-1": "<?xml version='1.0' encoding='ISO-8859-1'?>\n",
    "utf-16-le": "\ufeff<?xml version='1.0' encoding='utf-16'?>\r\n",
    "gb2312": '<?xml version="1.0" encoding="GB2312"?>',
}


def spellings(name: str, codec: str) -> list[str]:
    """Return the ways to write a name; CDATA only if the encoding has all characters."""
    is_complete = name.encode(codec, "replace").decode(codec) == name
    return [escape_xml(name), f"<![CDATA[{name}]]>" if is_complete else escape_xml(name)]


def number_spellings(value: float) -> list[str]:
    text = format_number(value)
    return [text, f"{value:.3f}", f"+{text}".replace("+-", "-"), f"&#{ord(text[0])};{text[1:]}"]


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    codec = draw(st.sampled_from(list(CODECS)))
    gap = draw(st.sampled_from(["", "\n\t", "\r\n  ", "\n"]))
    layout = Layout(codec, [CODECS[codec], "<annotation verified='yes'>"], [], [], [])
    for _ in range(draw(st.integers(0, 3))):
        name = draw(NAMES)
        box = [draw(COORDINATES) for _ in range(4)]
        texts = [draw(st.sampled_from(spellings(name, codec)))]
        texts += [draw(st.sampled_from(number_spellings(value))) for value in box]
        leaves = [Leaf(draw(NOISE), text, draw(NOISE)) for text in texts]
        layout.objects.append(leaves)
        layout.names.append(name)
        layout.boxes.append([box[0] - 1, box[1] - 1, box[2], box[3]])
        layout.pieces += [gap, "<object>", *_object(draw, gap, leaves), "</object>", draw(NOISE)]
    layout.pieces += [gap[:1], "</annotation>", draw(NOISE)]
    return layout


def _object(draw: st.DrawFn, gap: str, leaves: list[Leaf]) -> list[str | Leaf]:
    def element(tag: str, leaf: Leaf) -> list[str | Leaf]:
        start = draw(st.sampled_from([f"<{tag}>", f"<{tag} >", f'<{tag} x="/>">']))
        return [start, leaf.before, leaf, leaf.after, f"</{tag} >"]

    sides = [
        element(tag, leaf)
        for tag, leaf in zip(("xmin", "ymin", "xmax", "ymax"), leaves[1:], strict=True)
    ]
    corners: list[str | Leaf] = [piece for side in draw(st.permutations(sides)) for piece in side]
    parts: list[list[str | Leaf]] = [
        element("name", leaves[0]),
        ["<bndbox>", *corners, "</bndbox>"],
    ]
    parts += [[other] for other in draw(st.lists(OTHERS, max_size=2, unique=True))]
    return [piece for part in draw(st.permutations(parts)) for piece in (gap, *part)]


@given(layouts(), st.data())
@settings(max_examples=150, deadline=None)
def test_k_changed_annotations_change_their_own_values_and_no_other_byte(
    layout: Layout, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = voc_folder(Path(folder) / "old", {"1": layout.encoded()}, {"train": "1"})
        dataset = read(root)
        assert dataset.findings == ()
        assert [dataset.label_names[label] for label in dataset.labels] == layout.names
        assert dataset.boxes.tolist() == layout.boxes
        assert save_to_memory(dataset)["Annotations/1.xml"] == layout.encoded()

        dataset.label_names = (*dataset.label_names, "new & \u4e2d")
        for row, leaves in enumerate(layout.objects):
            if data.draw(st.booleans()):
                dataset.labels[row] = len(dataset.label_names) - 1
                leaves[0].text = escape_xml("new & \u4e2d")
            for side in range(4):
                if data.draw(st.booleans()):
                    dataset.boxes[row, side] += 0.5
                    new = dataset.boxes[row, side] + (side < 2)
                    leaves[1 + side].text = format_number(float(new))
        assert save_to_memory(dataset)["Annotations/1.xml"] == layout.encoded()

        again = read_back(dataset, Path(folder) / "new")
        assert_array_equal(again.boxes, dataset.boxes)
        names = [dataset.label_names[label] for label in dataset.labels]
        assert [again.label_names[label] for label in again.labels] == names


@given(layouts(), st.data())
@settings(max_examples=75, deadline=None)
def test_only_removed_and_added_annotations_change_the_document(
    layout: Layout, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = voc_folder(Path(folder) / "old", {"1": layout.encoded()}, {"train": "1"})
        dataset = read(root)
        keep = np.array([data.draw(st.booleans()) for _ in layout.objects], np.bool_)
        added = data.draw(st.integers(0, 2))
        dataset.label_names = (*dataset.label_names, "new & \u4e2d")
        changed = dataset.take(keep).add(
            np.zeros(added, np.int64),
            np.full(added, len(dataset.label_names) - 1),
            np.tile([1.5, 2, 30, 40], (added, 1)),
        )
        again = read_back(changed, Path(folder) / "new")
        assert again.findings == ()
        assert_array_equal(again.boxes, changed.boxes)
        assert again.annotation_ids.tolist() == voc.assign_annotation_ids(changed).tolist()
        names = [changed.label_names[label] for label in changed.labels]
        assert [again.label_names[label] for label in again.labels] == names
        old, new = dataset.sources[0].extras(), again.sources[0].extras()
        if keep.all():
            assert new == old
