"""Annotations with outlines are patched by a pattern, with the same bytes as one by one."""

import json
from typing import Any

import pytest

from boxmend.data.formats.coco import patching, quick
from tests.data.formats.coco_documents import box, document, entry_texts, read_bytes, save_to_bytes

OUTLINES: dict[str, Any] = {
    "polygon": [[1, 2.5, 3, -4, 5e0, 6]],
    "two polygons": [[1, 2, 3, 4, 5, 6], [1.5, 2, 3, 4, 5, 6]],
    "mask": {"counts": [1, 2], "size": [3, 4]},
    "packed mask": {"counts": 'a\\b"{}', "size": [3, 4]},
    "empty list": [],
    "empty object": {},
    "none": None,
}
CHOICES = ("flag", "drop")


def outlined(**others: Any) -> bytes:
    """Return a document with an annotation for every kind of outline, all in one layout."""
    entries = [
        box(id=k, segmentation=outline, area=5, iscrowd=0, **others)
        for k, outline in enumerate(OUTLINES.values())
    ]
    return document(*entries)


def move_all(data: bytes, choice: str) -> list[str]:
    """Return the entries after every right edge moved by one pixel."""
    dataset = read_bytes(data)
    dataset.boxes[:, 2] += 1
    return entry_texts(save_to_bytes(dataset, choice), "annotations")[0]


def count_careful_patches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the index of each entry that no pattern matches."""
    rows: list[int] = []
    patch_entry = patching.Patch._patch_entry

    def record(self: patching.Patch, k: int, *arguments: Any) -> bytes:
        rows.append(k)
        return patch_entry(self, k, *arguments)

    monkeypatch.setattr(patching.Patch, "_patch_entry", record)
    return rows


@pytest.mark.parametrize("examples", [0, quick.MAX_EXAMPLES])
def test_moved_boxes_flag_or_drop_their_outline_and_drop_or_keep_the_area(
    examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "MAX_EXAMPLES", examples)  # with none, each entry is parsed
    outlines = list(OUTLINES.values())
    for text, outline in zip(move_all(outlined(), "flag"), outlines, strict=True):
        entry = json.loads(text)
        assert entry["bbox"] == [1, 2, 4, 4]
        assert entry["segmentation"] == outline
        assert entry["area"] == (5 if outline else 16)
        assert entry.get("boxmend") == ({"stale": ["segmentation"]} if outline else None)
    for text, outline in zip(move_all(outlined(), "drop"), outlines, strict=True):
        entry = json.loads(text)
        assert entry["segmentation"] == ([] if outline else outline)
        assert (entry["area"], "boxmend" in entry) == (16, False)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (" ,\n", ":\t")])
def test_the_pattern_and_the_parser_write_the_same_bytes(
    choice: str, separators: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(json.loads(outlined(note="é")), separators=separators, ensure_ascii=False)
    data = text.encode()
    parsed = count_careful_patches(monkeypatch)
    quickly = move_all(data, choice)
    assert parsed == []
    monkeypatch.setattr(quick, "MAX_EXAMPLES", 0)
    assert move_all(data, choice) == quickly
    assert parsed == list(range(len(OUTLINES)))


def test_a_first_entry_with_a_layout_of_its_own_does_not_slow_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd = box(id=99, attributes={"occluded": True})
    entries = [odd, *json.loads(outlined())["annotations"]]
    parsed = count_careful_patches(monkeypatch)
    moved = move_all(document(*entries), "flag")
    assert parsed == [0]
    assert json.loads(moved[0])["attributes"] == {"occluded": True}


@pytest.mark.parametrize("outline", ['{"a": {"b": 1}}', "[NaN]", '"text"', "[[1, [true]]]"])
def test_outlines_of_other_types_are_parsed_and_kept(
    outline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = document(box(segmentation=[[1, 2, 3]], area=5), box(id=6, segmentation=7, area=5))
    data = data.replace(b'"segmentation": 7', f'"segmentation": {outline}'.encode())
    parsed = count_careful_patches(monkeypatch)
    _, text = move_all(data, "flag")
    assert parsed == [1]
    stale = '"boxmend": {"stale": ["segmentation"]}}'
    assert f'"segmentation": {outline}' in text
    assert text.endswith(stale)


def test_relabelled_annotations_keep_outline_and_area() -> None:
    categories = [{"id": 3, "name": "cat"}, {"id": 4, "name": "dog"}]
    data = document(box(segmentation=[[1, 2, 3, 4]], area=5), categories=categories)
    dataset = read_bytes(data)
    dataset.labels[:] = 1
    assert save_to_bytes(dataset) == data.replace(b'"category_id": 3', b'"category_id": 4')
