"""What a user asks of the changes that `apply` writes, counted on paper."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import UNKNOWN
from boxmend.data.types import Box
from boxmend.scoring.corrections import Assessment, assess
from boxmend.scoring.corrections.changes import ChangeScores, SpuriousAnnotations
from tests.fabricated_runs import DISCARDED, KEPT, NOWHERE, RELABELLED, Visit
from tests.scoring.assessed import BUS, TRUCK, VAN, annotated, opened, seen, truth_of

TRUE: Box = (0, 0, 100, 100)  # a box within has its height / 100 as IoU


def tall(height: float) -> Box:
    return (0, 0, 100, height)


def make_changes(
    noisy: list[tuple[int, Box]], visits: list[Visit], true: list[tuple[int, Box]]
) -> ChangeScores:
    return assess_changes(noisy, visits, true).changes


def assess_changes(
    noisy: list[tuple[int, Box]], visits: list[Visit], true: list[tuple[int, Box]]
) -> Assessment:
    dataset = annotated([box for _, box in noisy], [label for label, _ in noisy])
    truth = truth_of(dataset, [label for label, _ in true], [box for _, box in true])
    return assess(opened(dataset, visits), truth)


def test_changes_of_labels_are_right_useless_or_harm() -> None:
    visits = [
        seen(0, RELABELLED, BUS),  # wrong before, right now
        seen(1, RELABELLED, BUS),  # likewise
        seen(2, RELABELLED, TRUCK),  # wrong before and after
        seen(3, RELABELLED, BUS),  # right before: harm
        seen(4, KEPT),  # wrong, missed
        seen(5, DISCARDED),  # wrong, missed, but listed as unsure
        seen(6, KEPT),  # right
    ]
    true = [BUS, BUS, BUS, VAN, BUS, BUS, VAN, BUS]  # the last was never visited: missed, too
    scores = make_changes([(VAN, TRUE)] * 8, visits, [(label, TRUE) for label in true])
    labels = scores.labels
    assert (labels.relabelled, labels.right, labels.wrong_to_wrong, labels.harm) == (4, 2, 1, 1)
    assert labels.wrong_before == 6  # all but rows 3 and 6
    assert labels.wrong_after == 5  # rows 2, 3, 4, 5 and 7
    assert (labels.noise_before, labels.noise_after) == (6 / 8, 5 / 8)
    assert (labels.missed, labels.missed_but_unsure) == (3, 1)
    assert (scores.changes, scores.right, scores.harm, scores.missed) == (4, 2, 1, 3)
    assert (scores.wrong_before, scores.wrong_after) == (6, 5)


def test_moves_of_boxes_are_better_alike_or_harm() -> None:
    # Height before, after (None: not moved): with the truth of height 100 these are the IoUs.
    heights = [(50, 80), (50, 60), (80, 80.5), (80, 60), (50, None), (90, None), (75, 74.5)]
    visits = [
        seen(row, box=None if after is None else tall(after))
        for row, (_, after) in enumerate(heights)
    ]
    noisy = [(VAN, tall(before)) for before, _ in heights]
    scores = make_changes(noisy, visits, [(VAN, TRUE)] * 7)
    boxes = scores.boxes
    # 0.5 to 0.8 and 0.5 to 0.6 are better; 0.8 to 0.805 is alike, and so is 0.75 to 0.745;
    # 0.8 to 0.6 is worse.
    assert (boxes.moved, boxes.better, boxes.alike, boxes.worse) == (5, 2, 2, 1)
    assert boxes.bad_before == 3  # rows 0, 1, 4
    assert boxes.bad_after == 3  # rows 1, 3, 4
    assert (boxes.mended, boxes.spoiled) == (1, 1)  # rows 0 and 3
    assert boxes.missed == 1  # row 4
    assert boxes.mean_iou_before == pytest.approx((50 + 50 + 80 + 80 + 50 + 90 + 75) / 700)
    assert boxes.mean_iou_after == pytest.approx((80 + 60 + 80.5 + 60 + 50 + 90 + 74.5) / 700)
    assert (scores.changes, scores.right, scores.harm, scores.missed) == (5, 2, 1, 1)


def test_a_box_with_an_iou_of_exactly_seven_tenths_is_good() -> None:
    scores = make_changes([(VAN, tall(70))], [seen(0)], [(VAN, TRUE)])
    assert scores.boxes.bad_before == 0


def test_an_annotation_that_is_relabelled_and_moved_has_two_changes() -> None:
    visits = [seen(0, RELABELLED, BUS, box=tall(40))]
    scores = make_changes([(VAN, tall(90))], visits, [(BUS, TRUE)])
    assert (scores.changes, scores.right, scores.harm) == (2, 1, 1)
    assert (scores.wrong_before, scores.wrong_after, scores.missed) == (1, 1, 0)


def test_an_annotation_whose_wrong_label_stays_is_missed_though_its_box_is_mended() -> None:
    scores = make_changes([(VAN, tall(50))], [seen(0, box=tall(90))], [(BUS, TRUE)])
    assert (scores.right, scores.missed) == (1, 1)
    assert (scores.wrong_before, scores.wrong_after) == (1, 1)


def test_spurious_annotations_are_counted_apart() -> None:
    visits = [
        seen(0, RELABELLED, BUS),
        seen(1, DISCARDED),
        seen(2, KEPT, box=tall(30)),
        seen(3, RELABELLED, BUS, box=tall(30)),
        seen(4, KEPT),
    ]
    true = [(BUS, TRUE)] + [(UNKNOWN, NOWHERE)] * 4
    scores = make_changes([(VAN, TRUE)] + [(VAN, tall(60))] * 4, visits, true)
    assert scores.spurious == SpuriousAnnotations(4, unsure=1, relabelled=1, moved=2)
    assert scores.annotations == 1
    assert (scores.changes, scores.right, scores.missed) == (1, 1, 0)


def test_crowds_and_difficult_objects_do_not_count() -> None:
    dataset = annotated([TRUE] * 3, [VAN] * 3)
    dataset = replace(
        dataset, is_crowd=np.array([1, 0, 0], bool), is_difficult=np.array([0, 1, 0], bool)
    )
    truth = truth_of(dataset, [BUS] * 3, [TRUE] * 3)
    scores = assess(opened(dataset, [seen(2)]), truth).changes
    assert (scores.annotations, scores.labels.missed) == (1, 1)


def test_without_annotations_scores_are_none() -> None:
    scores = make_changes([], [], [])
    assert scores.annotations == scores.changes == scores.missed == 0
    assert scores.labels.noise_before is scores.boxes.mean_iou_after is None


def test_all_figures_can_be_written_as_json() -> None:
    answer = assess_changes([(VAN, TRUE)], [seen(0)], [(BUS, TRUE)]).to_json()
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert set(answer) == {"boxes", "labels", "changes"}
    assert answer["changes"]["labels"]["missed"] == 1
    assert answer["labels"]["judgment"]["fn"] == 1
    assert answer["labels"]["judgment"]["tn"] is None


ANNOTATIONS = st.lists(
    st.tuples(
        st.integers(0, 2),  # annotated label
        st.integers(0, 2),  # true label
        st.sampled_from([30, 69, 70, 71, 100]),  # annotated height
        st.sampled_from([KEPT, RELABELLED, DISCARDED]),
        st.integers(0, 2),  # new label
        st.sampled_from([None, 20, 69.5, 70, 95]),  # new height
        st.floats(0, 5, width=16),  # loss
    ),
    min_size=1,
    max_size=8,
)


def assessed_visits(visited: list[tuple]) -> Assessment:  # type: ignore[type-arg]
    visits = [
        seen(
            row,
            RELABELLED
            if verdict == RELABELLED and new != old
            else KEPT
            if verdict == RELABELLED
            else verdict,
            new if verdict == RELABELLED else None,
            loss=loss,
            box=None if height is None else tall(height),
        )
        for row, (old, _, _, verdict, new, height, loss) in enumerate(visited)
    ]
    noisy = [(old, tall(height)) for old, _, height, *_ in visited]
    return assess_changes(noisy, visits, [(true, TRUE) for _, true, *_ in visited])


@settings(deadline=None)
@given(ANNOTATIONS)
def test_counts_add_up(visited: list[tuple]) -> None:  # type: ignore[type-arg]
    result = assessed_visits(visited)
    changes, labels, boxes = result.changes, result.changes.labels, result.changes.boxes
    assert labels.relabelled == labels.right + labels.wrong_to_wrong + labels.harm
    assert boxes.moved == boxes.better + boxes.alike + boxes.worse
    assert labels.wrong_after == labels.wrong_before - labels.right + labels.harm
    assert labels.wrong_before == labels.right + labels.wrong_to_wrong + labels.missed
    assert boxes.bad_after == boxes.bad_before - boxes.mended + boxes.spoiled
    assert changes.right + changes.harm <= changes.changes
    assert changes.missed <= min(changes.wrong_before, changes.wrong_after)
    judgment = result.labels.judgment
    assert judgment.num_tp + judgment.num_fn == labels.wrong_before
    assert judgment.num_tn + judgment.num_fp == len(visited) - labels.wrong_before


@settings(deadline=None)
@given(ANNOTATIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_annotations_does_not_matter(visited: list[tuple], random: object) -> None:  # type: ignore[type-arg]
    shuffled = list(visited)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert flat(assessed_visits(shuffled).to_json()) == pytest.approx(
        flat(assessed_visits(visited).to_json()), nan_ok=True
    )


@settings(deadline=None)
@given(ANNOTATIONS)
def test_a_perfect_run_leaves_no_errors_and_does_no_harm(visited: list[tuple]) -> None:  # type: ignore[type-arg]
    perfect = [
        (old, true, height, RELABELLED if old != true else KEPT, true, 100, float(old != true))
        for old, true, height, *_ in visited
    ]
    result = assessed_visits(perfect)
    assert result.changes.wrong_after == result.changes.harm == result.changes.missed == 0
    assert result.labels.noise_after == 0
    assert result.labels.judgment.tp in (1, None)
    assert result.labels.judgment.fp in (0, None)
    assert result.labels.loss_auroc in (1, None)
    assert result.boxes.final.mean_iou == 1
    assert result.boxes.settled.corloc == 1


@settings(deadline=None)
@given(ANNOTATIONS)
def test_a_run_without_changes_misses_every_error(visited: list[tuple]) -> None:  # type: ignore[type-arg]
    result = assessed_visits(
        [(old, true, height, KEPT, old, None, 0.0) for old, true, height, *_ in visited]
    )
    changes = result.changes
    assert changes.changes == changes.right == changes.harm == 0
    assert changes.missed == changes.wrong_before == changes.wrong_after
    assert result.labels.noise_before == result.labels.noise_after == changes.labels.noise_after
    assert result.boxes.noisy == result.boxes.settled
    assert result.labels.loss_auroc in (0.5, None)


def flat(scores: dict[str, object], name: str = "") -> dict[str, float]:
    """Figures by their dotted names; NaN for those that are not defined."""
    figures: dict[str, float] = {}
    for key, value in scores.items():
        if isinstance(value, dict):
            figures |= flat(value, f"{name}{key}.")
        else:
            figures[name + key] = np.nan if value is None else float(value)  # type: ignore[arg-type]
    return figures
