"""A corrected dataset whose annotations do not pair up, matched by hand."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import Dataset
from boxmend.data.types import Box
from boxmend.errors import DataError
from boxmend.scoring.finders.kinds import compare_kinds
from boxmend.scoring.fixes import assess_fixes, measure_annotation_calibration
from boxmend.scoring.truth import KnownTruth, TrueObjects
from boxmend.scoring.truth_by_overlap import match_with_correction, truth_of_correction
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, detected, fix, fixes_of

A: Box = (0, 0, 20, 20)
B: Box = (50, 50, 70, 70)
C: Box = (0, 60, 20, 80)
D: Box = (60, 0, 80, 20)


def low(height: float) -> Box:
    """A box within A: its IoU with it is height / 20."""
    return (0, 0, 20, height)


def match(dataset: Dataset, clean: Dataset) -> tuple[KnownTruth, TrueObjects]:
    truth = match_with_correction(clean, dataset).truth
    assert truth.objects is not None
    return truth, truth.objects


def test_annotations_are_matched_one_to_one_whatever_their_ids_and_order() -> None:
    dataset = annotated([A, B, C], [VAN, VAN, BUS], ids=[1, 2, 3])
    clean = annotated([C, low(16), D], [BUS, TRUCK, VAN], ids=[70, 80, 90])
    result = match_with_correction(clean, dataset)
    assert (result.is_by_overlap, result.num_matched) == (True, 2)
    truth, objects = match(dataset, clean)
    assert truth.labels.tolist() == [TRUCK, -1, BUS]
    assert truth.boxes[0].tolist() == list(low(16))
    assert truth.is_spurious.tolist() == [False, True, False]
    assert truth.is_wrong(dataset.labels).tolist() == [True, True, False]
    assert objects.object_rows.tolist() == [1, -1, 0]
    assert objects.is_missing.tolist() == [False, False, True]
    assert objects.are_all_known


def test_the_total_overlap_counts_not_the_first_come() -> None:
    # The annotation of 20 x 20 overlaps both objects by 0.5 or more; only it can have the second.
    dataset = annotated([A, low(9)], [VAN, VAN])
    clean = annotated([low(10), low(19)], [VAN, VAN])
    _, objects = match(dataset, clean)
    assert objects.object_rows.tolist() == [1, 0]


def test_a_label_decides_between_objects_that_overlap_about_as_much() -> None:
    dataset = annotated([A], [BUS])
    clean = annotated([low(19), low(18)], [VAN, BUS])
    truth, objects = match(dataset, clean)
    assert truth.labels.tolist() == [BUS]
    assert objects.is_missing.tolist() == [True, False]
    assert match(dataset, annotated([low(19), low(12)], [VAN, BUS]))[0].labels.tolist() == [VAN]


@pytest.mark.parametrize(("height", "is_matched"), [(6, True), (5.9, False)])
def test_an_overlap_of_three_tenths_is_a_match(height: float, is_matched: bool) -> None:
    dataset = annotated([A, B], [VAN, VAN])
    truth, _ = match(dataset, annotated([low(height), B], [VAN, VAN]))
    assert truth.is_spurious.tolist() == [not is_matched, False]


def test_a_second_annotation_of_a_label_is_a_duplicate_and_of_another_label_spurious() -> None:
    dataset = annotated([A, low(12), low(11), B], [VAN, VAN, BUS, VAN])
    truth, objects = match(dataset, annotated([A, B], [VAN, VAN]))
    assert objects.object_rows.tolist() == [0, 0, -1, 1]
    assert truth.is_spurious.tolist() == [False, False, True, False]


def test_difficult_and_crowd_objects_of_the_correction_are_neutral() -> None:
    dataset = annotated([A, B, C, D], [VAN] * 4)
    crowd: Box = (55, 0, 75, 40)  # holds three quarters of D
    clean = annotated([A, B, C, crowd], [VAN, BUS, VAN, VAN])
    clean.is_difficult[1] = True
    clean.is_crowd[3] = True
    truth, objects = match(dataset, clean)
    assert truth.is_neutral is not None
    assert truth.is_neutral.tolist() == [False, True, False, True]
    assert not truth.is_spurious.any()
    assert len(objects.labels) == 2
    assert not objects.is_missing.any()


def test_objects_inside_a_crowd_of_the_dataset_are_not_missing() -> None:
    dataset = annotated([A, (40, 40, 90, 90)], [VAN, VAN])
    dataset.is_crowd[1] = True
    _, objects = match(dataset, annotated([A, B, D], [VAN, VAN, VAN]))
    assert objects.boxes.tolist() == [list(A), list(D)]
    assert objects.is_missing.tolist() == [False, True]


def test_neutral_annotations_and_objects_do_not_count() -> None:
    pytest.importorskip("cleanlab")
    dataset = annotated([A, B, C], [VAN, VAN, VAN])
    clean = annotated([A, B, C, D], [BUS, VAN, VAN, VAN])
    clean.is_difficult[[1, 3]] = True
    truth, _ = match(dataset, clean)
    p_wrong = {
        Kind.WRONG_LABEL: np.array([0.8, 0.9, 0.1]),
        Kind.SPURIOUS: np.array([0.1, 0.9, 0.2]),
    }
    fixes = fixes_of(
        dataset,
        fix(Kind.SPURIOUS, 1, p=0.9),
        fix(Kind.WRONG_LABEL, 0, label=BUS, p=0.8),
        fix(Kind.MISSING, label=VAN, box=D, p=0.7),
        fix(Kind.MISSING, label=VAN, box=(30, 30, 40, 40), p=0.6),
    )
    scores = assess_fixes(dataset, fixes, truth).by_kind
    assert (scores["spurious"].fixes, scores["wrong label"].right) == (0, 1)
    assert (scores["missing"].fixes, scores["missing"].right) == (1, 0)
    calibration = measure_annotation_calibration(dataset, truth, p_wrong)
    assert calibration["spurious"].number == 2
    missing = fixes.take(np.array([2, 3]))
    seen = detected((0, BUS, 0.9, A))
    table = compare_kinds(dataset, truth, seen, p_wrong, missing)
    assert table.annotations == 2
    rows = {(row.finder, row.kind): row for row in table.scores}
    assert rows["boxmend", "wrong label"].flagged == 1
    assert rows["boxmend", "wrong label"].average_precision == 1
    assert rows["boxmend", "missing"].flagged == 1


def test_ids_are_used_where_they_pair_up() -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=[1, 2])
    clean = annotated([B, A], [BUS, BUS], ids=[2, 1])
    result = truth_of_correction(clean, dataset)
    assert not result.is_by_overlap
    assert result.truth.labels.tolist() == [BUS, BUS]


@pytest.mark.parametrize("ids", [[7, 8, 9], [2, 3, 1]])
def test_foreign_and_shifted_ids_are_matched_by_overlap(ids: list[int]) -> None:
    dataset = annotated([A, B, C], [VAN, BUS, VAN], ids=[1, 2, 3])
    clean = replace(annotated([A, B, C], [VAN, BUS, TRUCK]), annotation_ids=np.array(ids))
    result = truth_of_correction(clean, dataset)
    assert result.is_by_overlap
    assert result.truth.labels.tolist() == [VAN, BUS, TRUCK]


def test_another_dataset_is_refused() -> None:
    dataset = annotated([A, B, C], [VAN] * 3, ids=[1, 2, 3])
    other = annotated([D, low(20)], [VAN] * 2, ids=[8, 9])
    with pytest.raises(DataError, match="only 1 of 3 annotations overlap an object in it"):
        truth_of_correction(other, dataset)


def test_images_without_annotations_have_missing_objects_only() -> None:
    dataset = annotated([A, B], [VAN, VAN], images=[0, 2], ids=[1, 2])
    clean = annotated([B, A, C], [VAN, VAN, BUS], images=[2, 0, 1], ids=[7, 8, 9])
    truth, objects = match(dataset, clean)
    assert objects.object_rows.tolist() == [1, 0]
    assert objects.image_rows[objects.is_missing].tolist() == [1]
    assert not truth.is_spurious.any()


def test_a_truth_with_an_image_in_several_splits_names_them() -> None:
    dataset = annotated([A, B], [VAN, BUS], ids=[1, 2])
    clean = annotated([A, B], [VAN, BUS], images=[0, 1], ids=[7, 8])
    clean.images.file_names[1] = "0.png"
    clean.images.splits[:] = ["old", "new"]
    with pytest.raises(DataError, match=r"has 0\.png more than once, in new and old; name the"):
        truth_of_correction(clean, dataset)
    clean.images.splits[1] = dataset.images.splits[0]
    assert truth_of_correction(clean, dataset).num_matched == 1  # the image of the same split
