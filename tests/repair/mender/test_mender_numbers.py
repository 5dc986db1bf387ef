"""The equations of a Mender on numbers computed by hand."""

import math

import numpy as np
import pytest

from boxmend.auditing.evidence import Detected, Evidence, Objects
from boxmend.auditing.pairs import Pairs
from boxmend.repair.mender import box_votes, label_noise, memory, posteriors
from boxmend.repair.mender.memory import Sightings
from boxmend.runs.judgement import Judgement

NAN = math.nan
LOW = 0.01 / 1.03  # of a class without a detection, beside one with all of the usual evidence
HIGH = 1.01 / 1.03


def evidence_of(keys: list[int], values: list[float], rows: int) -> Evidence:
    """Evidence of three classes."""
    nothing = np.zeros(rows)
    return Evidence(
        3,
        np.array(keys, np.int64),
        np.array(values),
        nothing + 0.01,
        nothing,
        np.zeros((rows, 4)),
        nothing,
    )


def objects_of(boxes: list[list[float]], labels: list[int]) -> Objects:
    return Objects(np.zeros(len(labels), np.int64), np.array(labels), np.array(boxes, float), 3)


def test_evidence_becomes_probabilities_and_a_row_without_any_is_uniform() -> None:
    evidence = evidence_of([3 + 1], [0.47], 2)  # row 1, class 1
    assert posteriors.mark_evident(evidence).tolist() == [False, True]
    p = posteriors.class_probabilities(evidence, slice(0, 2), 0.01)
    assert p[0] == pytest.approx([1 / 3] * 3)
    assert p[1] == pytest.approx([0.02, 0.96, 0.02])  # 0.01, 0.48 and 0.01 of 0.5
    alone = posteriors.class_probabilities(evidence, slice(1, 2), 0.01)
    assert alone == pytest.approx(p[1:])


def test_the_least_evidence_is_a_hundredth_of_the_usual_one() -> None:
    evidence = evidence_of([0, 1, 3 + 2, 6], [0.1, 0.4, 0.2, 0.05], 4)  # strongest: .4, .2, .05
    assert posteriors.least_evidence(evidence) == pytest.approx(0.002)
    assert posteriors.least_evidence(evidence_of([0], [0.001], 1)) == pytest.approx(0.0001)
    assert posteriors.least_evidence(evidence_of([], [], 1)) == pytest.approx(0.01)


def test_the_posterior_weighs_evidence_by_the_noise() -> None:
    p = np.array([[0.5, 0.25, 0.25]], np.float32)
    transition = label_noise.symmetric_transition(0.2, 3)
    q = posteriors.posterior(p, np.array([1]), transition, 1.0)
    # 0.5 * 0.1, 0.25 * 0.8 and 0.25 * 0.1, divided by 0.275
    assert q[0] == pytest.approx([0.05 / 0.275, 0.2 / 0.275, 0.025 / 0.275], rel=1e-5)


def test_two_sources_of_evidence_count_with_their_exponents() -> None:
    p, others = np.array([[0.8, 0.2]], np.float32), np.array([[0.1, 0.9]], np.float32)
    combined = posteriors.combine_evidence(p, others, 0.5, 2.0)
    # sqrt(0.8 / 0.2) = 2 for the first class, and (0.9 / 0.1)^2 = 81 for the second
    assert combined[0] == pytest.approx([2 / 83, 81 / 83], rel=1e-5)


@pytest.mark.parametrize(
    ("share", "exponent"),
    [(0.68, 1.0), (0.74, math.log(9) / math.log(4)), (0.62, math.log(7 / 3) / math.log(4))],
)
def test_the_exponents_of_evidence_are_those_of_the_largest_likelihood(
    share: float, exponent: float
) -> None:
    # With 20 % noise, a share of 0.68 has the first label if the true class is the first one in
    # 0.8 of the cases: 0.8 * 0.8 + 0.2 * 0.2. A share of 0.74 implies 0.9, and 0.62 implies 0.7.
    labels = np.repeat([0, 1], [round(20_000 * share), round(20_000 * (1 - share))])
    sure = np.tile(np.array([0.8, 0.2], np.float32), (20_000, 1))
    nothing = np.full_like(sure, 0.5)
    transition = label_noise.symmetric_transition(0.2, 2)
    first, _ = label_noise.fit_exponents(sure, nothing, labels, transition)
    assert first == pytest.approx(exponent, abs=0.002)
    _, second = label_noise.fit_exponents(nothing, sure, labels, transition)
    assert second == pytest.approx(exponent, abs=0.002)


def test_the_noise_of_each_class_counts_for_the_exponents() -> None:
    transition = np.array([[0.9, 0.1], [0.3, 0.7]])
    labels = np.repeat([0, 1], [7_800, 2_200])  # 0.8 * 0.9 + 0.2 * 0.3
    p = np.tile(np.array([0.8, 0.2], np.float32), (10_000, 1))
    first, _ = label_noise.fit_exponents(p, np.full_like(p, 0.5), labels, transition)
    assert first == pytest.approx(1.0, abs=0.002)


