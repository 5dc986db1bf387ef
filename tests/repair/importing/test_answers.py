"""Which verdict a box that came back gives: single gestures, to the fraction of a pixel."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.fixes.verdicts import Verdict
from boxmend.data.types import Box
from boxmend.repair.importing.answers import AnswerIndex, image_verdicts, make_answer_index
from boxmend.repair.importing.tasks import ExportedRegion, ReturnedRegion, ReviewedImage

NAMES = ["van", "truck", "bus"]
OLD: Box = (10.0, 10.0, 50.0, 50.0)
NEW: Box = (10.0, 10.0, 60.0, 50.0)
SIZE = (100.0, 80.0)


def fixes_of(*kinds: Kind) -> Fixes:
    """Fixes of one annotation, a van: it is a truck, its box ends at 60, or it goes."""
    n = len(kinds)
    labels = [1 if kind == Kind.WRONG_LABEL else 0 for kind in kinds]
    boxes = [NEW if kind == Kind.BAD_BOX else OLD for kind in kinds]
    return Fixes(
        ids=[kind.words for kind in kinds],
        kinds=np.array(kinds, np.int8),
        rows=np.zeros(n, np.int64),
        image_rows=np.zeros(n, np.int64),
        old_labels=np.zeros(n, np.int64),
        new_labels=np.array(labels),
        old_boxes=np.array([OLD] * n),
        new_boxes=np.array(boxes),
        kept_rows=np.full(n, -1),
        p_wrong=np.ones(n),
        p_fix=np.ones(n),
        iou_gain=np.zeros(n),
        reasons=[""] * n,
    )


def answer_fixes(kinds: Sequence[Kind], label: str, box: Box) -> tuple[list[Verdict], AnswerIndex]:
    """The verdicts where the region of these fixes comes back like this."""
    fixes = fixes_of(*kinds)
    index = make_answer_index(fixes, NAMES, NAMES)
    handed = ExportedRegion("r", tuple(fixes.ids), "van", OLD)
    return list(
        image_verdicts(
            index, ReviewedImage("a", SIZE, (handed,), (ReturnedRegion("r", label, box),))
        )
    ), index


def list_verdicts(kinds: Sequence[Kind], label: str, box: Box) -> list[tuple[Any, ...]]:
    verdicts, _ = answer_fixes(kinds, label, box)
    return [(verdict.fix, verdict.answer, verdict.label, verdict.box) for verdict in verdicts]


def test_a_side_that_is_off_by_half_a_pixel_is_the_same() -> None:
    near, off = (10.5, 10.0, 60.0, 50.0), (10.6, 10.0, 60.0, 50.0)
    assert list_verdicts([Kind.BAD_BOX], "van", near) == [("bad box", "accept", None, None)]
    assert list_verdicts([Kind.BAD_BOX], "van", off) == [("bad box", "accept", None, off)]
    assert list_verdicts([Kind.BAD_BOX], "van", (10.5, 10.0, 50.0, 50.0)) == [
        ("bad box", "reject", None, None)
    ]


def test_a_box_that_was_left_stays_to_the_last_digit_where_the_label_is_changed() -> None:
    about = (10.3, 10.0, 50.0, 50.0)
    assert list_verdicts([Kind.BAD_BOX], "bus", about) == [("bad box", "accept", "bus", OLD)]


def test_label_and_box_are_answered_each_by_its_own_fix() -> None:
    both = [Kind.WRONG_LABEL, Kind.BAD_BOX]
    assert list_verdicts(both, "truck", OLD) == [
        ("wrong label", "accept", None, None),
        ("bad box", "reject", None, None),
    ]
    assert list_verdicts(both, "van", NEW) == [
        ("wrong label", "reject", None, None),
        ("bad box", "accept", None, None),
    ]


def test_a_box_beside_its_image_says_nothing() -> None:
    verdicts, index = answer_fixes([Kind.BAD_BOX], "van", (120.0, 10.0, 140.0, 50.0))
    assert verdicts == []
    assert index.counts["unreadable"] == 1
    verdicts, index = answer_fixes([Kind.SPURIOUS], "van", (10.0, 80.0, 50.0, 99.0))
    assert verdicts == []
    assert index.counts["unreadable"] == 1


def test_an_annotation_that_was_to_go_and_was_moved_stays_there() -> None:
    assert list_verdicts([Kind.SPURIOUS], "van", OLD) == [("spurious", "reject", None, None)]
    assert list_verdicts([Kind.SPURIOUS], "van", NEW) == [("spurious", "accept", None, NEW)]
    assert list_verdicts([Kind.DUPLICATE], "bus", OLD) == [("duplicate", "accept", "bus", None)]
