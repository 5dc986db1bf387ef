"""Comparisons of two handmade datasets; boxes are xyxy in pixels."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import UNKNOWN, Dataset, Images, Source, as_ids
from boxmend.data.diff import Comparison, Difference, compare

NAN = math.nan
LABELS = ("cat", "dog", "newt")

Annotation = tuple[int | str, int, int, tuple[float, float, float, float]]  # id, image, label, box


class Documents(Source):
    """A source that is never read again."""

    def document(self, row: int) -> Path:
        return self.path / f"{row}.doc"


def dataset_of(
    annotations: Sequence[Annotation] = (),
    names: Sequence[str] = ("0.jpg",),
    *,
    format: str = "coco",
    label_names: tuple[str, ...] = LABELS,
    splits: Sequence[str] | None = None,
) -> Dataset:
    n, m = len(annotations), len(names)
    boxes = np.array([box for *_, box in annotations], np.float64).reshape(n, 4)
    labels = np.array([label for _, _, label, _ in annotations], np.int64)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(m))),
            file_names=list(names),
            paths=[""] * m,
            splits=list(splits or ["all"] * m),
            widths=np.full(m, 100),
            heights=np.full(m, 80),
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=label_names,
        annotation_ids=as_ids([one for one, *_ in annotations]),
        image_rows=np.array([image for _, image, *_ in annotations], np.int64),
        labels=labels,
        boxes=boxes,
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(Documents(format, Path("data"), label_names, boxes.copy(), labels.copy()),),
    )


def voc(annotations: Sequence[Annotation], names: Sequence[str] = ("0.jpg",)) -> Dataset:
    """Return the same dataset with ids by position, as in formats without ids."""
    seen: dict[int, int] = {}
    renamed: list[Annotation] = []
    for _, image, label, box in annotations:
        position = seen.setdefault(image, 0)
        seen[image] += 1
        renamed.append((f"{image}:{position}", image, label, box))
    return dataset_of(renamed, names, format="voc")


def counts(comparison: Comparison) -> tuple[int, ...]:
    """Same, label changed, box changed, flags changed, added, removed."""
    names = ("same", "label_changed", "box_changed", "flags_changed", "added", "removed")
    return tuple(getattr(comparison, name) for name in names)


BOX = (10.0, 10.0, 30.0, 30.0)  # area 400
MOVED = (20.0, 10.0, 40.0, 30.0)  # shares 200 with it, the union is 600
APART = (60.0, 60.0, 70.0, 70.0)
FAR = (95.0, 85.0, 99.0, 89.0)


def test_a_dataset_equals_itself() -> None:
    dataset = dataset_of([(1, 0, 0, BOX), (2, 0, 1, MOVED)])
    comparison = compare(dataset, dataset)
    assert counts(comparison) == (2, 0, 0, 0, 0, 0)
    assert comparison.is_identical


def test_empty_datasets_equal_each_other() -> None:
    assert compare(dataset_of(names=()), dataset_of(names=())).is_identical
    assert compare(dataset_of(), dataset_of(format="voc")).is_identical


def test_a_difference_has_the_change_and_its_size() -> None:
    a = dataset_of([(1, 0, 0, BOX), (7, 0, 1, BOX)])
    b = dataset_of([(1, 0, 0, BOX), (7, 0, 2, MOVED)])
    comparison = compare(a, b)
    assert counts(comparison) == (1, 1, 1, 0, 0, 0)
    assert comparison.differences == [
        Difference(("label", "box"), "0.jpg", 7, 7, "dog", "newt", BOX, MOVED, 200 / 600)
    ]


def test_ids_pair_in_any_order_and_with_any_boxes() -> None:
    a = dataset_of([(1, 0, 0, BOX), (2, 0, 0, APART), (3, 0, 0, MOVED)])
    b = dataset_of([(3, 0, 0, MOVED), (1, 0, 0, APART), (2, 0, 0, BOX)])
    comparison = compare(a, b)
    assert counts(comparison) == (1, 0, 2, 0, 0, 0)
    assert [
        (difference.annotation_id, difference.iou) for difference in comparison.differences
    ] == [(1, 0.0), (2, 0.0)]


def test_ids_on_one_side_only_are_added_or_removed() -> None:
    a = dataset_of([(1, 0, 0, BOX), (2, 0, 1, MOVED)])
    b = dataset_of([(1, 0, 0, BOX), (9, 0, 1, MOVED)])
    comparison = compare(a, b)
    assert counts(comparison) == (1, 0, 0, 0, 1, 1)
    assert comparison.differences == [
        Difference(("removed",), "0.jpg", 2, None, "dog", None, MOVED, None),
        Difference(("added",), "0.jpg", None, 9, None, "dog", None, MOVED),
    ]


def test_ids_that_were_renumbered_are_not_trusted() -> None:
    names = ("0.jpg", "1.jpg")
    a = dataset_of([(1, 0, 0, BOX), (2, 1, 1, MOVED), (3, 1, 0, APART)], names)
    b = dataset_of([(3, 0, 0, BOX), (1, 1, 1, MOVED), (2, 1, 2, APART)], names)
    comparison = compare(a, b)  # 1 and 3 have moved to other images, 2 has not
    assert counts(comparison) == (2, 1, 0, 0, 0, 0)
    (difference,) = comparison.differences
    assert (difference.annotation_id, difference.new_annotation_id) == (3, 2)


def test_an_id_that_is_repeated_is_paired_within_its_image() -> None:
    a = dataset_of([(1, 0, 0, BOX), (5, 0, 0, MOVED), (5, 0, 1, APART)])
    b = dataset_of([(1, 0, 0, BOX), (5, 0, 1, APART), (5, 0, 0, MOVED)])
    assert compare(a, b).is_identical


def test_labels_are_compared_by_name_not_by_number() -> None:
    a = dataset_of([(1, 0, 0, BOX), (2, 0, 1, APART)])
    b = dataset_of([(1, 0, 1, BOX), (2, 0, 1, APART)], label_names=("dog", "cat"))
    comparison = compare(a, b)
    assert counts(comparison) == (1, 1, 0, 0, 0, 0)
    (difference,) = comparison.differences
    assert (difference.old_label, difference.new_label) == ("dog", "cat")


def test_unknown_labels_and_images_are_compared() -> None:
    entries: list[Annotation] = [(1, UNKNOWN, UNKNOWN, BOX), (2, 0, 1, BOX)]
    assert compare(dataset_of(entries), dataset_of(entries)).is_identical
    (difference,) = compare(dataset_of(entries), dataset_of([(2, 0, 1, BOX)])).differences
    assert (difference.image, difference.old_label) == (None, None)


def test_flags_that_changed_are_reported_and_count() -> None:
    a = dataset_of([(1, 0, 0, BOX), (2, 0, 0, APART)])
    b = replace(a, is_crowd=np.array([True, False]), is_difficult=np.array([True, False]))
    there, back = compare(a, b), compare(b, a)
    assert counts(there) == (1, 0, 0, 1, 0, 0)
    assert there.differences[0].kinds == ("flags",)
    assert there.differences[0].flags == ("crowd", "difficult")
    assert there.differences[0].iou == 1
    assert back.differences[0].flags == ("not crowd", "not difficult")
    alone = compare(a, replace(a, is_difficult=np.array([True, False])))
    assert alone.differences[0].kinds == ("flags",)
    assert alone.differences[0].flags == ("difficult",)


@pytest.mark.parametrize(
    ("format", "shift", "changed"),
    [("coco", 0.9e-6, 0), ("coco", 1.1e-6, 1), ("yolo", 0.009, 0), ("yolo", 0.011, 1)],
)
def test_formats_that_differ_may_differ_by_a_hundredth_of_a_pixel(
    format: str, shift: float, changed: int
) -> None:
    a = dataset_of([(1, 0, 0, BOX)])
    b = dataset_of([(1, 0, 0, (10, 10, 30, 30 + shift))], format=format)
    assert compare(a, b).box_changed == changed


def test_boxes_that_are_not_finite_equal_only_each_other() -> None:
    a = dataset_of([(1, 0, 0, (NAN, 1, 2, 3)), (2, 0, 0, (math.inf, 0, 1, 1))])
    assert compare(a, a).is_identical
    b = dataset_of([(1, 0, 0, BOX), (2, 0, 0, (math.inf, 0, 1, 1))])
    (difference,) = compare(a, b).differences
    assert (difference.kinds, difference.iou) == (("box",), None)


# Without ids


def test_equal_annotations_pair_first_at_any_position() -> None:
    a = voc([(0, 0, 0, BOX), (0, 0, 1, MOVED), (0, 0, 2, APART)])
    b = voc([(0, 0, 2, APART), (0, 0, 0, BOX), (0, 0, 1, MOVED)])
    assert compare(a, b).is_identical


def test_equally_many_in_an_image_pair_by_position() -> None:
    low = (10.0, 20.0, 30.0, 40.0)  # shares 200 with BOX, and 100 with MOVED
    a = voc([(0, 0, 0, BOX), (0, 0, 1, MOVED)])
    b = voc([(0, 0, 0, MOVED), (0, 0, 1, low)])  # overlap alone would pair MOVED with MOVED
    comparison = compare(a, b)
    assert counts(comparison) == (0, 0, 2, 0, 0, 0)
    assert [difference.annotation_id for difference in comparison.differences] == ["0:0", "0:1"]
    assert [difference.new_annotation_id for difference in comparison.differences] == ["0:0", "0:1"]


def test_otherwise_the_largest_overlap_pairs_and_the_others_are_added_or_removed() -> None:
    near = (12.0, 10.0, 32.0, 30.0)  # shares 360 of 440 with BOX, 240 of 560 with MOVED
    a = voc([(0, 0, 0, APART), (0, 0, 0, MOVED), (0, 0, 0, BOX)])
    comparison = compare(a, voc([(0, 0, 0, near)]))
    assert counts(comparison) == (0, 0, 1, 0, 0, 2)
    changed = next(
        difference for difference in comparison.differences if difference.kinds == ("box",)
    )
    assert (changed.old_box, changed.iou) == (BOX, 360 / 440)


def test_the_assignment_is_best_as_a_whole_not_pair_by_pair() -> None:
    one, two = (20.0, 0.0, 80.0, 10.0), (55.0, 0.0, 115.0, 10.0)
    left, right = (0.0, 0.0, 60.0, 10.0), (35.0, 0.0, 95.0, 10.0)
    # one: left 40/80, right 45/75; two: left 5/115, right 40/80. The best pair is no good start.
    a = voc([(0, 0, 0, one), (0, 0, 0, two)])
    comparison = compare(a, voc([(0, 0, 0, right), (0, 0, 0, left), (0, 0, 0, APART)]))
    pairs = {
        difference.old_box: difference.new_box
        for difference in comparison.differences
        if difference.old_box
    }
    assert pairs == {one: left, two: right}


def test_boxes_without_overlap_are_never_paired() -> None:
    comparison = compare(voc([(0, 0, 0, BOX)]), voc([(0, 0, 0, APART)]))
    assert counts(comparison) == (0, 0, 0, 0, 1, 1)


def test_boxes_with_equal_overlap_pair_by_label() -> None:
    a = voc([(0, 0, 0, BOX), (0, 0, 1, BOX), (0, 0, 2, APART)])
    b = voc([(0, 0, 1, MOVED), (0, 0, 0, MOVED)])
    assert counts(compare(a, b)) == (0, 0, 2, 0, 0, 1)


def test_an_annotation_without_area_may_change_its_label() -> None:
    point = (5.0, 5.0, 5.0, 5.0)
    assert counts(compare(voc([(0, 0, 0, point)]), voc([(0, 0, 1, point)]))) == (0, 1, 0, 0, 0, 0)


def test_images_of_very_many_annotations_are_paired_too() -> None:
    grid = [
        (float(x), float(y), x + 4.0, y + 4.0) for x in range(0, 90, 5) for y in range(0, 80, 5)
    ]
    entries: list[Annotation] = [(0, 0, 0, box) for box in grid]
    moved: list[Annotation] = [(0, 0, 0, (x + 1, y, u + 1, v)) for x, y, u, v in grid]
    assert len(entries) > 200
    again: Annotation = (0, 0, 0, (0.0, 0.0, 4.0, 3.0))  # wants the partner of the first one
    comparison = compare(voc([*entries, again]), voc([*moved[::-1], *[(0, 0, 1, FAR)] * 2]))
    assert counts(comparison) == (0, 0, len(grid), 0, 2, 1)
    assert {difference.iou for difference in comparison.differences} == {12 / 20, None}


# Images


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("a/0.jpg", "a/0.jpg"),
        ("a/0.jpg", "a/0.png"),
        ("a/0.jpg", "images/train/0.jpg"),
        ("0.jpg", "images/0.webp"),
        (".jpg", "x/.jpg"),
    ],
)
def test_images_pair_by_name_without_extension_or_without_folder(name: str, other: str) -> None:
    a, b = dataset_of([(1, 0, 0, BOX)], [name]), voc([(0, 0, 0, BOX)], [other])
    assert compare(a, b).is_identical


def test_ambiguous_names_pair_only_when_they_are_equal() -> None:
    a = dataset_of(names=["x/0.jpg", "y/0.jpg"])
    b = dataset_of(names=["y/0.jpg", "z/0.jpg"])
    comparison = compare(a, b)
    assert comparison.images_only_in_a == ("x/0.jpg",)
    assert comparison.images_only_in_b == ("z/0.jpg",)


def test_the_split_distinguishes_images_of_the_same_name() -> None:
    entries: list[Annotation] = [(1, 0, 0, BOX), (2, 1, 1, APART)]
    a = dataset_of(entries, ["0.jpg", "0.jpg"], splits=["train", "val"])
    for names in (["0.jpg", "0.jpg"], ["val/0.jpg", "train/0.jpg"]):
        b = dataset_of(
            [(1, 0, 1, APART), (2, 1, 0, BOX)], names, format="yolo", splits=["val", "train"]
        )
        assert compare(a, b).is_identical


def test_equal_names_pair_in_order() -> None:
    dataset = dataset_of([(1, 0, 0, BOX), (2, 1, 1, APART)], ["0.jpg", "0.jpg"])
    assert compare(dataset, dataset).is_identical


def test_annotations_of_images_on_one_side_are_added_or_removed() -> None:
    a = dataset_of([(1, 0, 0, BOX), (2, 1, 0, BOX)], ["0.jpg", "1.jpg"])
    b = dataset_of([(1, 0, 0, BOX), (2, 1, 0, BOX)], ["0.jpg", "2.jpg"])
    comparison = compare(a, b)
    assert (comparison.images_only_in_a, comparison.images_only_in_b) == (("1.jpg",), ("2.jpg",))
    assert counts(comparison) == (1, 0, 0, 0, 1, 1)
    bare = compare(dataset_of(names=["0.jpg"]), dataset_of(names=[]))
    assert not bare.is_identical


def test_differences_come_image_by_image() -> None:
    a = dataset_of([(1, 1, 0, BOX), (2, 0, 0, BOX), (3, 1, 0, APART)], ["0.jpg", "1.jpg"])
    b = dataset_of(
        [(8, 1, 0, APART), (9, 2, 0, BOX), (1, 0, 1, BOX), (2, 1, 1, BOX)],
        ["1.jpg", "0.jpg", "2.jpg"],
    )
    differences = compare(a, b).differences
    summary = [
        (difference.image, difference.kinds, difference.annotation_id, difference.new_annotation_id)
        for difference in differences
    ]
    assert summary == [
        ("0.jpg", ("label",), 2, 2),
        ("0.jpg", ("added",), None, 8),
        ("1.jpg", ("label",), 1, 1),
        ("1.jpg", ("removed",), 3, None),
        ("2.jpg", ("added",), None, 9),
    ]


def test_plain_data_is_json_even_of_boxes_that_are_not_finite() -> None:
    a = dataset_of([(1, 0, 0, (NAN, 1, 2, math.inf)), (2, 0, 0, BOX)])
    b = dataset_of([(1, 0, 0, BOX), (2, 0, 1, BOX)])
    data = json.loads(json.dumps(compare(a, b).to_json(), allow_nan=False))
    assert (data["box_changed"], data["label_changed"], data["same"]) == (1, 1, 0)
    assert data["differences"][0]["old_box"] == [None, 1, 2, None]
    assert data["differences"][1] == {
        "kinds": ["label"],
        "image": "0.jpg",
        "annotation_id": 2,
        "new_annotation_id": 2,
        "old_label": "cat",
        "new_label": "dog",
        "old_box": list(BOX),
        "new_box": list(BOX),
        "iou": 1.0,
        "flags": [],
    }


# Properties

side = st.one_of(st.integers(0, 60).map(float), st.sampled_from([NAN, math.inf, -1e308, 1e308]))
entry = st.tuples(
    st.integers(0, 9), st.integers(-1, 2), st.integers(-1, 2), st.tuples(side, side, side, side)
)
entries = st.lists(entry, max_size=10)
NAMES = ("0.jpg", "1.jpg", "2.jpg")


def build_dataset(drawn: Sequence[Annotation], format: str) -> Dataset:
    return dataset_of(drawn, NAMES, format=format) if format == "coco" else voc(drawn, NAMES)


@settings(max_examples=150, deadline=None)
@given(one=entries, two=entries, formats=st.sampled_from([("coco", "coco"), ("coco", "voc")]))
def test_every_annotation_is_counted_and_the_reverse_comparison_mirrors(
    one: Sequence[Annotation], two: Sequence[Annotation], formats: tuple[str, str]
) -> None:
    a, b = build_dataset(one, formats[0]), build_dataset(two, formats[1])
    before = a.boxes.tobytes(), b.boxes.tobytes()
    there, back = compare(a, b), compare(b, a)
    paired = len(there.differences) - there.added - there.removed + there.same
    assert paired + there.removed == len(a)
    assert paired + there.added == len(b)
    if formats == ("coco", "coco"):
        assert (there.added - there.removed) == (back.removed - back.added)
    assert (a.boxes.tobytes(), b.boxes.tobytes()) == before
    assert all(
        difference.iou is None or 0 <= difference.iou <= 1 for difference in there.differences
    )


@settings(max_examples=100, deadline=None)
@given(drawn=entries, data=st.data(), format=st.sampled_from(["coco", "voc"]))
def test_the_order_of_annotations_is_not_a_difference(
    drawn: Sequence[Annotation], data: st.DataObject, format: str
) -> None:
    shuffled = data.draw(st.permutations(drawn))
    assert compare(build_dataset(drawn, format), build_dataset(shuffled, format)).is_identical


@settings(max_examples=100, deadline=None)
@given(drawn=st.lists(entry, min_size=1, max_size=10, unique_by=lambda one: one[0]), data=st.data())
def test_with_ids_exactly_the_changed_annotations_are_reported(
    drawn: Sequence[Annotation], data: st.DataObject
) -> None:
    a = build_dataset(drawn, "coco")
    changed = data.draw(st.sets(st.integers(0, len(drawn) - 1)))
    rows = sorted(changed)
    boxes, labels = a.boxes.copy(), a.labels.copy()
    boxes[rows] = [1.5, 2.5, 3.5, 4.5]
    labels[rows] = np.where(labels[rows] == 0, 1, 0)
    comparison = compare(a, replace(a, boxes=boxes, labels=labels))
    assert {difference.annotation_id for difference in comparison.differences} == {
        drawn[k][0] for k in rows
    }
    assert comparison.label_changed == comparison.box_changed == len(rows)
