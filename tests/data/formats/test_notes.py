"""Notes of annotations are written where the format has a place; all else stays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import Dataset, Note
from boxmend.data.formats import load, yolo
from boxmend.data.joining import join
from boxmend.errors import BoxmendError
from tests.data.formats.coco_documents import (
    box,
    document,
    documents,
    entry_texts,
    read_bytes,
    save_to_bytes,
)
from tests.data.formats.voc_folders import (
    CAT,
    DOG,
    PLAIN,
    image,
    objects,
    read,
    save_to_memory,
    voc_folder,
)

NOTE: Note = {"confidence": 0.5, "reason": "because of <that>"}
TEXT = '{"confidence": 0.5, "reason": "because of <that>"}'


def add_notes(dataset: Dataset, *rows: int, note: Note = NOTE) -> Dataset:
    ids = dataset.annotation_ids.tolist()
    return replace(dataset, notes={ids[row]: note for row in rows})


def test_a_note_becomes_a_key_at_the_end() -> None:
    data = document(box(), box(id=6))
    after = save_to_bytes(add_notes(read_bytes(data), 1))
    before = json.dumps(box(id=6))
    assert after == data.replace(before.encode(), f'{before[:-1]}, "boxmend": {TEXT}}}'.encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, dict(NOTE)),
        ({"stale": ["segmentation"], "mine": 1}, {"stale": ["segmentation"], "mine": 1, **NOTE}),
        ({"reason": "old", "z": 2}, {"reason": NOTE["reason"], "z": 2, "confidence": 0.5}),
        ("text", dict(NOTE)),
        ([1], dict(NOTE)),
        (None, dict(NOTE)),
    ],
)
def test_a_note_is_added_to_the_value_of_its_key(old: Any, new: Any) -> None:
    after = save_to_bytes(add_notes(read_bytes(document(box(boxmend=old))), 0))
    entry = json.loads(after)["annotations"][0]
    assert entry == box(boxmend=new)
    assert list(entry["boxmend"]) == list(new)


def test_a_moved_box_with_an_outline_is_flagged_and_noted() -> None:
    dataset = add_notes(read_bytes(document(box(segmentation=[[1, 2, 3, 4, 5, 6]]))), 0)
    dataset.boxes[0, 0] += 1
    entry = json.loads(save_to_bytes(dataset))["annotations"][0]
    assert entry["boxmend"] == {"stale": ["segmentation"], **NOTE}


@settings(deadline=None)
@given(data=documents(), draw=st.data())
def test_whatever_a_document_looks_like_only_noted_entries_differ(
    data: bytes, draw: st.DataObject
) -> None:
    dataset = read_bytes(data)
    n = len(dataset)
    rows = draw.draw(st.sets(st.integers(0, n - 1)) if n else st.just(set[int]()))
    try:
        after = save_to_bytes(add_notes(dataset, *rows))
    except BoxmendError:
        return  # an entry that is malformed cannot be changed, and an error says so
    if not rows:
        assert after == data
        return
    old, between = entry_texts(data, "annotations")
    new, kept = entry_texts(after, "annotations")
    assert between == kept
    ids = dataset.annotation_ids.tolist()
    named = {ids[row] for row in rows}
    for k, (before, now) in enumerate(zip(old, new, strict=True)):
        assert (before == now) == (ids[k] not in named)
        if before != now:
            assert json.loads(now)["boxmend"].items() >= NOTE.items()


def test_new_and_converted_annotations_have_their_notes(tmp_path: Path) -> None:
    dataset = read_bytes(document(box()))
    added = dataset.add(np.array([0]), np.array([0]), np.array([[1.0, 2, 3, 4]]))
    entries = json.loads(save_to_bytes(add_notes(added, 1)))["annotations"]
    assert "boxmend" not in entries[0]
    assert entries[1]["boxmend"] == NOTE
    drawn = add_notes(read(voc_folder(tmp_path / "voc", {"a": objects(DOG, CAT)})), 1)
    drawn.save(tmp_path / "coco", format="coco", images_as="none")
    (file,) = (tmp_path / "coco").glob("*.json")
    entries = json.loads(file.read_bytes())["annotations"]
    assert [entry.get("boxmend") for entry in entries] == [None, NOTE]


VOC_NOTE = "<confidence>0.5</confidence><reason>because of &lt;that&gt;</reason>"


def test_a_note_becomes_an_element_in_the_style_of_the_file(tmp_path: Path) -> None:
    dataset = add_notes(read(voc_folder(tmp_path, {"000001": PLAIN})), 1)
    lines = (
        "\t\t<boxmend>\n\t\t\t<confidence>0.5</confidence>\n"
        "\t\t\t<reason>because of &lt;that&gt;</reason>\n\t\t</boxmend>\n\t</object>\n</annotation>"
    )
    expected = PLAIN.replace("\t</object>\n</annotation>", lines)
    assert save_to_memory(dataset)["Annotations/000001.xml"].decode() == expected


@pytest.mark.parametrize("old", ["<boxmend/>", "<boxmend></boxmend>", "<boxmend><b/> x</boxmend>"])
def test_a_note_replaces_the_one_before(tmp_path: Path, old: str) -> None:
    text = objects(old + DOG, CAT)
    dataset = add_notes(read(voc_folder(tmp_path, {"a": text})), 0)
    expected = text.replace(old, f"<boxmend>{VOC_NOTE}</boxmend>")
    assert save_to_memory(dataset)["Annotations/a.xml"].decode() == expected


def test_a_note_is_added_with_values_that_an_object_lacked(tmp_path: Path) -> None:
    dataset = add_notes(read(voc_folder(tmp_path, {"a": objects(DOG)})), 0)
    dataset.is_difficult[0] = True
    expected = objects(f"{DOG}<difficult>1</difficult><boxmend>{VOC_NOTE}</boxmend>")
    assert save_to_memory(dataset)["Annotations/a.xml"].decode() == expected


def test_an_added_object_has_its_note(tmp_path: Path) -> None:
    dataset = read(voc_folder(tmp_path, {"a": objects(DOG)}))
    boxes = np.array([[4.0, 5, 7, 8], [1, 1, 2, 2]])
    added = dataset.add(np.zeros(2, np.int64), np.zeros(2, np.int64), boxes)
    text = save_to_memory(add_notes(added, 2))["Annotations/a.xml"].decode()
    assert text.startswith(objects(DOG).removesuffix("</annotation>"))
    assert text.endswith(f"<boxmend>{VOC_NOTE}</boxmend></object></annotation>")
    assert text.count("<boxmend>") == 1


def test_notes_with_none_and_with_unwritable_characters_are_written(tmp_path: Path) -> None:
    note: Note = {"confidence": None, "reason": "a\x00b"}
    dataset = add_notes(read(voc_folder(tmp_path, {"a": objects(DOG)})), 0, note=note)
    text = save_to_memory(dataset)["Annotations/a.xml"].decode()
    assert "<confidence></confidence><reason>a\\x00b</reason>" in text


def test_a_note_is_an_extra_of_a_document(tmp_path: Path) -> None:
    text = objects(f"{DOG}<boxmend><a>1</a></boxmend>", CAT)
    (source,) = read(voc_folder(tmp_path, {"a": text})).sources
    assert source.extras() == {"<boxmend> element": 1}


def test_yolo_has_no_place_for_notes(tmp_path: Path) -> None:
    image(tmp_path / "images/train/a.png")
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/train/a.txt").write_bytes(b"0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/train\nnames: [a]\n")
    dataset = load(tmp_path)
    plain, with_note = (
        {
            document.path: b"".join(document.pieces)
            for document in yolo.build_documents(each, "flag")
        }
        for each in (dataset, add_notes(dataset, 0))
    )
    assert plain == with_note


def test_notes_follow_their_annotations() -> None:
    dataset = read_bytes(document(box(), box(id=6)))
    both = join([add_notes(dataset, 0), add_notes(dataset, 1)])
    ids = both.annotation_ids.tolist()
    assert set(both.notes) == {ids[0], ids[3]}
    assert set(both.take(np.array([3])).notes) >= {ids[3]}
