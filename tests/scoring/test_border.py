"""What the border of an image cuts does not count, by hand in an image of 100 x 100."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend.auditing.fixes.table import Kind
from boxmend.data.boxes import are_at_border
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box
from boxmend.errors import DataError
from boxmend.scoring.border import leave_out_border
from boxmend.scoring.fixes import assess_fixes, get_true_objects
from boxmend.scoring.truth import IgnoredObjects
from tests.fabricated_runs import NOWHERE
from tests.scoring.assessed import VAN, annotated, fix, fixes_of, truth_of

INNER: Box = (40, 40, 60, 60)
LEFT: Box = (2, 40, 20, 60)
LOW: Box = (40, 80, 60, 98)
MARGIN_PX = 2


@pytest.mark.parametrize(
    ("box", "is_at_border"),
    [
        (INNER, False),
        ((2, 40, 20, 60), True),
        ((2.1, 40, 20, 60), False),
        ((40, 2, 60, 20), True),
        ((80, 40, 98, 60), True),
        ((80, 40, 97.9, 60), False),
        ((40, 60, 60, 197), False),  # the height is 200
        ((40, 60, 60, 198), True),
        (NOWHERE, False),
    ],
)
def test_boxes_within_a_margin_are_at_the_border(box: Box, is_at_border: bool) -> None:
    boxes, sizes = np.array([box]), np.array([[100.0, 200.0]])
    assert are_at_border(boxes, sizes, MARGIN_PX).tolist() == [is_at_border]


def test_an_unknown_size_has_no_far_border() -> None:
    boxes = np.array([INNER, LEFT])
    assert are_at_border(boxes, np.zeros((2, 2)), MARGIN_PX).tolist() == [False, True]


def test_annotations_are_neutral_by_their_true_box_or_their_own_without_one() -> None:
    dataset = annotated([LEFT, INNER, LOW, INNER, INNER], [VAN] * 5)
    dataset.image_rows[4] = UNKNOWN
    labels = [VAN, VAN, UNKNOWN, UNKNOWN, VAN]
    truth = truth_of(dataset, labels, [INNER, LEFT, NOWHERE, NOWHERE, LEFT])
    neutral = replace(truth, is_neutral=np.array([True, False, False, False, False]))
    assert leave_out_border(truth, dataset, MARGIN_PX).is_counted.tolist() == [
        *(True, False, False, True, True)
    ]
    assert not leave_out_border(neutral, dataset, MARGIN_PX).is_counted[0]


def test_missing_objects_at_the_border_do_not_count_and_matched_ones_stay() -> None:
    dataset = annotated([LOW, INNER], [VAN, VAN])
    truth = truth_of(dataset, [VAN, VAN], [LOW, INNER], lacking=[LEFT, (70, 70, 80, 80)])
    objects = get_true_objects(truth)
    order = np.array([2, 0, 3, 1])  # the one to leave out comes first
    shuffled = replace(
        objects,
        image_rows=objects.image_rows[order],
        boxes=objects.boxes[order],
        labels=objects.labels[order],
        object_rows=np.array([1, 3]),
    )
    crowd = IgnoredObjects(np.array([0]), np.array([INNER]), np.array([True]))
    left = leave_out_border(replace(truth, objects=shuffled, ignored=crowd), dataset, MARGIN_PX)
    kept = get_true_objects(left)
    assert kept.boxes.tolist() == [list(LOW), [70, 70, 80, 80], list(INNER)]
    assert kept.object_rows.tolist() == [0, 2]
    assert kept.is_missing.tolist() == [False, True, False]
    assert left.ignored is not None
    assert left.ignored.boxes.tolist() == [list(INNER), list(LEFT)]
    assert left.ignored.is_crowd.tolist() == [True, False]


def test_proposals_at_the_border_count_only_if_they_are_right() -> None:
    dataset = annotated([INNER], [VAN])
    near: Box = (3, 10, 20, 30)
    truth = truth_of(dataset, [VAN], [INNER], lacking=[LEFT, near])
    fixes = fixes_of(
        dataset,
        fix(Kind.MISSING, label=VAN, box=(4, 40, 20, 60), p=0.9),  # on the object that is left out
        fix(Kind.MISSING, label=VAN, box=(0, 10, 20, 30), p=0.8),  # finds the inner object
        fix(Kind.MISSING, label=VAN, box=(0, 70, 20, 90), p=0.7),  # on background
        fix(Kind.MISSING, label=VAN, box=(70, 70, 90, 90), p=0.6),  # away from the border
    )
    counts = assess_fixes(dataset, fixes, leave_out_border(truth, dataset, MARGIN_PX)).by_kind
    assert (counts["missing"].fixes, counts["missing"].right) == (2, 1)
    counts = assess_fixes(dataset, fixes, truth).by_kind
    assert (counts["missing"].fixes, counts["missing"].right) == (4, 2)


def test_an_image_of_unknown_size_is_named() -> None:
    dataset = annotated([INNER], [VAN])
    dataset.images.widths[0] = 0
    with pytest.raises(DataError, match=r"0\.png: its size is unknown"):
        leave_out_border(truth_of(dataset, [VAN], [INNER]), dataset, MARGIN_PX)
