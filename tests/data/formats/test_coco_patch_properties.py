"""Patched COCO files of any layout differ only in the changed values."""

import contextlib
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.errors import BoxmendError
from tests.data.formats.coco_documents import (
    LABELS,
    Lit,
    Near,
    Pairs,
    documents,
    entry_texts,
    find_last,
    parse_document,
    read_bytes,
    save_to_bytes,
    set_value,
    value,
)

AXES = {"none": (0, 0), "first": (1, 0), "second": (0, 1), "both": (1, 1)}
CHANGED = {"none": "", "first": "pe", "second": "e", "both": "p"}  # position, extent


@settings(deadline=None)
@given(documents())
def test_unchanged_documents_are_written_byte_for_byte(data: bytes) -> None:
    assert save_to_bytes(read_bytes(data)) == data


def move_boxes(pairs: Pairs, box: NDArray[np.float64], changed: set[int], choice: str) -> None:
    """Make the changes to a parsed annotation that follow from a moved box."""
    x1, y1, x2, y2 = box.tolist()
    sides = [x1, y1, x2 - x1, y2 - y1]
    new = list(value(pairs, "bbox"))
    for side in changed:
        new[side] = Near(sides[side])
    set_value(pairs, "bbox", new)
    has_outline = bool(value(pairs, "segmentation"))
    if has_outline and choice == "drop":
        set_value(pairs, "segmentation", [])
    if find_last(pairs, "area") >= 0 and not (has_outline and choice == "flag"):
        set_value(pairs, "area", Near(sides[2] * sides[3]))
    flags = Pairs(value(pairs, "boxmend") or [])
    stale = [one for one in value(flags, "stale") or [] if one != "segmentation"]
    is_flagged = has_outline and choice == "flag"
    if is_flagged or "segmentation" in (value(flags, "stale") or []):
        set_value(flags, "stale", [*stale, "segmentation"] if is_flagged else stale)
        set_value(pairs, "boxmend", flags)


@st.composite
def changes(draw: st.DrawFn, n: int) -> list[dict[str, Any]]:
    return [
        {
            "axes": [draw(st.sampled_from(sorted(AXES))) for _ in "xy"],
            "by": draw(st.sampled_from([0.5, -7.25, 100.125, 1e-3])),
            "label": draw(st.sampled_from([None, None, 0, 1, 2])),
            "crowd": draw(st.sampled_from([None, None, True, False])),
            "difficult": draw(st.sampled_from([None, None, True, False])),
        }
        for _ in range(n)
    ]


def apply(dataset: Dataset, row: int, change: dict[str, Any], pairs: Pairs, choice: str) -> bool:
    """Change an annotation of the dataset, and its parsed entry in the way that is expected.

    Returns whether anything changed.
    """
    changed = set[int]()
    is_flagged = change["crowd"] is not None and dataset.is_crowd[row] != change["crowd"]
    is_regraded = change["difficult"] not in (None, dataset.is_difficult[row])
    is_relabelled = change["label"] is not None and dataset.labels[row] != change["label"]
    for axis, name in enumerate(change["axes"]):
        dataset.boxes[row, [axis, axis + 2]] += np.multiply(AXES[name], change["by"])
        changed |= {axis for _ in "p" if "p" in CHANGED[name]}
        changed |= {axis + 2 for _ in "e" if "e" in CHANGED[name]}
    if is_flagged:
        dataset.is_crowd[row] = change["crowd"]
        set_value(pairs, "iscrowd", Lit(int(change["crowd"])))
    if is_regraded:
        dataset.is_difficult[row] = change["difficult"]
        set_value(pairs, "difficult", Lit(int(change["difficult"])))
    if is_relabelled:
        dataset.labels[row] = change["label"]
        set_value(pairs, "category_id", Lit(change["label"] + 1))
    if changed:
        move_boxes(pairs, dataset.boxes[row], changed, choice)
    return bool(changed) or is_flagged or is_regraded or is_relabelled


@settings(deadline=None)
@given(documents(), st.data(), st.sampled_from(["flag", "drop"]))
def test_changed_documents_differ_only_in_the_changed_values(
    data: bytes, draws: st.DataObject, choice: str
) -> None:
    dataset, expected = read_bytes(data), parse_document(data)
    todo = draws.draw(changes(len(dataset)))
    entries = value(expected, "annotations") or []
    touched = {
        row for row, change in enumerate(todo) if apply(dataset, row, change, entries[row], choice)
    }
    changed = save_to_bytes(dataset, choice)
    assert parse_document(changed) == expected
    if entries:
        old, around = entry_texts(data, "annotations")
        new, around_new = entry_texts(changed, "annotations")
        assert around_new == around
        assert {row for row, text in enumerate(new) if text != old[row]} == touched


@settings(deadline=None)
@given(documents(), st.data())
def test_removing_and_adding_keeps_the_other_entries(data: bytes, draws: st.DataObject) -> None:
    dataset, expected = read_bytes(data), parse_document(data)
    n, num_images = len(dataset), len(dataset.images)
    kept = np.array(draws.draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    images = draws.draw(st.sets(st.integers(0, num_images - 1)))
    kept &= np.isin(dataset.image_rows, list(images))
    smaller = dataset.take(kept).take_images(np.array(sorted(images), np.int64))
    places = draws.draw(st.lists(st.integers(0, max(0, len(images) - 1)), max_size=2))
    places = places if images else []
    more = smaller.add(
        np.array(places, np.int64),
        np.full(len(places), 2),
        np.tile([1.0, 2, 4.5, 6], (len(places), 1)),
    )
    image_ids = [value(entry, "id") for entry in value(expected, "images")]
    entries = value(expected, "annotations") or []
    left = [entry for entry, keep in zip(entries, kept, strict=True) if keep]
    first = max([int(value(entry, "id")) for entry in left], default=0) + 1
    for k, place in enumerate(places):
        new = {"id": Lit(first + k), "image_id": image_ids[sorted(images)[place]]}
        new |= {"category_id": Lit(len(LABELS)), "bbox": [Lit("1"), Lit("2"), Lit("3.5"), Lit("4")]}
        left.append(Pairs((new | {"area": Lit("14"), "iscrowd": Lit("0")}).items()))
    if left != entries:
        set_value(expected, "annotations", left)
    set_value(expected, "images", [value(expected, "images")[row] for row in sorted(images)])
    changed = save_to_bytes(more)
    assert parse_document(changed) == expected
    if entries:
        old, _ = entry_texts(data, "annotations")
        new_texts, _ = entry_texts(changed, "annotations")
        assert new_texts[: kept.sum()] == [old[row] for row in np.flatnonzero(kept)]


@settings(deadline=None)
@given(documents(), st.data())
def test_documents_with_one_byte_changed_end_in_a_boxmend_error_or_are_written_back(
    data: bytes, draws: st.DataObject
) -> None:
    place = draws.draw(st.integers(0, len(data) - 1))
    byte = draws.draw(st.sampled_from(b'"{}[],:\\0eN- \xff\x00'))
    spoiled = data[:place] + bytes([byte]) + data[place + 1 :]
    try:
        dataset = read_bytes(spoiled)
    except BoxmendError:
        return
    assert save_to_bytes(dataset) == spoiled
    dataset.boxes += [0, 0, 1, 1]
    dataset.is_crowd ^= True
    with contextlib.suppress(BoxmendError):
        parse_document(save_to_bytes(dataset).decode(errors="replace").encode())
