"""Fixes compared with a truth worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Box
from boxmend.scoring.fixes import (
    IN_ALL,
    assess_fixes,
    called_wrong,
    mark_erroneous,
    mark_right_fixes,
    measure_annotation_calibration,
)
from boxmend.scoring.missing import Proposed, mark_on_ignored, mark_right_proposals
from boxmend.scoring.truth import KnownTruth, TrueObjects
from tests.fabricated_runs import NOWHERE, Fix
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, fix, fixes_of, truth_of

BOX: Box = (0, 0, 10, 10)
FAR: Box = (50, 50, 60, 60)


def tall(height: float) -> Box:
    """A box within BOX: its IoU with it is height / 10."""
    return (0, 0, 10, height)


def right(dataset: Dataset, truth: KnownTruth, *fixes: Fix) -> list[bool]:
    marks: list[bool] = mark_right_fixes(dataset, fixes_of(dataset, *fixes), truth).tolist()
    return marks


def objects_of(truth: KnownTruth) -> TrueObjects:
    assert truth.objects is not None
    return truth.objects


def test_a_label_is_right_if_it_is_the_true_one_and_was_not_before() -> None:
    dataset = annotated([BOX] * 4, [VAN, VAN, BUS, VAN])
    truth = truth_of(dataset, [BUS, BUS, BUS, UNKNOWN], [BOX, BOX, BOX, NOWHERE])
    fixes = [
        fix(Kind.WRONG_LABEL, 0, BUS),
        fix(Kind.WRONG_LABEL, 1, TRUCK),
        fix(Kind.WRONG_LABEL, 2, BUS),  # changes nothing
        fix(Kind.WRONG_LABEL, 3, BUS),  # spurious
    ]
    assert right(dataset, truth, *fixes) == [True, False, False, False]


def test_a_label_that_the_dataset_does_not_know_is_not_right_by_not_being_known() -> None:
    dataset = annotated([BOX], [VAN])
    truth = truth_of(dataset, [VAN], [BOX])
    truth = replace(truth, labels=np.array([UNKNOWN]))  # an object, of a class it does not have
    assert right(dataset, truth, fix(Kind.WRONG_LABEL, 0, UNKNOWN)) == [False]


@pytest.mark.parametrize(
    ("before", "after", "is_right"),
    [
        (5.0, 7.0, True),  # exactly 0.7 will do
        (5.0, 6.9, False),
        (8.0, 9.0, True),  # not bad before, but better now
        (8.0, 8.0, False),
        (9.0, 8.0, False),
    ],
)
def test_a_box_is_right_if_it_is_nearer_and_near_enough(
    before: float, after: float, is_right: bool
) -> None:
    dataset = annotated([tall(before)], [VAN])
    truth = truth_of(dataset, [VAN], [BOX])
    assert right(dataset, truth, fix(Kind.BAD_BOX, 0, VAN, tall(after))) == [is_right]


def test_the_box_of_a_spurious_annotation_cannot_be_right() -> None:
    dataset = annotated([BOX], [VAN])
    truth = truth_of(dataset, [UNKNOWN], [NOWHERE])
    assert right(dataset, truth, fix(Kind.BAD_BOX, 0, VAN, tall(9))) == [False]


def test_the_fix_of_a_spurious_annotation_is_right_if_it_shows_no_object() -> None:
    dataset = annotated([BOX, FAR], [VAN, VAN])
    truth = truth_of(dataset, [VAN, UNKNOWN], [BOX, NOWHERE])
    assert right(dataset, truth, fix(Kind.SPURIOUS, 0), fix(Kind.SPURIOUS, 1)) == [False, True]


@pytest.mark.parametrize(
    ("label", "box", "image", "is_right"),
    [
        (BUS, tall(5), 0, True),  # exactly 0.5 will do
        (BUS, tall(4.9), 0, False),
        (VAN, BOX, 0, False),
        (BUS, BOX, 1, False),
        (TRUCK, FAR, 0, False),  # there is a truck, which is annotated
    ],
)
def test_a_missing_object_is_found_by_half_an_overlap_and_its_label(
    label: int, box: Box, image: int, is_right: bool
) -> None:
    dataset = annotated([FAR, FAR], [TRUCK, TRUCK], images=[0, 1])
    truth = truth_of(dataset, [TRUCK] * 2, [FAR] * 2, lacking=[BOX], lacking_labels=[BUS])
    assert right(dataset, truth, fix(Kind.MISSING, label=label, box=box, image=image)) == [is_right]


def test_a_missing_object_counts_once_for_the_most_probable() -> None:
    dataset = annotated([FAR], [VAN])
    truth = truth_of(dataset, [VAN], [FAR], lacking=[BOX])
    fixes = [fix(Kind.MISSING, label=VAN, box=tall(9), p=p) for p in (0.2, 0.8, 0.5)]
    assert right(dataset, truth, *fixes) == [False, True, False]


def test_of_two_missing_objects_each_is_found_by_one() -> None:
    dataset = annotated([FAR], [VAN])
    # Either lies on both; the surer takes the one it fits better, the other is left with the rest.
    truth = truth_of(dataset, [VAN], [FAR], lacking=[BOX, tall(8)])
    fixes = [fix(Kind.MISSING, label=VAN, box=tall(8), p=p) for p in (0.9, 0.8, 0.7)]
    assert right(dataset, truth, *fixes) == [True, True, False]


def test_a_duplicate_is_right_if_the_one_that_stays_is_of_the_same_object() -> None:
    dataset = annotated([BOX, tall(9), FAR, BOX], [VAN] * 4)
    truth = truth_of(dataset, [VAN, VAN, VAN, UNKNOWN], [BOX, BOX, FAR, NOWHERE], same_as={1: 0})
    fixes = [
        fix(Kind.DUPLICATE, 1, kept=0),
        fix(Kind.DUPLICATE, 2, kept=0),
        fix(Kind.DUPLICATE, 3, kept=0),  # spurious, so it repeats none
        fix(Kind.DUPLICATE, 2, kept=2),
    ]
    assert right(dataset, truth, *fixes) == [True, False, False, False]


def test_of_two_that_remove_each_other_only_one_is_right() -> None:
    dataset = annotated([BOX, tall(9)], [VAN] * 2)
    truth = truth_of(dataset, [VAN] * 2, [BOX] * 2, same_as={1: 0})
    fixes = [fix(Kind.DUPLICATE, 0, kept=1, p=0.4), fix(Kind.DUPLICATE, 1, kept=0, p=0.6)]
    assert right(dataset, truth, *fixes) == [False, True]


def test_fixes_are_counted_by_kind_and_in_all() -> None:
    dataset = annotated([BOX, FAR, tall(5)], [VAN, VAN, VAN])
    truth = truth_of(dataset, [BUS, UNKNOWN, VAN], [BOX, NOWHERE, BOX])
    fixes = fixes_of(
        dataset,
        fix(Kind.WRONG_LABEL, 0, BUS, p=0.8),
        fix(Kind.WRONG_LABEL, 2, BUS, p=0.6),
        fix(Kind.SPURIOUS, 1, p=0.9),
        fix(Kind.BAD_BOX, 2, VAN, tall(9), p=0.7),
    )
    scores = assess_fixes(dataset, fixes, truth).by_kind
    labels = scores["wrong label"]
    assert (labels.fixes, labels.right, labels.precision) == (2, 1, 0.5)
    assert labels.expected == pytest.approx(0.7)
    # 0.8 and 0.6 lie in bins of their own: |0.8 - 1| and |0.6 - 0|
    assert labels.calibration.error == pytest.approx((0.2 + 0.6) / 2)
    assert (scores["spurious"].right, scores["bad box"].right) == (1, 1)
    assert (scores["duplicate"].fixes, scores["duplicate"].precision) == (0, None)
    everything = scores[IN_ALL]
    assert (everything.fixes, everything.right, everything.precision) == (4, 3, 0.75)
    some = assess_fixes(dataset, fixes.take(np.array([0, 2])), truth)
    assert some.by_kind[IN_ALL].precision == 1
    assert some.to_json()["in all"]["calibration"]["number"] == 2


def test_objects_proposed_on_ignored_ones_count_neither_way() -> None:
    dataset = annotated([BOX, FAR], [VAN, VAN])
    dataset.is_crowd[0] = True
    dataset.is_difficult[1] = True
    truth = truth_of(dataset, [VAN, VAN], [BOX, FAR])
    fixes = fixes_of(
        dataset,
        fix(Kind.MISSING, label=VAN, box=tall(3)),  # within the crowd
        fix(Kind.MISSING, label=VAN, box=(50, 50, 60, 55)),  # half of the difficult one
        fix(Kind.MISSING, label=VAN, box=(50, 50, 60, 54)),  # less than half of it
    )
    missing = assess_fixes(dataset, fixes, truth).by_kind["missing"]
    assert (missing.fixes, missing.right) == (1, 0)


def test_missing_objects_are_left_out_where_the_truth_does_not_know_them_all() -> None:
    dataset = annotated([BOX], [VAN])
    truth = truth_of(dataset, [VAN], [BOX], are_all_known=False)
    scores = assess_fixes(dataset, fixes_of(dataset, fix(Kind.MISSING, label=VAN, box=FAR)), truth)
    assert "missing" not in scores.by_kind
    assert scores.by_kind[IN_ALL].fixes == 0


def test_a_spurious_annotation_has_no_other_error() -> None:
    dataset = annotated([BOX, tall(6), BOX], [VAN, BUS, VAN])
    truth = truth_of(dataset, [UNKNOWN, VAN, VAN], [NOWHERE, BOX, BOX])
    even = np.full(3, 0.5)

    def errors(kind: Kind) -> list[bool]:
        marks: list[bool] = mark_erroneous(dataset, truth, kind, even).tolist()
        return marks

    assert errors(Kind.SPURIOUS) == [True, False, False]
    assert errors(Kind.WRONG_LABEL) == [False, True, False]
    assert errors(Kind.BAD_BOX) == [False, True, False]
    assert errors(Kind.DUPLICATE) == [False, False, False]


def test_of_several_annotations_of_an_object_the_least_suspected_is_no_duplicate() -> None:
    dataset = annotated([BOX, BOX, BOX, FAR], [VAN] * 4)
    truth = truth_of(dataset, [VAN] * 4, [BOX] * 3 + [FAR], same_as={1: 0, 2: 0})
    p_wrong = np.array([0.9, 0.2, 0.7, 0.1])
    marks = mark_erroneous(dataset, truth, Kind.DUPLICATE, p_wrong)
    assert marks.tolist() == [True, False, True, False]
    unsaid = np.full(4, np.nan)
    assert mark_erroneous(dataset, truth, Kind.DUPLICATE, unsaid).tolist() == [
        False,
        True,
        True,
        False,
    ]


def test_spurious_annotations_are_not_duplicates_of_each_other() -> None:
    dataset = annotated([BOX, BOX], [VAN] * 2)
    truth = truth_of(dataset, [UNKNOWN] * 2, [NOWHERE] * 2)
    assert mark_erroneous(dataset, truth, Kind.DUPLICATE, np.zeros(2)).tolist() == [False, False]


def test_of_equally_probable_objects_the_better_box_is_right() -> None:
    dataset = annotated([FAR], [VAN])
    truth = truth_of(dataset, [VAN], [FAR], lacking=[BOX])
    fixes = [fix(Kind.MISSING, label=VAN, box=tall(height)) for height in (6, 9, 7)]
    assert right(dataset, truth, *fixes) == [False, True, False]


def test_probabilities_of_all_annotations_are_compared_with_the_truth() -> None:
    dataset = annotated([BOX, BOX, BOX, BOX], [VAN, VAN, BUS, VAN])
    truth = truth_of(dataset, [BUS, VAN, BUS, UNKNOWN], [BOX, BOX, BOX, NOWHERE])
    p_wrong = {Kind.WRONG_LABEL: np.array([1.0, 0.0, np.nan, 0.5])}
    labels = measure_annotation_calibration(dataset, truth, p_wrong)["wrong label"]
    assert labels.number == 3
    assert labels.error == pytest.approx(0.5 / 3)  # a spurious annotation has no wrong label


def test_annotations_are_called_wrong_from_a_probability_of_one_half_on() -> None:
    p_wrong = {
        Kind.WRONG_LABEL: np.array([0.5, 0.49, 0.0, np.nan]),
        Kind.SPURIOUS: np.array([0.9, 0.0, 0.6, np.nan]),
    }
    assert called_wrong(p_wrong) == {"wrong label": 1 / 3, "spurious": 2 / 3, IN_ALL: 2 / 3}
    assert called_wrong({}) == {IN_ALL: None}


def test_the_order_of_proposed_objects_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    dataset = annotated([FAR] * 3, [VAN] * 3, images=[0, 1, 2])
    lacking: list[Box] = [(x, 0.0, x + 10, 10.0) for x in (0.0, 3.0, 30.0)]
    truth = truth_of(dataset, [VAN] * 3, [FAR] * 3, lacking=lacking, lacking_labels=[VAN, BUS, VAN])
    corners = rng.uniform(0, 35, (300, 1)) * [1, 0, 1, 0]
    proposed = Proposed(
        rng.integers(0, 2, 300),
        rng.integers(0, 2, 300) * BUS,
        corners + np.array([0, 0, 10, 10]),
        rng.permutation(300) / 300,
    )
    result = mark_right_proposals(proposed, objects_of(truth))
    order = rng.permutation(300)
    shuffled = Proposed(*(getattr(proposed, name)[order] for name in vars(proposed)))
    assert mark_right_proposals(shuffled, objects_of(truth)).tolist() == result[order].tolist()
    assert result.sum() == 3
    assert not mark_on_ignored(proposed, dataset).any()
