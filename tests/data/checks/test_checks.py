"""Checks of the columns: boxes, duplicates, images without annotations, rare labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.checks import check, compute_statistics, repair
from boxmend.data.dataset import UNKNOWN
from boxmend.data.findings import Finding
from boxmend.data.joining import join
from tests.data.checks.handmade import BOX_ERRORS, INF, INSIDE, NAN, dataset_of, find_findings


def kinds(findings: Sequence[Finding]) -> list[str]:
    return [finding.kind for finding in findings]


def test_an_annotation_that_could_not_be_read_is_not_reported_again_for_its_box() -> None:
    dataset = dataset_of([(NAN,) * 4, (NAN,) * 4])
    reported = Finding("malformed", "a polygon", "data", annotation_id=101)
    findings = check(replace(dataset, findings=(reported,)), open_images=False)
    assert [finding.annotation_id for finding in findings if finding.kind == "box-not-finite"] == [
        102
    ]


def test_a_clean_dataset_has_no_findings() -> None:
    assert check(dataset_of([INSIDE, (0, 0, 100, 80)], [0, 1]), open_images=False) == []


def test_an_empty_dataset_is_checked_counted_and_repaired() -> None:
    nothing = dataset_of(sizes=(), label_names=())
    assert check(nothing) == []
    assert compute_statistics(nothing)["images"] == 0
    assert repair(nothing)[1] == []


@pytest.mark.parametrize(
    ("box", "kind", "reported"),
    [
        (
            (30, 20, 10, 50),
            "box-flipped",
            "box (30, 20, 10, 50) (xyxy) has its right or lower side first",
        ),
        (
            (10, 50, 30, 20),
            "box-flipped",
            "box (10, 50, 30, 20) (xyxy) has its right or lower side first",
        ),
        ((10, 20, 10, 50), "box-empty", "zero width"),
        ((10, 20, 30, 20), "box-empty", "zero height"),
        ((10, 20, 10, 20), "box-empty", "zero width and zero height"),
        ((NAN, 20, 30, 50), "box-not-finite", "box (nan, 20, 30, 50)"),
        ((10, 20, INF, 50), "box-not-finite", "box (10, 20, inf, 50)"),
        ((-2.5, 20, 30, 50), "box-outside", "(100 x 80): 2.5 px on the left"),
        ((10, -1, 30, 50), "box-outside", "1 px at the top"),
        ((10, 20, 104, 50), "box-outside", "4 px on the right"),
        ((10, 20, 30, 80.25), "box-outside", "0.25 px at the bottom"),
        ((-3, 20, 104, 50), "box-outside", "3 px on the left, 4 px on the right"),
        ((-1e308, 20, 1e308, 50), "box-outside", "1e+308 px on the left"),
    ],
)
def test_a_faulty_box_is_reported_once_with_its_numbers_and_its_place(
    box: tuple[float, ...], kind: str, reported: str
) -> None:
    (finding,) = find_findings(dataset_of([INSIDE, box], [0, 1]), *BOX_ERRORS)
    assert finding.kind == kind
    assert reported in finding.message
    assert (finding.annotation_id, finding.image) == (102, "0.jpg")
    assert finding.file == str(Path("data/0.doc"))


def test_a_twentieth_of_a_pixel_outside_is_tolerated_and_more_is_not() -> None:
    assert find_findings(dataset_of([(-0.05, -0.05, 100.05, 80.05)]), *BOX_ERRORS) == []
    assert kinds(find_findings(dataset_of([(-0.06, 0, 100, 80)]), *BOX_ERRORS)) == ["box-outside"]


@pytest.mark.parametrize("size", [(0, 0), (0, 80), (100, 0)])
def test_nothing_is_outside_an_image_of_unknown_size(size: tuple[int, int]) -> None:
    assert find_findings(dataset_of([(-5, 0, 500, 90)], sizes=[size]), *BOX_ERRORS) == []


def test_nothing_is_outside_an_image_that_does_not_exist() -> None:
    dataset = dataset_of([(-5, 0, 500, 90)], image_rows=[UNKNOWN])
    assert find_findings(dataset, *BOX_ERRORS) == []
    (finding,) = find_findings(dataset_of([(3, 0, 1, 9)], image_rows=[UNKNOWN]), *BOX_ERRORS)
    assert (finding.kind, finding.image) == ("box-flipped", None)


def test_each_box_is_compared_with_its_own_image() -> None:
    boxes = [(0, 0, 60, 60), (0, 0, 60, 60)]
    dataset = dataset_of(boxes, image_rows=[0, 1], sizes=[(60, 60), (50, 60)])
    (finding,) = find_findings(dataset, *BOX_ERRORS)
    assert (finding.annotation_id, finding.image) == (102, "1.jpg")
    assert finding.file == str(Path("data/1.doc"))


def test_voc_with_a_coordinate_of_zero_names_the_reason_that_voc_counts_from_one() -> None:
    box = (-1, 3, 20, 30)  # xmin 0
    assert (
        "VOC counts pixels from 1"
        in find_findings(dataset_of([box], format="voc"), "box-outside")[0].message
    )
    assert "VOC" not in find_findings(dataset_of([box]), "box-outside")[0].message
    further = dataset_of([(-2, 3, 20, 30)], format="voc")
    assert "VOC" not in find_findings(further, "box-outside")[0].message


def test_crowd_boxes_are_checked_too() -> None:
    dataset = replace(dataset_of([(5, 5, 1, 9)]), is_crowd=np.array([True]))
    assert kinds(find_findings(dataset, *BOX_ERRORS)) == ["box-flipped"]


def test_what_the_reader_reported_comes_first_and_is_not_reported_again() -> None:
    reported = Finding("box-not-finite", "bbox is 'x'", str(Path("data/0.doc")), None, 101)
    dataset = replace(dataset_of([[NAN] * 4, [NAN] * 4]), findings=(reported,))
    findings = find_findings(dataset, *BOX_ERRORS)
    assert findings[0] is reported
    assert [finding.annotation_id for finding in findings] == [101, 102]


def test_shares_of_an_image_of_unknown_size_are_not_a_fault_of_the_box() -> None:
    boxes, sizes = [[NAN] * 4] * 3, [(100, 80), (0, 0)]
    dataset = dataset_of(boxes, image_rows=[0, 1, UNKNOWN], sizes=sizes, format="yolo")
    assert [finding.annotation_id for finding in find_findings(dataset, *BOX_ERRORS)] == [101]
    repaired, _ = repair(dataset)
    assert repaired.annotation_ids.tolist() == [102, 103]
    pixels = dataset_of(boxes, image_rows=[0, 1, UNKNOWN], sizes=sizes, format="voc")
    assert len(find_findings(pixels, *BOX_ERRORS)) == 3


def test_names_that_are_not_names_are_replaced_by_the_image_id() -> None:
    dataset = dataset_of([(5, 5, 1, 9)])
    dataset.images.file_names[0] = ""
    assert find_findings(dataset, "box-flipped")[0].image == "0"


# Duplicate boxes, bare images, rare labels


def test_the_same_box_twice_names_both_ids_and_whether_the_labels_agree() -> None:
    dataset = dataset_of([INSIDE, (1, 2, 3, 4), INSIDE, INSIDE], [0, 0, 0, 1])
    same, other = find_findings(dataset, "duplicate-box")
    assert (same.annotation_id, other.annotation_id) == (103, 104)
    assert "as annotation 101 and the same label, 'cat'" in same.message
    assert "as annotation 101 but another label: 'dog', not 'cat'" in other.message
    assert "(10, 20, 30, 50)" in same.message


def test_the_same_box_in_another_image_or_of_a_crowd_is_not_a_duplicate() -> None:
    dataset = dataset_of([INSIDE, INSIDE], image_rows=[0, 1], sizes=[(100, 80), (100, 80)])
    assert find_findings(dataset, "duplicate-box") == []
    crowd = replace(dataset_of([INSIDE, INSIDE]), is_crowd=np.array([False, True]))
    assert find_findings(crowd, "duplicate-box") == []
    nowhere = dataset_of([INSIDE, INSIDE], image_rows=[UNKNOWN, UNKNOWN])
    assert find_findings(nowhere, "duplicate-box") == []
    assert find_findings(dataset_of([[NAN] * 4, [NAN] * 4]), "duplicate-box") == []


def test_zero_and_minus_zero_are_the_same_coordinate() -> None:
    dataset = dataset_of([(0.0, 0.0, 5.0, 5.0), (-0.0, 0.0, 5.0, 5.0)])
    assert len(find_findings(dataset, "duplicate-box")) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([5.0, 6.5])), max_size=25
    )
)
def test_duplicates_are_those_that_a_plain_search_finds(
    entries: list[tuple[int, int, float]],
) -> None:
    boxes = [(float(x), 0.0, end, 7.0) for _, x, end in entries]
    images = [image for image, _, _ in entries]
    dataset = dataset_of(boxes, image_rows=images, sizes=[(100, 80)] * 3)
    keys = list(zip(images, boxes, strict=True))
    expected = [101 + k for k, key in enumerate(keys) if key in keys[:k]]
    assert [
        finding.annotation_id for finding in find_findings(dataset, "duplicate-box")
    ] == expected


def test_every_image_without_annotations_is_reported() -> None:
    dataset = dataset_of([INSIDE], image_rows=[1], sizes=[(100, 80)] * 3)
    findings = find_findings(dataset, "no-annotations")
    assert [finding.image for finding in findings] == ["0.jpg", "2.jpg"]
    assert findings[1].file == str(Path("data/2.doc"))


TWENTY = [(k, 0, k + 1, 1) for k in range(20)]  # ten for each of two labels, on average


def test_a_label_without_annotations_is_reported_if_there_are_enough_of_others() -> None:
    (finding,) = find_findings(dataset_of(TWENTY), "class-imbalance")
    assert finding.message == "label 'dog' has no annotations"
    assert finding.file == "data"
    assert find_findings(dataset_of(TWENTY[:19]), "class-imbalance") == []


def test_a_label_is_rare_when_another_is_more_than_a_hundred_times_as_frequent() -> None:
    boxes = [(k, 0, k + 1, 1) for k in range(102)]
    at_the_limit = dataset_of(boxes[:101], [0] * 100 + [1], sizes=[(200, 80)])
    assert find_findings(at_the_limit, "class-imbalance") == []
    (finding,) = find_findings(dataset_of(boxes, [0] * 101 + [1]), "class-imbalance")
    assert finding.message == "label 'dog' has 1 annotation, 'cat' has 101: 101 times as many"


def test_a_label_is_blamed_on_the_source_that_declares_it() -> None:
    one = dataset_of(TWENTY, label_names=("cat",))
    two = dataset_of([], label_names=("newt",))
    two.sources[0].path = Path("other")
    (finding,) = find_findings(join([one, two]), "class-imbalance")
    assert finding.file == "other"


def test_unknown_labels_are_not_counted() -> None:
    labels = [0] * 20 + [UNKNOWN] * 20
    (finding,) = find_findings(dataset_of(TWENTY * 2, labels), "class-imbalance")
    assert "'dog'" in finding.message
    labels = [0] * 19 + [UNKNOWN] * 21
    assert find_findings(dataset_of(TWENTY * 2, labels), "class-imbalance") == []