def test_a_source_that_says_nothing_about_the_labels_gets_no_weight() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 5_000)
    honest = random.dirichlet(np.ones(4) / 2, 5_000).astype(np.float32)
    labels = (random.random((5_000, 1)) > honest.cumsum(axis=1)).sum(axis=1).clip(max=3)
    noise = random.dirichlet(np.ones(4) / 4, 5_000).astype(np.float32)
    transition = label_noise.symmetric_transition(0.0, 4)
    first, second = label_noise.fit_exponents(noise, honest, labels, transition)
    assert first == pytest.approx(0.0, abs=0.03)
    assert second == pytest.approx(1.0, abs=0.1)


def test_judgements_follow_from_the_posterior() -> None:
    q = np.array([[0.5, 0.5, 0], [0.3, 0.7, 0], [0.4, 0.3, 0.3], [0.2, 0.55, 0.25]], np.float32)
    labels, judgements = posteriors.judge_posteriors(q, np.array([0, 0, 1, 0]))
    assert labels.tolist() == [0, 1, 1, 1]
    assert judgements.tolist() == [
        Judgement.KEPT,
        Judgement.RELABELLED,
        Judgement.DISCARDED,
        Judgement.RELABELLED,
    ]
    labels, judgements = posteriors.judge_posteriors(q, np.array([0, 0, 1, 0]), 0.6)
    assert labels.tolist() == [0, 1, 1, 0]
    assert judgements[3] == Judgement.DISCARDED


def test_a_floor_raises_the_label_and_lowers_the_others_in_proportion() -> None:
    q = np.array([[0.2, 0.6, 0.2], [0.9, 0.1, 0.0]], np.float32)
    raised = posteriors.raise_to_floor(q, np.array([0, 0]), np.array([0.6, 0.6]))
    assert raised == pytest.approx(np.array([[0.6, 0.3, 0.1], [0.9, 0.1, 0.0]]))


def test_the_memory_is_a_mean_in_which_old_opinions_fade() -> None:
    objects = objects_of([[0, 0, 9, 9], [0, 0, 9, 9]], [0, 0])
    known = memory.empty_memory(objects)
    known = memory.remember_classes(known, evidence_of([0], [0.97], 2), 0.5)
    assert known.evidence == pytest.approx(np.array([[HIGH, LOW, LOW], [1 / 3] * 3]))
    assert known.visits.tolist() == [1, 0]
    for _ in range(2):
        known = memory.remember_classes(known, evidence_of([0, 3 + 1], [0.97, 0.97], 2), 0.5)
    known = memory.remember_classes(known, evidence_of([1], [0.97], 2), 0.5)
    assert known.visits.tolist() == [4, 2]
    assert known.evidence[0] == pytest.approx(
        [(HIGH + LOW) / 2, (HIGH + LOW) / 2, LOW]
    )  # half, not a quarter
    assert known.evidence[1] == pytest.approx([LOW, HIGH, LOW])


def test_a_vote_is_the_mean_of_the_strongest_cluster() -> None:
    objects = objects_of([[0, 0, 10, 10], [50, 50, 60, 60]], [0, 1])
    boxes = np.array([[0, 0, 10, 12], [0, 0, 10, 10], [0, 4, 10, 14]], float)
    found = Detected(np.zeros(3, np.int64), np.array([0, 0, 1]), np.array([0.6, 0.3, 0.9]), boxes)
    pairs, share = box_votes.pair_votes(objects, found)
    assert pairs.second.tolist() == [0, 1, 2]
    assert share.tolist() == [1, 1, 1]
    q = np.array([[0.5, 0.1, 0.4], [0, 1, 0]], np.float32)
    scores = box_votes.expected_scores(q, found, pairs)
    assert scores == pytest.approx([0.3, 0.15, 0.09])
    votes = box_votes.vote_boxes(2, pairs, scores, share, boxes)
    # Weights 0.3 * sqrt(10 / 12) and 0.15; the third overlaps the strongest by 80 / 140 < 0.6.
    first = 0.3 * math.sqrt(10 / 12)
    assert votes.boxes[0] == pytest.approx([0, 0, 10, (12 * first + 1.5) / (first + 0.15)])
    assert votes.scores == pytest.approx([0.3, 0])
    assert votes.counts.tolist() == [2, 0]
    assert np.isnan(votes.boxes[1]).all()


def test_class_vectors_give_the_expected_score() -> None:
    vectors = np.array([[0.2, 0.6, 0.0]], np.float32)
    box = np.array([[0, 0, 9, 9]], float)
    found = Detected(np.zeros(1, np.int64), np.array([1]), np.array([0.6]), box, vectors)
    pairs = Pairs(np.array([0]), np.array([0]), np.array([1.0]))
    q = np.array([[0.5, 0.5, 0]], np.float32)
    assert box_votes.expected_scores(q, found, pairs) == pytest.approx([0.4])


