"""The columns of a dataset: take, add and join."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmend.data import formats
from boxmend.data.dataset import (
    ADDED,
    UNKNOWN,
    Dataset,
    Images,
    Source,
    as_ids,
    assign_position_ids,
    sort_by_document,
)
from boxmend.data.joining import join, separate_ids


def build(
    ids: list[int | str],
    image_rows: list[int],
    *,
    image_ids: tuple[int | str, ...] = (1, 2, 3),
    labels: list[int] | None = None,
    label_names: tuple[str, ...] = ("cat", "dog"),
    path: str = "a.json",
) -> Dataset:
    """Annotations of three images, with a source that agrees with the columns."""
    n, m = len(ids), len(image_ids)
    boxes = np.arange(4.0 * n).reshape(n, 4)
    column = np.array(labels if labels is not None else [0] * n, np.int64)
    return Dataset(
        images=Images(
            ids=as_ids(image_ids),
            file_names=[f"{image_id}.jpg" for image_id in image_ids],
            paths=[f"images/{image_id}.jpg" for image_id in image_ids],
            splits=["all"] * m,
            widths=np.arange(m) + 10,
            heights=np.arange(m) + 20,
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=label_names,
        annotation_ids=as_ids(ids),
        image_rows=np.array(image_rows, np.int64),
        labels=column.copy(),
        boxes=boxes.copy(),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(Source("coco", Path(path), label_names, boxes, column),),
    )


# Columns


def test_image_ids_are_those_of_each_annotations_image() -> None:
    dataset = build([7, 8, 9], [2, 0, 0], image_ids=(10, 20, 30))
    assert dataset.image_ids.tolist() == [30, 10, 10]
    assert dataset.image_ids.dtype == np.int64


def test_image_id_is_none_where_the_image_is_not_declared() -> None:
    assert build([7, 8], [1, UNKNOWN], image_ids=(10, 20)).image_ids.tolist() == [20, None]
    assert build([7], [UNKNOWN], image_ids=()).image_ids.tolist() == [None]


@pytest.mark.parametrize("name", ["labels", "image_rows", "is_crowd", "source_rows"])
def test_columns_of_another_length_are_refused(name: Any) -> None:
    dataset = build([1, 2], [0, 0])
    setattr(dataset, name, getattr(dataset, name)[:1])
    with pytest.raises(ValueError, match=f"{name} must have 2 rows"):
        dataset.check_columns()


def test_boxes_of_another_shape_are_refused() -> None:
    dataset = build([1, 2], [0, 0])
    dataset.boxes = dataset.boxes[:, :3]
    with pytest.raises(ValueError, match=r"boxes must have shape \(2, 4\)"):
        dataset.check_columns()


@pytest.mark.parametrize(("name", "value"), [("labels", 2), ("labels", -2), ("image_rows", 3)])
def test_labels_and_images_that_do_not_exist_are_refused(name: Any, value: Any) -> None:
    dataset = build([1, 2], [0, 0])
    getattr(dataset, name)[1] = value
    with pytest.raises(ValueError, match=f"{name} must lie between -1"):
        dataset.check_columns()


def test_changes_in_place_do_not_touch_the_source() -> None:
    dataset = build([1, 2], [0, 1])
    dataset.boxes += 1
    dataset.labels[:] = 1
    assert dataset.sources[0].boxes.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert dataset.sources[0].labels.tolist() == [0, 0]
    with pytest.raises(ValueError, match="read-only"):
        dataset.sources[0].boxes[0] = 5


@pytest.mark.parametrize(
    ("path", "name"), [("a/b.json", "b"), ("..json", "coco"), ("/", "coco"), ("x/y/..", "x")]
)
def test_name_of_a_source_can_be_the_name_of_a_folder(path: str, name: str) -> None:
    source = Source("coco", Path(path), (), np.empty((0, 4)), np.empty(0, np.int64))
    assert source.name == name


def test_ids_are_integers_where_all_of_them_fit() -> None:
    assert as_ids([1, -5]).dtype == np.int64
    assert as_ids([]).dtype == np.int64
    assert as_ids([2**70, 1]).tolist() == [2**70, 1]
    assert as_ids(["1", 1]).tolist() == ["1", 1]


# Taking and adding


def test_taking_annotations_keeps_all_images_and_what_belongs_to_each() -> None:
    dataset = build([7, 8, 9], [2, 0, 1])
    for rows in (np.array([2, 0]), np.array([True, False, True])):
        subset = dataset.take(rows)
        expected = [9, 7] if rows.dtype != np.bool_ else [7, 9]
        assert subset.annotation_ids.tolist() == expected
        assert len(subset.images) == 3
        assert subset.boxes[expected.index(9)].tolist() == [8, 9, 10, 11]
        assert subset.source_rows[expected.index(9)] == 2
    assert len(dataset) == 3


def test_taking_images_takes_their_annotations_and_keeps_the_order() -> None:
    dataset = build([7, 8, 9, 10], [2, 0, 1, UNKNOWN], image_ids=(10, 20, 30))
    subset = dataset.take_images(np.array([2, 0, 2]))
    assert subset.images.ids.tolist() == [10, 30]
    assert subset.images.file_names == ["10.jpg", "30.jpg"]
    assert subset.images.widths.tolist() == [10, 12]
    assert subset.images.rows.tolist() == [0, 2]
    assert subset.annotation_ids.tolist() == [7, 8]
    assert subset.image_ids.tolist() == [30, 10]


def test_taking_no_images_leaves_nothing() -> None:
    subset = build([7, 8], [2, 0]).take_images(np.empty(0, np.int64))
    assert (len(subset), len(subset.images), subset.image_ids.tolist()) == (0, 0, [])


def test_added_annotations_get_the_next_integers_and_come_from_no_document() -> None:
    dataset = build([7, 2], [2, 0])
    more = dataset.add(np.array([1, 0]), np.array([1, 0]), np.ones((2, 4)))
    assert more.annotation_ids.tolist() == [7, 2, 8, 9]
    assert more.image_ids.tolist() == [3, 1, 2, 1]
    assert more.source_rows.tolist() == [0, 1, ADDED, ADDED]
    assert more.source_of.tolist() == [0, 0, 0, 0]
    assert len(dataset) == 2


def test_added_annotations_get_ids_beyond_the_largest_integer_there_is() -> None:
    more = build([2**63 - 1], [0]).add(np.array([1]), np.array([0]), np.ones((1, 4)))
    assert more.annotation_ids.tolist() == [2**63 - 1, 2**63]


def test_added_annotations_get_positions_where_ids_are_not_integers() -> None:
    dataset = build(["1:0", "1:2", "2:0"], [0, 0, 1])
    more = dataset.add(np.array([0, 0, 2]), np.zeros(3, np.int64), np.ones((3, 4)))
    assert more.annotation_ids.tolist() == ["1:0", "1:2", "2:0", "1:3", "1:4", "3:0"]


def test_adding_to_an_image_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no image"):
        build([], [], image_ids=()).add(np.array([0]), np.array([0]), np.ones((1, 4)))
    for row in (-1, 3):
        with pytest.raises(ValueError, match="between 0 and 2"):
            build([], []).add(np.array([row]), np.array([0]), np.ones((1, 4)))


def test_positions_follow_the_document_and_new_annotations_come_last() -> None:
    dataset = build(list("abcd"), [1, 0, 1, 0], image_ids=("x", "y"))
    turned = dataset.take(np.array([2, 3, 0, 1]))
    more = turned.add(np.array([1, 0]), np.zeros(2, np.int64), np.ones((2, 4)))
    assert assign_position_ids(more).tolist() == ["y:1", "x:1", "y:0", "x:0", "y:2", "x:2"]
    assert sort_by_document(more).tolist() == [3, 1, 5, 2, 0, 4]


# Joining


def test_a_single_dataset_is_joined_to_itself() -> None:
    dataset = build([1], [0])
    assert join([dataset]) is dataset


def test_joined_labels_are_joined_by_name() -> None:
    one = build([1, 2, 3], [0, 1, 2], labels=[0, 1, UNKNOWN], label_names=("cat", "dog"))
    two = build([4, 5], [0, 1], labels=[1, 0], label_names=("dog", "cow"), image_ids=(7, 8, 9))
    both = join([one, two])
    assert both.label_names == ("cat", "dog", "cow")
    assert both.labels.tolist() == [0, 1, UNKNOWN, 2, 1]
    assert both.image_ids.tolist() == [1, 2, 3, 7, 8]
    assert both.source_of.tolist() == [0, 0, 0, 1, 1]
    assert both.images.sources.tolist() == [0, 0, 0, 1, 1, 1]
    assert both.source_rows.tolist() == [0, 1, 2, 0, 1]


def test_colliding_integers_of_the_later_dataset_are_moved_by_a_power_of_ten() -> None:
    both = join([build([5, 12], [0, 1]), build([12, 13], [2, UNKNOWN])])
    assert both.annotation_ids.tolist() == [5, 12, 112, 113]
    assert both.images.ids.tolist() == [1, 2, 3, 11, 12, 13]
    assert both.image_ids.tolist() == [1, 2, 13, None]


def test_colliding_names_of_the_later_dataset_get_the_name_of_their_source() -> None:
    one = build(["x", "y"], [0, 1], image_ids=("p", "q"))
    two = build(["y", 3], [0, 1], image_ids=("p", "r"), path="dir/b.json")
    both = join([one, two, two])
    assert both.annotation_ids.tolist() == ["x", "y", "b/y", 13, "b-2/y", 1003]
    assert both.images.ids.tolist() == ["p", "q", "b/p", "b/r", "b-2/p", "b-2/r"]


def test_ids_that_do_not_collide_stay() -> None:
    both = join([build([1], [0], image_ids=(1,)), build(["1"], [0], image_ids=("1",))])
    assert both.annotation_ids.tolist() == [1, "1"]
    assert both.images.ids.tolist() == [1, "1"]


def test_negative_ids_that_collide_again_are_moved_farther() -> None:
    apart = separate_ids([as_ids([-5, 995]), as_ids([-5])], ["a", "b"])
    assert [column.tolist() for column in apart] == [[-5, 995], [9995]]


def test_ids_too_large_to_be_moved_within_64_bits_become_larger_ones() -> None:
    apart = separate_ids([as_ids([2**62, 1]), as_ids([1, 2**62])], ["a", "b"])
    assert apart[1].tolist() == [1 + 10**19, 2**62 + 10**19]


def test_joining_with_an_empty_dataset_changes_nothing() -> None:
    one = build([1, 2], [0, 1])
    both = join([build([], [], image_ids=()), one, build([], [], image_ids=())])
    assert both.annotation_ids.tolist() == [1, 2]
    assert both.image_ids.dtype == np.int64


IDS = st.lists(
    st.integers(-20, 120) | st.integers(-(2**63), 2**70) | st.sampled_from(["a", "1", "b/a"]),
    unique=True,
    max_size=6,
)


@given(st.lists(IDS, min_size=1, max_size=4))
def test_ids_are_always_made_unique_and_the_first_keep_theirs(columns: Any) -> None:
    names = ["a", "b", "b", "c"][: len(columns)]
    apart = separate_ids([as_ids(column) for column in columns], names)
    together = [identity for column in apart for identity in column.tolist()]
    assert len(set(together)) == len(together) == sum(map(len, columns))
    assert apart[0].tolist() == columns[0]


@given(IDS, IDS)
def test_ids_that_do_not_collide_are_never_moved(
    one: list[int | str], two: list[int | str]
) -> None:
    two = [identity for identity in two if identity not in one]
    _, apart = separate_ids([as_ids(one), as_ids(two)], ["a", "b"])
    assert apart.tolist() == two


def test_findings_follow_their_annotations_where_joining_moves_ids(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(
            '{"images": [{"id": 1, "file_name": "x.jpg"}], "categories": [{"id": 1, "name": "c"}],'
            '"annotations": [{"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3]}]}'
        )
    dataset = formats.read(tmp_path / "a.json", tmp_path / "b.json")
    assert dataset.annotation_ids.tolist() == [7, 17]
    assert [finding.annotation_id for finding in dataset.findings] == [7, 17]
