"""Missing annotations: which proposals count as unannotated objects, which training ignores."""

import pytest
import torch

from boxmend.detector import SecondStageOutput, Targets
from boxmend.detector.assignment import assign
from boxmend.errors import UsageError
from boxmend.methods.missing import MISSING, find_missing_objects
from boxmend.methods.table import (
    BatchAnnotations,
    Mend,
    MendSettings,
    Outcome,
    Rates,
    TrainingProgress,
)
from boxmend.methods.votes import Matches
from tests.methods.method_batches import (
    LATER,
    WAITS,
    WARM_UP,
    TableScorer,
    Watch,
    WaveScorer,
    one_image,
    pad,
    proposals_of,
    random_batch,
    table,
)

pytestmark = pytest.mark.usefixtures("one_thread")

BOX = [10.0, 10, 30, 30]
# background, then the classes
SURE = [0.4, 0.1, 0.5, 0.0]
LESS_SURE = [0.5, 0.1, 0.4, 0.0]
UNSURE = [0.7, 0.1, 0.2, 0.0]
# proposal                   likeliest class, and what it is regressed to
OFFERED = [
    (SURE, [12.0, 10, 32, 30]),  # the annotated object itself
    (LESS_SURE, [52.0, 50, 82, 80]),  # another one, IoU 0.875 with the next
    (SURE, [50.0, 50, 80, 80]),  # the same, surer
    (UNSURE, [0.0, 60, 20, 90]),  # perhaps nothing
    (LESS_SURE, [60.0, 0, 90, 30]),  # a third object
]


def scorer(own: list[float] = SURE) -> TableScorer:
    """Return the scores of the annotation and those of the proposals."""
    chances, boxes = [own, *(one for one, _ in OFFERED)], [BOX, *(one for _, one in OFFERED)]
    return TableScorer(table(chances, boxes))


def refine_batch(
    progress: TrainingProgress = LATER, rates: Rates | None = None, **settings: float
) -> Outcome:
    chosen = MendSettings(num_proposals=len(OFFERED), **settings)  # type: ignore[arg-type]
    method = Mend(4, 3, chosen, rates or Rates(label=0.2, box=0.2))
    proposals = proposals_of([box for _, box in OFFERED], [0.9] * len(OFFERED))
    return method.refine(one_image([BOX], [1]), proposals, scorer(), progress)


def ignored_boxes(targets: Targets) -> list[list[float]]:
    """Return the boxes of the ignored rows."""
    result: list[list[float]] = targets.boxes[targets.is_box & targets.is_ignored].tolist()
    return result


def test_the_best_proposal_of_each_unannotated_object_is_ignored() -> None:
    outcome = refine_batch(missing_min_score=0.3)
    for targets in (outcome.rpn, outcome.roi):
        assert ignored_boxes(targets) == [[50.0, 50, 80, 80], [60.0, 0, 90, 30]]
        assert int(targets.is_real.sum()) == 1  # the annotation
        assert int(targets.is_box.sum()) == 3
    assert float(outcome.metrics["missing"]) == 2  # for each annotation
    assert outcome.boxes.shape == (1, 1, 4)  # the ledger is about annotations alone
    soft, box_targets = outcome.roi.soft, outcome.roi.box_targets
    assert soft is not None
    assert box_targets is not None
    assert soft.shape[:2] == box_targets.shape[:2] == outcome.roi.labels.shape


def test_the_other_targets_are_the_same() -> None:
    with_it, without = refine_batch(missing_min_score=0.3), refine_batch()
    assert "missing" not in without.metrics
    assert without.roi.boxes.shape == (1, 1, 4)
    for name in ("boxes", "labels", "soft", "box_targets"):
        ours, theirs = getattr(with_it.roi, name), getattr(without.roi, name)
        torch.testing.assert_close(ours[:, :1], theirs)
    assert without.verdict.tolist() == with_it.verdict.tolist()


def test_proposals_near_ignored_objects_are_not_background() -> None:
    near, elsewhere = [51.0, 50, 81, 80], [0.0, 60, 20, 90]
    boxes = torch.tensor([[BOX, near, elsewhere]])
    for missing, negative in ((None, [False, True, True]), (0.3, [False, False, True])):
        targets = (
            refine_batch() if missing is None else refine_batch(missing_min_score=missing)
        ).roi
        assigned = assign(boxes, targets, thresholds=(0.5, 0.5))
        assert assigned.is_positive.tolist() == [[True, False, False]]
        assert assigned.is_negative.tolist() == [negative]


