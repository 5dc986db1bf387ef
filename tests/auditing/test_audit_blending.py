"""Probabilities of counts blended with those of a model, and the cautions of the audit."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from boxmend.auditing import labels as labels_module
from boxmend.auditing import missing as missing_module
from boxmend.auditing.evidence import Detected, Objects
from boxmend.auditing.gross_boxes import judge_gross_boxes
from boxmend.auditing.likeness import blend_log_odds, judge_by_ratios, log_odds_of
from boxmend.auditing.missing import MISSING, find_missing
from boxmend.auditing.presence import clutter_floor
from tests.auditing.audit_scenes import Noise, scene

Floats = NDArray[np.float64]


def test_a_blend_is_the_mean_of_log_odds() -> None:
    # Odds of 1/4 and 4 have the geometric mean 1; with a weight of 3/4, 4 ** (-1/4 + 3/4) = 2.
    p, log_odds = np.array([0.2, 0.2]), np.log(np.array([4.0, 4.0]))
    assert blend_log_odds(p[:1], log_odds[:1], 0.5) == pytest.approx([0.5])
    assert blend_log_odds(p, log_odds, 0.75) == pytest.approx([2 / 3, 2 / 3])


def test_a_blend_is_0_where_the_counts_are_0_and_never_1() -> None:
    blended = blend_log_odds(np.array([0.0, 1.0]), np.array([50.0, 50.0]), 0.5)
    assert blended == pytest.approx([0.0, 0.999])


def test_without_a_weight_the_model_changes_nothing() -> None:
    random = np.random.default_rng(0)
    observed, planted = random.normal(0, 1, 2000), random.normal(3, 1, 500)
    observed[:200] += 3
    by_counts = judge_by_ratios(observed, planted, None, 0.1, 0.0)
    blended = judge_by_ratios(observed, planted, None, 0.1, 0.5)
    assert by_counts.sum() == pytest.approx(200, rel=0.1)
    assert np.abs(blended - by_counts).max() > 0.05
    assert judge_by_ratios(observed, planted, None, 0.0, 0.5).tolist() == [0.0] * 2000


def test_log_odds_follow_from_the_share_and_the_ratio_of_densities() -> None:
    # A tenth of the observations are errors. Where errors are five times as dense, half are.
    log_odds = log_odds_of(np.log(np.array([5.0, 1.0, 1000.0, 0.0001])), 0.1)
    expected = np.array([0.5, 0.1, 0.99, 0.00001])  # never more than 0.99
    assert log_odds == pytest.approx(np.log(expected / (1 - expected)))


def test_missing_objects_with_equal_counts_are_ranked_by_the_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = scene(Noise(missing=0.2), images=300)
    objects = Objects(drawn.dataset.image_rows, drawn.dataset.labels, drawn.dataset.boxes, 5)
    nothing = Objects(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4)), 5)
    ones = np.ones(len(objects))
    found = find_missing((objects, nothing, drawn.detected), ones, ones, 0.0)
    plain = dataclasses.replace(MISSING, model_weight=0.0)
    monkeypatch.setattr(missing_module, "MISSING", plain)
    counted = find_missing((objects, nothing, drawn.detected), ones, ones, 0.0)
    assert found.detections.tolist() == counted.detections.tolist()
    top = counted.p_missing > 0.9 * counted.p_missing.max()  # a block with nearly equal counts
    assert top.sum() > 10
    assert np.ptp(found.p_missing[top]) > 1.5 * np.ptp(counted.p_missing[top])
    assert found.p_missing.sum() == pytest.approx(counted.p_missing.sum(), rel=0.1)


def test_blending_keeps_the_sum_of_probabilities_of_labels_within_a_factor_of_the_odds() -> None:
    # The blend of 0.5 with odds of 1/4 has odds of 1/2. Raising them by 1.3 gives 0.65 / 1.65.
    p, log_odds = np.full(10, 0.5), np.full(10, np.log(0.25))
    blended = labels_module._blend_with_model(p, log_odds, 0.5)
    assert blended == pytest.approx(np.full(10, 0.65 / 1.65), abs=1e-4)
    # A share of 0.4 is reached before: odds of 2/3 are 4/3 times 1/2, too far; 0.35 is not.
    blended = labels_module._blend_with_model(p, log_odds, 0.35)
    assert blended.mean() == pytest.approx(0.35, abs=1e-3)


@pytest.mark.parametrize(
    ("share", "alike", "noise", "trust"),
    [
        # 0.7 % of 3.5 % are confused by the detector, and 0.3 times the rate is excess
        (0.035, 1.0, 0.0, 0.8 - 0.3 * 0.035),
        (0.035, 0.0, 0.0, 1 - 0.33 * 0.035),  # none, where no class looks like another
        (0.2, 0.0, 0.0, 0.934),  # 0.33 times the rate itself
        (0.2, 0.5, 0.0, 1 - 0.5 * 0.035 - 0.2 * (0.165 + 0.15)),  # half of each
        # loose boxes confuse the detector more
        (0.1, 1.0, 0.4, 0.97 - (0.007 + 0.03 * 0.16) / 0.1),
        (0.001, 1.0, 0.0, 0.1),
    ],
)
def test_labels_of_look_alikes_and_of_spread_noise_are_trusted_less(
    share: float, alike: float, noise: float, trust: float
) -> None:
    assert labels_module._measure_trust(share, alike, noise) == pytest.approx(trust)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 0.45), (0.2, 0.37), (0.4, 0.29), (0.9, 0.25)])
def test_loose_boxes_explain_detections_that_overlap_less(noise: float, least: float) -> None:
    assert missing_module.explained_min_iou(noise) == pytest.approx(least)


def test_confident_candidates_beyond_those_of_background_are_objects() -> None:
    # Of 1,000 annotations, 7 candidates of 0.97 to 0.99 and 2.5 above are background.
    scores = np.concatenate([np.full(20, 0.98), np.full(2, 0.995), np.full(50, 0.9)])
    (first, count), (second, other) = missing_module._count_excess(scores, 1000, 0.0)
    assert np.flatnonzero(first).tolist() == list(range(20))
    assert np.flatnonzero(second).tolist() == [20, 21]
    assert (count, other) == pytest.approx((13.0, 0.0))
    (_, loose), _ = missing_module._count_excess(scores, 1000, 0.2)
    assert loose == pytest.approx(13 - 0.05 * 0.04 * 1000)


def test_sizes_that_are_missing_more_often_are_more_probable() -> None:
    # Known objects of both sizes look alike. Nine of ten missing ones are small.
    random = np.random.default_rng(1)
    known, sizes = random.normal(3, 1, 4000), np.repeat([1.0, 2.0], 2000)
    seen = np.concatenate([random.normal(-3, 1, 6000), random.normal(3, 1, 1000)])
    seen_sizes = np.concatenate([np.tile([1.0, 2.0], 3000), np.repeat([1.0, 2.0], [900, 100])])
    lost, factors, known_factors = missing_module._compare_sizes(
        (seen, seen_sizes), (known, sizes + random.random(4000) * 0.1), np.ones(4000)
    )
    assert lost.value == pytest.approx(1000, rel=0.1)
    assert factors[seen_sizes == 1].mean() > 1.3
    assert factors[seen_sizes == 2].mean() < 0.7
    assert known_factors.mean() == pytest.approx(1.0, abs=0.1)


def test_many_confident_candidates_count_even_if_they_look_unlike_known_objects() -> None:
    # One object in each of 150 images has an annotation, and another one has none.
    side = np.array([0.0, 0.0, 50.0, 50.0])
    boxes = np.concatenate([np.tile(side, (150, 1)), np.tile(side + 100, (150, 1))])
    rows = np.concatenate([np.arange(150), np.arange(150)])
    scores = np.concatenate([np.linspace(0.9, 0.99, 150), np.full(150, 0.98)])
    seen = Detected(rows, np.zeros(300, np.int64), scores, boxes)
    objects = Objects(np.arange(150), np.zeros(150, np.int64), boxes[:150], 2)
    nothing = Objects(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4)), 2)
    actual = find_missing((objects, nothing, seen), np.ones(150), np.ones(150), 0.0)
    expected = 1 - MISSING.confident_background[0]  # for 150 annotations there are 150 candidates
    assert len(actual.detections) == 150
    assert actual.p_missing.min() >= min(expected, 0.99) - 1e-9
    assert actual.rate.high > 0.5


def test_loose_boxes_and_overlooked_objects_look_like_clutter() -> None:
    assert clutter_floor(0.01, 0.0) == pytest.approx(0.0245)
    assert clutter_floor(0.05, 0.0) == pytest.approx(0.05)
    assert clutter_floor(0.01, 0.2) == pytest.approx(0.0245 + 0.55 * 0.04)


def test_boxes_are_ranked_even_if_none_is_grossly_off() -> None:
    one = scene(Noise(), images=200)
    objects = Objects(
        one.dataset.image_rows, one.dataset.labels, one.dataset.boxes, len(one.dataset.label_names)
    )
    sizes = np.stack([one.dataset.images.widths, one.dataset.images.heights], axis=1).astype(float)
    gross = judge_gross_boxes(objects, one.detected, sizes, np.random.default_rng(0))
    assert gross.rate.value == 0
    assert gross.p_gross.max() > 0