def test_an_edge_follows_a_vote_that_the_noise_explains() -> None:
    annotated = np.array([[0, 0, 100, 100]] * 3, float)
    voted = np.array([[10, 0, 110, 100], [5, 0, 105, 100], [90, 0, 190, 100]], float)
    moved = box_votes.expected_boxes(annotated, voted, 0.4, np.full(3, 0.02))
    assert moved[0] == pytest.approx([10, 0, 110, 100], abs=0.1)
    assert moved[1] == pytest.approx([5, 0, 105, 100], abs=0.1)
    assert moved[2] == pytest.approx(annotated[2], abs=1)  # 90 % of a side is another object
    still = box_votes.expected_boxes(annotated, voted, 0.05, np.full(3, 0.2))
    assert np.abs(still - annotated).max() < 1  # nearly no noise, and a rough detector


def test_edges_at_the_border_move_half_as_far() -> None:
    annotated, moved = np.array([[0.5, 20, 50, 100]], float), np.array([[8.5, 22, 54, 92]], float)
    held = box_votes.hold_at_border(moved, annotated, np.array([[200, 100]], float), 0.5)
    assert held[0].tolist() == [4.5, 22, 54, 96]
    unknown = box_votes.hold_at_border(moved, annotated, np.zeros((1, 2)), 0.5)
    assert unknown[0].tolist() == [4.5, 22, 54, 92]


def test_edges_are_held_if_many_end_at_the_border() -> None:
    sizes = np.full((4, 2), 1000.0)
    at_border = np.array([[0, 300, 100, 400]] * 4, float)
    assert box_votes.choose_hold_share(at_border, sizes, 0.2) == 0.5
    inside = at_border + np.array([10, 0, 10, 0])  # a tenth of a side away
    three_of_four = np.concatenate([at_border[:1], inside[:3]])
    assert box_votes.choose_hold_share(three_of_four, sizes, 0.2) == 0
    assert box_votes.choose_hold_share(inside + 200, sizes, 0.2) == 0


def test_votes_for_the_same_place_are_averaged() -> None:
    objects = objects_of([[0, 0, 10, 10]] * 2, [0, 0])
    known = memory.empty_memory(objects)
    first = box_votes.BoxVotes(
        np.array([[0, 0, 10, 10], [0, 0, 10, 10]], float), np.array([0.5, 0.5]), np.array([1, 1])
    )
    second = box_votes.BoxVotes(
        np.array([[0, 0, 10, 14], [20, 0, 30, 10]], float), np.array([0.7, 0.3]), np.array([1, 1])
    )
    known = memory.remember_votes(known, first, 0.5)
    assert known.votes.tolist() == first.boxes.tolist()
    known = memory.remember_votes(known, second, 0.5)
    assert known.votes.tolist() == [[0, 0, 10, 12], [20, 0, 30, 10]]
    assert known.vote_scores == pytest.approx([0.6, 0.3])
    assert known.vote_visits.tolist() == [2, 1]
    none = box_votes.BoxVotes(np.full((2, 4), NAN), np.zeros(2), np.zeros(2, np.int64))
    assert memory.remember_votes(known, none, 0.5).votes.tolist() == known.votes.tolist()


def sighting(box: list[float], p: float, label: int = 0) -> Sightings:
    one = np.array([p])
    return Sightings(
        np.zeros(1, np.int64), np.array([label]), np.array([box]), one, one, np.ones(1, np.int64)
    )


def test_a_sighting_gains_with_every_update_and_is_given_up_without() -> None:
    known = memory.empty_memory(objects_of([[0, 0, 10, 10]], [0]))
    seen = np.ones(1, np.bool_)
    known = memory.remember_sightings(known, sighting([50, 50, 60, 60], 0.8), seen, 0.5)
    known = memory.remember_sightings(known, sighting([50, 50, 60, 62], 0.6, 2), seen, 0.5)
    assert known.sightings.p_missing == pytest.approx([0.7])
    assert known.sightings.counts.tolist() == [2]
    assert known.sightings.boxes.tolist() == [[50, 50, 60, 61]]
    assert known.sightings.labels.tolist() == [2]
    nothing = known.sightings.take(np.zeros(0, np.int64))
    unseen = memory.remember_sightings(known, nothing, ~seen, 0.5)
    assert unseen.sightings.p_missing == pytest.approx([0.7])
    known = memory.remember_sightings(known, nothing, seen, 0.5)
    assert known.sightings.p_missing == pytest.approx([0.35])
    for _ in range(3):
        known = memory.remember_sightings(known, nothing, seen, 0.5)
    assert len(known.sightings) == 0


def test_a_class_that_the_posterior_misses_is_lost() -> None:
    labels = np.repeat([0, 1], 50)
    transition = label_noise.symmetric_transition(0.1, 2)
    assert label_noise.find_lost_classes(np.array([0.5, 0.5]), labels, transition).tolist() == []
    assert label_noise.find_lost_classes(np.array([0.8, 0.2]), labels, transition).tolist() == [1]
    few = np.array([0] * 95 + [1] * 5)  # T implies less than ten objects of class 1
    assert label_noise.find_lost_classes(np.array([1.0, 0.0]), few, transition).tolist() == []
