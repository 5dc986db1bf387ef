"""From opinions to fixes: made-up opinions, and the rows that follow from them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing.boxes import BoxModel, BoxOpinion
from boxmend.auditing.calibration import Share
from boxmend.auditing.duplicates import Repeats
from boxmend.auditing.evidence import Detected, Evidence
from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.auditing.judging import AuditOpinion
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.missing import UnexplainedDetections
from boxmend.auditing.presence import Presence
from boxmend.auditing.tables import compute_p_wrong, join_fixes, make_fixes, make_missing_fixes
from boxmend.data.dataset import Dataset
from tests.auditing.audit_scenes import dataset_of

UNKNOWN_SHARE = Share(0.0, 0.0, 1.0)
NONE = np.zeros(0, np.int64)
BOXES = np.array([[10.0, 10, 50, 50], [100, 100, 200, 200], [300, 300, 390, 390]])
OTHERS = BOXES + np.array([0, 0, 20, 20])


def dataset() -> Dataset:
    return dataset_of(np.array([0, 0, 1]), np.array([0, 1, 2]), BOXES.copy(), 2)


def opinion(
    *,
    p_label: tuple[float, ...] = (0, 0, 0),
    p_box: tuple[float, ...] = (0, 0, 0),
    boxes: NDArray[np.float64] = OTHERS,
    there: tuple[float, ...] = (1, 1, 1),
    repeats: Repeats | None = None,
    missing: UnexplainedDetections | None = None,
) -> AuditOpinion:
    """An opinion on three annotations; fixes are half as probable as errors."""
    model = BoxModel(0.2, 0.1, 0.3, 0.0, *(np.ones(5),) * 4)
    empty = np.zeros(0)
    return AuditOpinion(
        labels=LabelOpinion(
            np.array(p_label), np.array([3, 3, 3]), np.array(p_label) / 2, UNKNOWN_SHARE
        ),
        boxes=BoxOpinion(np.array(p_box), boxes, np.array(p_box) / 2, np.full(3, 0.2)),
        box_model=model,
        presence=Presence(np.zeros(3), UNKNOWN_SHARE),
        repeats=repeats or Repeats(NONE, NONE, empty, UNKNOWN_SHARE),
        missing=missing or UnexplainedDetections(NONE, empty, empty, UNKNOWN_SHARE),
        p_there=np.array(there),
    )


def fixes(audit_opinion: AuditOpinion, kind: Kind) -> Fixes:
    evidence = Evidence(5, NONE, np.zeros(0), np.ones(3), np.ones(3), OTHERS, np.ones(3))
    made_fixes = join_fixes(make_fixes(dataset(), np.arange(3), audit_opinion, evidence))
    assert (made_fixes.kinds == kind).all()
    return made_fixes


def test_labels_and_boxes_are_wrong_only_of_what_is_there() -> None:
    one = opinion(p_label=(0.8, 0.4, 0), p_box=(0.9, 0, 0.6), there=(0.5, 1, 0.25))
    columns = compute_p_wrong(one)
    assert columns[Kind.WRONG_LABEL] == pytest.approx([0.4, 0.4, 0])
    assert columns[Kind.BAD_BOX] == pytest.approx([0.45, 0, 0.15])
    assert columns[Kind.DUPLICATE].tolist() == [0, 0, 0]


def test_the_fix_of_a_label_is_as_probable_as_the_annotation_is_there() -> None:
    made_fixes = fixes(opinion(p_label=(0.8, 0.04, 0), there=(0.5, 1, 1)), Kind.WRONG_LABEL)
    assert made_fixes.ids == ["wrong-label:1"]  # 0.04 is not listed
    assert made_fixes.new_labels.tolist() == [3]
    assert made_fixes.p_wrong == pytest.approx([0.4])
    assert made_fixes.p_fix == pytest.approx([0.2])


def test_a_box_is_moved_if_it_is_probably_bad_and_the_new_one_differs() -> None:
    boxes = OTHERS.copy()
    boxes[2] = BOXES[2] + [0, 0, 0.5, 0.5]  # an IoU of 0.989: the same box
    made_fixes = fixes(
        opinion(p_box=(0.9, 0.45, 0.9), boxes=boxes, there=(0.8, 1, 1)), Kind.BAD_BOX
    )
    assert made_fixes.ids == ["bad-box:1"]
    assert made_fixes.new_boxes.tolist() == [OTHERS[0].tolist()]
    assert made_fixes.p_wrong == pytest.approx([0.72])
    assert made_fixes.p_fix == pytest.approx([0.8 * 0.45])
    assert made_fixes.iou_gain == pytest.approx([0.8 * 0.2])


def test_new_boxes_end_at_the_border_of_their_image() -> None:
    boxes = BOXES + np.array([0, 0, 30, 30])  # the images are 400 wide and high
    made_fixes = fixes(opinion(p_box=(0, 0, 0.9), boxes=boxes), Kind.BAD_BOX)
    assert made_fixes.new_boxes.tolist() == [[300, 300, 400, 400]]


def test_a_duplicate_goes_and_names_the_one_that_stays() -> None:
    repeats = Repeats(np.array([1]), np.array([0]), np.array([0.7]), UNKNOWN_SHARE)
    made_fixes = fixes(opinion(repeats=repeats), Kind.DUPLICATE)
    assert made_fixes.ids == ["duplicate:2"]
    assert made_fixes.rows.tolist() == [1]
    assert made_fixes.kept_rows.tolist() == [0]
    assert made_fixes.new_labels.tolist() == [-1]
    assert np.isnan(made_fixes.new_boxes).all()


def test_missing_objects_keep_both_probabilities() -> None:
    detected = Detected(
        np.array([0, 1]),
        np.array([4, 2]),
        np.array([0.5, 0.9]),
        np.array([[0, 0, 20, 20], [350, 350, 420, 420.0]]),
    )
    missing = UnexplainedDetections(np.array([1]), np.array([0.6]), np.array([0.3]), UNKNOWN_SHARE)
    made_fixes = make_missing_fixes(dataset(), detected, opinion(missing=missing))
    assert made_fixes.ids == ["missing:2:dog:350,350,400,400"]
    assert made_fixes.new_boxes.tolist() == [[350, 350, 400, 400]]
    assert made_fixes.image_rows.tolist() == [1]
    assert (made_fixes.p_wrong.tolist(), made_fixes.p_fix.tolist()) == ([0.6], [0.3])


def test_slivers_without_area_are_not_proposed() -> None:
    detected = Detected(
        np.array([0, 1, 1]),
        np.array([4, 2, 2]),
        np.array([0.5, 0.9, 0.8]),
        np.array([[0, 10, 20, 10.001], [350, 350, 420, 420], [400, 0, 450, 30.0]]),
    )
    missing = UnexplainedDetections(np.arange(3), np.full(3, 0.6), np.full(3, 0.3), UNKNOWN_SHARE)
    made_fixes = make_missing_fixes(dataset(), detected, opinion(missing=missing))
    assert made_fixes.ids == ["missing:2:dog:350,350,400,400"]  # the last one lies beside its image


def test_the_surest_fixes_come_first_and_equals_by_name() -> None:
    made_fixes = fixes(opinion(p_label=(0.5, 0.9, 0.5)), Kind.WRONG_LABEL)
    turned = made_fixes.take(np.array([2, 0, 1]))
    assert join_fixes([turned]).ids == ["wrong-label:2", "wrong-label:1", "wrong-label:3"]
