"""Statistics computed by hand, and repairs after which no box error is left."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.checks import compute_statistics, repair
from boxmend.data.dataset import UNKNOWN, as_ids
from boxmend.data.findings import Finding
from tests.data.checks.handmade import BOX_ERRORS, INF, INSIDE, NAN, dataset_of, find_findings

# Statistics


def test_statistics_are_the_hand_counted_numbers() -> None:
    boxes = [
        (0, 0, 31, 33),  # 1023: small
        (0, 0, 32, 32),  # 1024: medium
        (0, 0, 96, 96),  # 9216: large
        (0, 0, 10, 200),  # 2000: medium
        (5, 5, 5, 9),  # empty: no size
        (NAN, 0, 1, 1),
    ]
    dataset = dataset_of(
        boxes, [0, 0, 1, 0, UNKNOWN, 1], [0, 0, 0, 1, 1, UNKNOWN], sizes=[(1, 1)] * 3
    )
    dataset.is_crowd[2] = True
    dataset.is_difficult[:2] = True
    dataset.images.splits[:] = ["train", "val", "val"]
    assert compute_statistics(dataset) == {
        "formats": ["coco"],
        "images": 3,
        "annotations": 6,
        "crowd": 1,
        "difficult": 2,
        "images_without_annotations": 1,
        "annotations_per_image": {"mean": 5 / 3, "max": 3},
        "labels": {"cat": {"annotations": 3, "images": 2}, "dog": {"annotations": 2, "images": 1}},
        "boxes": {
            "median_width": 31.5,
            "median_height": 64.5,
            "small": 0.25,
            "medium": 0.5,
            "large": 0.25,
        },
        "splits": {
            "train": {"images": 1, "annotations": 3},
            "val": {"images": 2, "annotations": 2},
        },
    }


def test_statistics_of_an_empty_dataset_have_no_medians() -> None:
    numbers = compute_statistics(dataset_of())
    assert numbers["boxes"]["median_width"] is None
    assert numbers["annotations_per_image"] == {"mean": 0.0, "max": 0}


def test_labels_of_the_same_name_count_as_one() -> None:
    dataset = dataset_of([INSIDE, (1, 1, 2, 2)], [0, 1], label_names=("cat", "cat"))
    assert compute_statistics(dataset)["labels"] == {"cat": {"annotations": 2, "images": 1}}


# Repairs


@pytest.mark.parametrize(
    ("box", "clipped"),
    [
        ((-5, 20, 30, 50), (0, 20, 30, 50)),
        ((10, -5, 30, 500), (10, 0, 30, 80)),
        ((-1e308, -1, 1e308, 81), (0, 0, 100, 80)),
        ((99.9, 20, 120, 50), (99.9, 20, 100, 50)),
        ((90, 20, 101, 20.01), (90, 20, 100, 20.01)),  # flat as it was, but not by clipping
    ],
)
def test_a_box_that_reaches_outside_is_clipped(
    box: tuple[float, ...], clipped: tuple[float, ...]
) -> None:
    repaired, (done,) = repair(dataset_of([box]))
    assert repaired.boxes.tolist() == [list(map(float, clipped))]
    assert (done.action, done.annotation_id) == ("clipped", 101)
    assert done.file == str(Path("data/0.doc"))
    assert " clipped to (" in done.message


def test_the_message_of_a_repair_names_the_old_and_the_new_box() -> None:
    _, (done,) = repair(dataset_of([(-5, 20, 30, 50.5)]))
    assert done.message == "box (-5, 20, 30, 50.5) clipped to (0, 20, 30, 50.5)"


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ((NAN, 20, 30, 50), "not finite"),
        ((30, 20, 10, 50), "its right or lower side comes first"),
        ((10, 20, 10, 50), "no area"),
        ((100, 20, 130, 50), "it lies outside its image"),
        ((99.96, 20, 130, 50), "it lies outside its image"),  # less left than the tolerance
        ((200, 200, 230, 250), "it lies outside its image"),
    ],
)
def test_a_box_without_area_is_dropped(box: tuple[float, ...], reason: str) -> None:
    repaired, (done,) = repair(dataset_of([INSIDE, box, INSIDE]))
    assert repaired.annotation_ids.tolist() == [101, 103]
    assert repaired.source_rows.tolist() == [0, 2]
    assert (done.action, done.annotation_id) == ("dropped", 102)
    assert reason in done.message


def test_valid_and_undecidable_boxes_stay() -> None:
    boxes = [(-0.05, 0, 100.05, 80), (-7, 0, 900, 9), (-7, 0, 900, 9), INSIDE, INSIDE]
    dataset = dataset_of(
        boxes, [0, 0, 0, UNKNOWN, 1], [0, 1, UNKNOWN, 0, 0], sizes=[(100, 80), (0, 0)]
    )
    repaired, repairs = repair(dataset)
    assert repairs == []
    assert repaired.boxes.tobytes() == dataset.boxes.tobytes()
    assert repaired.labels.tolist() == dataset.labels.tolist()


def test_an_annotation_that_could_not_be_read_is_kept() -> None:
    polygon = Finding("malformed", "a polygon", "data/0.doc", annotation_id=101)
    dataset = replace(dataset_of([(NAN,) * 4, (NAN,) * 4]), findings=(polygon,))
    mended, repairs = repair(dataset)
    assert mended.annotation_ids.tolist() == [101]
    assert [one.annotation_id for one in repairs] == [102]


def test_crowd_and_difficult_boxes_are_repaired_too() -> None:
    dataset = dataset_of([(-5, 0, 9, 9), (5, 5, 5, 5)])
    dataset.is_crowd[:] = True
    dataset.is_difficult[:] = True
    assert [one.action for one in repair(dataset)[1]] == ["clipped", "dropped"]


def test_findings_about_dropped_annotations_go_and_others_stay() -> None:
    gone = Finding("box-not-finite", "bad", "data/0.doc", None, 102)
    gone_too = Finding("unknown-category", "what?", "data/0.doc", None, 102)
    stays = Finding("unknown-category", "what?", "data/0.doc", None, 101)
    general = Finding("malformed", "odd", "data/0.doc")
    dataset = replace(dataset_of([INSIDE, [NAN] * 4]), findings=(gone, gone_too, stays, general))
    assert repair(dataset)[0].findings == (stays, general)
    twins = replace(dataset, annotation_ids=as_ids([102, 102]))
    assert repair(twins)[0].findings == (gone_too, stays, general)


sides = st.one_of(
    st.floats(-30, 150), st.sampled_from([0.0, -0.05, 80.05, 100.0, 99.96, 1e308, -1e308, NAN, INF])
)
boxes = st.lists(st.tuples(sides, sides, sides, sides), max_size=12)
sizes = st.sampled_from([(100, 80), (1, 1), (0, 0), (0, 5)])


@settings(max_examples=150, deadline=None)
@given(boxes=boxes, sizes=st.tuples(sizes, sizes), data=st.data())
def test_after_repair_no_box_error_is_left_and_the_input_is_as_before(
    boxes: list[tuple[float, ...]], sizes: tuple[tuple[int, int], ...], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(-1, 1), min_size=len(boxes), max_size=len(boxes)))
    dataset = dataset_of(boxes, image_rows=rows, sizes=sizes)
    before = dataset.boxes.tobytes()
    faulty = {finding.annotation_id for finding in find_findings(dataset, *BOX_ERRORS)}
    repaired, repairs = repair(dataset)
    assert find_findings(repaired, *BOX_ERRORS) == []
    assert {one.annotation_id for one in repairs} == faulty
    dropped = sum(one.action == "dropped" for one in repairs)
    assert len(repaired) == len(dataset) - dropped
    assert dataset.boxes.tobytes() == before
    untouched = [k for k, one in enumerate(repaired.annotation_ids) if one not in faulty]
    for k in untouched:
        original = repaired.source_rows[k]
        assert repaired.boxes[k].tobytes() == dataset.boxes[original].tobytes()
    json.dumps(compute_statistics(dataset), allow_nan=False)
