"""Errors found and repaired, counted by hand."""

import numpy as np

from boxmend.auditing.fixes.table import Kind
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box
from boxmend.scoring.fixes import IN_ALL
from boxmend.scoring.repairs import RepairCounts, count_repairs
from tests.fabricated_runs import NOWHERE, Fix
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, fix, fixes_of, truth_of

BOX: Box = (0, 0, 10, 10)
HALF: Box = (0, 0, 10, 5)
CLOSE: Box = (0, 0, 10, 8)
FAR: Box = (50, 50, 60, 60)


def counted(*made: tuple[Fix, bool], are_all_known: bool = True) -> dict[str, RepairCounts]:
    """Six annotations: two vans that are buses, a bad box, a good one, nothing, and a duplicate.

    The fixes are given with whether they are applied. One van is missing.
    """
    boxes = [BOX, BOX, HALF, CLOSE, FAR, BOX]
    dataset = annotated(boxes, [VAN, VAN, VAN, VAN, VAN, BUS], images=[0, 1, 2, 3, 0, 0])
    truth = truth_of(
        dataset,
        [BUS, BUS, VAN, VAN, UNKNOWN, BUS],
        [BOX, BOX, BOX, BOX, NOWHERE, BOX],
        lacking=[(70, 70, 90, 90)],
        same_as={5: 0},
        are_all_known=are_all_known,
    )
    fixes = fixes_of(dataset, *(one for one, _ in made))
    return count_repairs(dataset, fixes, np.array([taken for _, taken in made], np.bool_), truth)


def test_without_fixes_all_errors_are_left() -> None:
    counts = counted()
    assert counts["wrong label"] == RepairCounts(2, 0, 0, 0, 0)
    assert counts["bad box"] == RepairCounts(1, 0, 0, 0, 0)
    assert counts["missing"] == RepairCounts(1, 0, 0, 0, 0)
    assert counts["spurious"] == RepairCounts(1, 0, 0, 0, 0)
    assert counts["duplicate"] == RepairCounts(1, 0, 0, 0, 0)
    assert counts[IN_ALL] == RepairCounts(6, 0, 0, 0, 0)


def test_a_right_fix_repairs_a_wrong_one_harms_and_one_that_is_not_applied_only_finds() -> None:
    counts = counted(
        (fix(Kind.WRONG_LABEL, 0, BUS), True),  # repairs
        (fix(Kind.WRONG_LABEL, 1, TRUCK), True),  # finds, but gives another wrong label
        (fix(Kind.BAD_BOX, 2, VAN, BOX), False),  # finds
        (fix(Kind.SPURIOUS, 4), True),
        (fix(Kind.SPURIOUS, 3), True),  # removes a good annotation
        (fix(Kind.MISSING, label=VAN, box=(70, 70, 90, 90)), True),
        (fix(Kind.DUPLICATE, 5, kept=0), False),
    )
    assert counts["wrong label"] == RepairCounts(2, 2, 1, 2, 1)
    assert counts["bad box"] == RepairCounts(1, 1, 0, 0, 0)
    assert counts["spurious"] == RepairCounts(1, 1, 1, 2, 1)
    assert counts["missing"] == RepairCounts(1, 1, 1, 1, 0)
    assert counts["duplicate"] == RepairCounts(1, 1, 0, 0, 0)
    assert counts[IN_ALL] == RepairCounts(6, 6, 3, 5, 2)


def test_an_improbable_fix_does_not_find_its_error() -> None:
    counts = counted(
        (fix(Kind.WRONG_LABEL, 0, BUS, p=0.49), False), (fix(Kind.SPURIOUS, 4, p=0.5), False)
    )
    assert counts["wrong label"].found == 0
    assert counts["spurious"].found == 1


def test_a_better_box_of_a_good_annotation_is_right_but_repairs_no_error() -> None:
    counts = counted((fix(Kind.BAD_BOX, 3, VAN, BOX), True))
    assert counts["bad box"] == RepairCounts(1, 0, 0, 1, 0)


def test_missing_objects_are_left_out_if_the_truth_does_not_have_all() -> None:
    counts = counted((fix(Kind.MISSING, label=VAN, box=FAR), True), are_all_known=False)
    assert "missing" not in counts
    assert counts[IN_ALL] == RepairCounts(5, 0, 0, 0, 0)
    assert counts[IN_ALL].to_json() == {
        "errors": 5,
        "found": 0,
        "repaired": 0,
        "applied": 0,
        "wrong": 0,
    }
