"""Boxes at their four stages, against IoUs worked out on paper."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.boxes import compute_iou, find_best_iou
from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box
from boxmend.scoring.corrections import assess
from boxmend.scoring.corrections.boxes import BoxFit, BoxScores
from tests.fabricated_runs import DISCARDED, UNJUDGED, Visit
from tests.scoring.assessed import BUS, VAN, annotated, opened, seen, truth_of

TRUE: Box = (0, 0, 10, 10)  # area 100; a box within has its own area / 100 as IoU
FAR: Box = (50, 50, 60, 60)


def tall(height: int) -> Box:
    """A box within TRUE: its IoU with it is height / 10."""
    return (0, 0, 10, height)


def score_visits(noisy: list[Box], visits: list[Visit], true: list[Box]) -> BoxScores:
    dataset = annotated(noisy, [VAN] * len(noisy))
    return assess(opened(dataset, visits), truth_of(dataset, [VAN] * len(true), true)).boxes


def test_each_stage_is_compared_with_the_truth() -> None:
    scores = score_visits([tall(5)], [seen(0, matched=tall(8), box=tall(7))], [TRUE])
    assert scores.annotations == 1
    # More than 0.5 and more than 0.7 are asked for: 0.5 and 0.7 themselves do not count.
    assert scores.noisy == BoxFit(corloc=0, mean_iou=0.5, above_half=0, above_corloc=0)
    assert scores.matched == BoxFit(corloc=1, mean_iou=0.8, above_half=1, above_corloc=1)
    assert scores.final == BoxFit(corloc=0, mean_iou=0.7, above_half=1, above_corloc=0)
    assert scores.settled == scores.final


def test_figures_are_means_over_annotations() -> None:
    visits = [seen(0, box=tall(10)), seen(1, box=tall(6)), seen(2, box=tall(8)), seen(3)]
    scores = score_visits([tall(4)] * 4, visits, [TRUE] * 4)
    # IoUs 1, 0.6, 0.8, 0.4
    assert scores.final.mean_iou == pytest.approx(2.8 / 4)
    assert scores.final.above_half == 3 / 4
    assert scores.final.above_corloc == scores.final.corloc == 2 / 4


def test_corloc_profits_from_neighbours_and_the_own_truth_does_not() -> None:
    dataset = annotated([FAR, tall(10)], [VAN, BUS])
    truth = truth_of(dataset, [VAN, BUS], [TRUE, FAR])  # each lies on the other's, labels apart
    fit = assess(opened(dataset, [seen(0), seen(1)]), truth).boxes.noisy
    assert fit == BoxFit(corloc=1, mean_iou=0, above_half=0, above_corloc=0)


def test_corloc_uses_the_own_image_alone_and_unannotated_boxes_too() -> None:
    dataset = annotated([FAR, FAR, FAR], [VAN] * 3, images=[0, 1, 2])
    truth = truth_of(dataset, [VAN] * 3, [TRUE, TRUE, FAR], lacking=[FAR])  # in the first image
    fit = assess(opened(dataset, [seen(0), seen(1), seen(2)]), truth).boxes.noisy
    assert fit.corloc == pytest.approx(2 / 3)  # by the one lacking, not at all, by its own
    assert fit.above_corloc == pytest.approx(1 / 3)


def test_the_last_visit_of_the_last_epoch_counts() -> None:
    visits = [
        seen(0, box=tall(9), epoch=0),
        seen(1, box=tall(9), epoch=0),
        seen(0, box=tall(2), epoch=1),
        seen(0, box=tall(6), epoch=1),
    ]
    scores = score_visits([tall(1), tall(1)], visits, [TRUE, TRUE])
    assert scores.annotations == 1  # the other one was not visited there
    assert scores.final.mean_iou == pytest.approx(0.6)


def test_the_settled_box_may_differ_from_the_last_one() -> None:
    # Six epochs: the last two settle; their mean is tall(7).
    boxes = [2, 2, 2, 2, 6, 8]
    visits = [seen(0, box=tall(height), epoch=epoch) for epoch, height in enumerate(boxes)]
    scores = score_visits([tall(1)], visits, [TRUE])
    assert scores.final.mean_iou == pytest.approx(0.8)
    assert scores.settled.mean_iou == pytest.approx(0.7)


def test_spurious_annotations_are_left_out() -> None:
    dataset = annotated([tall(5), FAR], [VAN, VAN])
    truth = truth_of(dataset, [VAN, UNKNOWN], [TRUE, (np.nan,) * 4])
    scores = assess(opened(dataset, [seen(0), seen(1)]), truth).boxes
    assert scores.annotations == 1
    assert scores.noisy.mean_iou == 0.5


def test_without_visits_all_scores_are_none() -> None:
    scores = score_visits([tall(5)], [], [TRUE])
    assert scores.annotations == 0
    assert scores.final == BoxFit(corloc=None, mean_iou=None, above_half=None, above_corloc=None)


def test_a_run_that_judges_and_moves_nothing_leaves_all_stages_alike() -> None:
    visits = [seen(0, UNJUDGED), seen(1, DISCARDED, is_kept=False)]
    scores = score_visits([tall(5), tall(9)], visits, [TRUE, TRUE])
    assert scores.noisy == scores.matched == scores.final == scores.settled
    assert scores.noisy.mean_iou == pytest.approx(0.7)


BOXES = st.tuples(*[st.integers(0, 8)] * 2, *[st.integers(1, 8)] * 2).map(
    lambda box: (box[0], box[1], box[0] + box[2], box[1] + box[3])
)
PLACED = st.lists(st.tuples(st.integers(0, 3), BOXES), max_size=12)


@settings(deadline=None)
@given(PLACED, PLACED)
def test_best_overlaps_are_those_of_looking_at_all_pairs(
    boxes: list[tuple[int, Box]], true: list[tuple[int, Box]]
) -> None:
    def split_columns(placed: list[tuple[int, Box]]) -> tuple[np.ndarray, np.ndarray]:
        return (
            np.array([image for image, _ in placed], np.int64),
            np.array([box for _, box in placed], np.float64).reshape(-1, 4),
        )

    best = find_best_iou(*split_columns(boxes), *split_columns(true))
    for k, (image, box) in enumerate(boxes):
        expected = [
            float(compute_iou(np.array(box, np.float64), np.array(other, np.float64)))
            for place, other in true
            if place == image
        ]
        assert best[k] == max(expected, default=0)


def test_many_pairs_are_compared_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    low = rng.uniform(0, 50, (2, 40, 2))
    boxes, true = np.concatenate([low, low + rng.uniform(1, 40, (2, 40, 2))], axis=2)
    images, true_images = rng.integers(0, 4, (2, 40))
    whole = find_best_iou(images, boxes, true_images, true)
    monkeypatch.setattr("boxmend.data.boxes.PAIRS_PER_CHUNK", 7)
    assert find_best_iou(images, boxes, true_images, true).tolist() == whole.tolist()
    assert whole.max() > 0