def test_warm_up_ignores_no_object() -> None:
    outcome = refine_batch(WARM_UP, missing_min_score=0.3)
    assert outcome.roi.boxes.shape == (1, 1, 4)
    assert "missing" not in outcome.metrics


def test_labels_and_boxes_may_be_kept_while_objects_are_ignored() -> None:
    outcome = refine_batch(rates=Rates(label=0.0, box=0.0), missing_min_score=0.45)
    assert ignored_boxes(outcome.roi) == [[50.0, 50, 80, 80]]
    assert outcome.roi.boxes[0, 0].tolist() == BOX
    assert outcome.roi.labels[0, 0] == 1
    assert outcome.roi.soft is None


@pytest.mark.parametrize(
    ("score", "height", "number"),
    [(0.3, 2.9, 1), (0.299, 2.9, 0), (0.3, 3.0, 0)],  # the annotation is 10 high
)
def test_the_score_and_the_overlap_have_thresholds(
    score: float, height: float, number: int
) -> None:
    assert MISSING.annotated_min_iou == 0.3
    annotations = one_image([[0.0, 0, 10, 10]], [0])
    scores = table([[1 - score, 0, score, 0]], [[0.0, 0, 10, height]])
    objects = find_missing_objects(annotations, _matches(1), scores, min_score=0.3)
    assert int(objects.is_object.sum()) == number


def test_ignored_annotations_are_annotations() -> None:
    annotations = one_image([[50.0, 50, 80, 80]], [0])
    scores = table([SURE], [[50.0, 50, 80, 80]])
    ignored = annotations._replace(
        is_box=annotations.is_box & False, is_ignored=~annotations.is_ignored
    )
    without_boxes = annotations._replace(is_box=annotations.is_box & False)
    for batch, number in ((annotations, 0), (ignored, 0), (without_boxes, 1)):
        objects = find_missing_objects(batch, _matches(1), scores, min_score=0.3)
        assert int(objects.is_object.sum()) == number


def test_at_most_twenty_objects_of_an_image_are_ignored() -> None:
    boxes = [[4.0 * k, 0, 4.0 * k + 3, 3] for k in range(24)]
    chances = [[0.5 - k / 100, 0, 0.5 + k / 100, 0] for k in range(24)]
    objects = find_missing_objects(
        one_image([[0.0, 50, 10, 60]], [0]), _matches(24), table(chances, boxes), min_score=0.3
    )
    assert objects.is_object.tolist() == [[True] * 20]
    assert objects.boxes[0].tolist() == list(reversed(boxes))[:20]  # the surest


@pytest.mark.parametrize("num_annotations", [1, 5])
def test_padding_is_inert_and_nothing_waits_for_the_device(num_annotations: int) -> None:
    annotations, proposals = random_batch(3, num_annotations=num_annotations)
    settings = MendSettings(missing_min_score=0.3)

    def rows(batch: BatchAnnotations) -> list[list[float]]:
        method = Mend(15, 3, settings, Rates(label=0.4, box=0.4))
        outcome = method.refine(batch, proposals, WaveScorer(), LATER)
        assert outcome.roi.boxes.isfinite().all()
        return ignored_boxes(outcome.roi)

    assert rows(annotations) == rows(pad(annotations, by=3))
    scores = WaveScorer()(torch.zeros(3, 500, 4))
    method = Mend(15, 3, settings, Rates(label=0.4, box=0.4))
    with Watch() as watch:
        method.refine(
            annotations,
            proposals,
            lambda boxes: SecondStageOutput(*(score[:, : boxes.shape[1]] for score in scores)),
            LATER,
        )
    assert watch.seen.isdisjoint(WAITS)


def test_a_score_out_of_range_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"missing_min_score is 1\.2; expected a share from 0 to 1"
    ):
        MendSettings(missing_min_score=1.2)


def _matches(proposals: int) -> Matches:
    nothing = torch.zeros(1, 1, 1, dtype=torch.int64)
    boxes = torch.zeros(1, proposals, 4)
    is_proposal = torch.ones(1, proposals, dtype=torch.bool)
    return Matches(boxes[:, :1], boxes, is_proposal, nothing, nothing.bool())
