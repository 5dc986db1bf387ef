"""The model of two who measure the same edge: hand-computed parts, then drawn boxes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from boxmend.auditing import boxes as model
from boxmend.data.boxes import compute_iou


def draw_boxes(
    noise: float, error: float, number: int = 4000, seed: int = 0
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    low = 200 + random.random((number, 2)) * 300
    true = np.concatenate([low, low + random.uniform(50, 150, (number, 2))], axis=1)
    sides = np.tile(true[:, 2:] - true[:, :2], 2)
    confidences = random.random(number)
    return {
        "true": true,
        "annotated": true + random.uniform(-noise, noise, (number, 4)) * sides,
        "detected": true + random.normal(0, error, (number, 4)) * sides,
        "confidences": confidences,
        "sizes": np.full((number, 2), 1000.0),
    }


def box_model(**others: Any) -> model.BoxModel:
    """A model with five like strata: exact annotators, a detector with errors of 3 %."""
    ones = np.ones(5)
    usual: dict[str, Any] = {"noise": 0.05, "low": 0.0, "high": 0.1, "gross": 0.0}
    usual |= {"limits": np.array([0.2, 0.4, 0.6, 0.8]), "scales": 0.03 * ones}
    return model.BoxModel(**{**usual, "narrows": ones, "strays": 0 * ones, **others})


def judge_drawn(one: dict[str, np.ndarray]) -> tuple[model.BoxModel, model.BoxOpinion]:
    result, straight = model.fit_box_model(
        one["annotated"], one["detected"], one["sizes"], one["confidences"], 0.0
    )
    opinion = model.judge_boxes(
        result, one["annotated"], straight, one["confidences"], one["sizes"]
    )
    return result, opinion


def test_residuals_are_in_shares_of_the_sides() -> None:
    annotated, detected = np.array([[0.0, 0, 20, 10]]), np.array([[2.0, 1, 18, 11]])
    sides = model.estimate_true_sides(annotated, detected, trust=1.0)
    assert sides.tolist() == [[20, 10, 20, 10]]
    assert model.compute_residuals(annotated, detected, sides).tolist() == [[-0.1, -0.1, 0.1, -0.1]]
    # half in logarithms: sqrt(20 * 16) and sqrt(10 * 10)
    assert model.estimate_true_sides(annotated, detected, 0.5)[0, :2] == pytest.approx(
        [320**0.5, 10]
    )


def test_edges_near_the_border_are_not_free() -> None:
    detected = np.array([[1.0, 30, 51, 95]])  # sides 50 and 65: borders within 5 and 6.5
    assert model.mark_free_edges(detected, np.array([[100.0, 100]])).tolist() == [
        [False, True, True, False]
    ]
    assert model.mark_free_edges(detected, np.zeros((1, 2))).tolist() == [[False, True, True, True]]


def test_what_follows_half_of_every_shift_has_a_pull_of_a_half() -> None:
    shifts = np.array([[0.1, -0.2, 0.1, 0.2]])
    assert model.estimate_pull(shifts, 0.5 * shifts) == pytest.approx(0.5)
    assert model.estimate_pull(shifts, 0.25 * shifts) == pytest.approx(0.25)
    assert model.estimate_pull(shifts, -shifts) == 0.0
    assert model.estimate_pull(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


def test_an_answer_beyond_the_shift_counts_as_the_shift() -> None:
    # shifted by 0.1 and 0.2, answered by 0.3 (a jump to another object) and 0.0
    shifts, answers = np.array([[0.1, 0.2]]), np.array([[0.3, 0.0]])
    assert model.estimate_pull(shifts, answers) == pytest.approx(0.1 * 0.1 / (0.1**2 + 0.2**2))


def test_what_was_pulled_to_the_annotated_box_is_moved_back() -> None:
    # Annotated 10 to either side of 100; what was seen followed by half: it lies 5 off. Without
    # the pull it would lie where both meet.
    annotated = np.array([[110.0, 110, 210, 210], [90, 90, 190, 190]])
    detected = np.array([[105.0, 105, 205, 205], [95, 95, 195, 195]])
    sides, is_counted = np.full((2, 4), 100.0), np.ones((2, 4), bool)
    straight = model.remove_systematic_errors(annotated, detected, sides, is_counted, 0.5)
    assert straight == pytest.approx(np.tile([100.0, 100, 200, 200], (2, 1)))
    same = model.remove_systematic_errors(annotated, detected, sides, is_counted, 0.0)
    assert same == pytest.approx(detected)


def test_habits_are_taken_out() -> None:
    random = np.random.default_rng(0)
    annotated = np.tile([100.0, 100, 200, 200], (2000, 1)) + random.uniform(-10, 10, (2000, 4))
    detected = np.tile([103.0, 103, 197, 197], (2000, 1))  # always drawn too small
    sides = np.full((2000, 4), 100.0)
    straight = model.remove_systematic_errors(
        annotated, detected, sides, np.ones((2000, 4), bool), 0.0
    )
    assert straight.mean(axis=0) == pytest.approx([100, 100, 200, 200], abs=0.6)


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.4])
def test_the_noise_of_drawn_boxes_is_found_again(noise: float) -> None:
    actual, _ = judge_drawn(draw_boxes(noise, 0.04))
    assert actual.low <= noise <= actual.high
    assert actual.noise == pytest.approx(noise, abs=0.02)


def test_exact_annotations_have_no_noise_and_no_bad_boxes() -> None:
    actual, opinion = judge_drawn(draw_boxes(0.0, 0.08))
    assert actual.noise < 0.01
    assert opinion.p_bad.max() < 0.5
    assert opinion.p_bad.mean() < 0.01


@pytest.mark.parametrize(("noise", "error"), [(0.2, 0.04), (0.4, 0.05)])
def test_probabilities_and_gains_of_drawn_boxes_are_right(noise: float, error: float) -> None:
    one = draw_boxes(noise, error)
    _, opinion = judge_drawn(one)
    before = compute_iou(one["annotated"], one["true"])
    after = compute_iou(opinion.boxes, one["true"])
    is_bad, is_mended = before < 0.7, (after > before) & (after >= 0.7)
    for chances, is_true in ((opinion.p_bad, is_bad), (opinion.p_fix, is_mended)):
        assert chances.mean() == pytest.approx(is_true.mean(), abs=0.08)
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.01)):
            inside = (chances >= low) & (chances < high)
            if inside.sum() > 100:
                assert is_true[inside].mean() == pytest.approx(chances[inside].mean(), abs=0.12)
    assert after.mean() > before.mean() + 0.05
    assert opinion.iou_gain.mean() == pytest.approx((after - before).mean(), abs=0.02)


@pytest.mark.parametrize(
    ("noise", "error", "tolerance"),
    [
        (0.4, 0.15, 0.04),  # nearly all boxes get better, few of them good
        (0.02, 0.04, 0.08),  # all are good before, and not all get better
    ],
)
def test_a_fix_of_a_box_has_to_be_better_and_good(
    noise: float, error: float, tolerance: float
) -> None:
    one = draw_boxes(noise, error)
    _, opinion = judge_drawn(one)
    before, after = (compute_iou(boxes, one["true"]) for boxes in (one["annotated"], opinion.boxes))
    is_mended = (after > before) & (after >= 0.7)
    assert opinion.p_fix.mean() == pytest.approx(is_mended.mean(), abs=tolerance)


def test_boxes_that_even_confident_detections_contradict_are_grossly_off() -> None:
    random = np.random.default_rng(0)
    result = random.normal(0, 0.03, (5000, 4))
    is_gross = random.random(5000) < 0.2
    result[is_gross] = random.uniform(-1, 1, (is_gross.sum(), 4))
    fitted = model.fit_residuals(result, np.ones((5000, 4), bool), random.random(5000))
    # a fifth is off in every stratum; 0.02 of it may be the detector's
    assert fitted.gross == pytest.approx(0.18)
    assert fitted.strays == pytest.approx(np.full(5, 0.02))


def test_a_box_that_is_grossly_off_goes_where_it_was_seen() -> None:
    annotated, detected = np.array([[100.0, 100, 200, 200]]), np.array([[140.0, 140, 240, 240]])
    rest = np.array([0.9]), np.array([[1000.0, 1000]])
    none = model.judge_boxes(box_model(noise=0.02), annotated, detected, *rest)
    assert none.boxes[0] == pytest.approx(annotated[0], abs=2.5)  # by 0.02 of the side at most
    some = model.judge_boxes(box_model(noise=0.02, gross=0.1), annotated, detected, *rest)
    assert some.boxes[0] == pytest.approx(detected[0], abs=1)
    assert some.p_bad[0] > 0.95
    assert some.iou_gain[0] == pytest.approx(0.69, abs=0.03)


def test_no_box_is_seen_beyond_its_image() -> None:
    annotated, detected = np.array([[50.0, 50, 105, 100]]), np.array([[50.0, 50, 103, 100]])
    result = model.judge_boxes(
        box_model(noise=0.1), annotated, detected, np.array([0.9]), np.array([[100.0, 100]])
    )
    assert result.boxes[0, 2] <= 100
    assert result.boxes[0, 2] == pytest.approx(100, abs=0.01)


def test_errors_of_the_detector_are_widened_until_the_share_of_bad_boxes_is_right() -> None:
    rest = ("annotated", "detected", "confidences", "sizes")
    sure = box_model(noise=0.1, scales=np.full(5, 0.01))
    good, poor = (draw_boxes(0.1, error, number=2000) for error in (0.01, 0.2))
    assert model.temper_model(sure, *(good[name] for name in rest)).scales.tolist() == [0.01] * 5
    assert model.temper_model(sure, *(poor[name] for name in rest)).scales.tolist() == [0.02] * 5
    exact = box_model(noise=0.0)  # nothing is spoilt, so nothing is to be right
    assert model.temper_model(exact, *(poor[name] for name in rest)) is exact


def test_the_noise_of_few_boxes_has_wide_bounds() -> None:
    few, _ = judge_drawn(draw_boxes(0.2, 0.04, number=150))
    assert few.low < 0.01  # no noise at all cannot be excluded yet
    assert few.high > 0.2
    more, _ = judge_drawn(draw_boxes(0.2, 0.04, number=400))
    assert 0.1 < more.low < 0.19
    assert 0.2 < more.high < 0.25


def test_of_few_boxes_nothing_is_concluded() -> None:
    actual, opinion = judge_drawn(draw_boxes(0.4, 0.05, number=20))
    assert actual.noise == 0.0
    assert actual.high == pytest.approx(0.6)
    assert len(opinion.p_bad) == 20


def test_no_box_is_no_trouble() -> None:
    actual, opinion = judge_drawn(draw_boxes(0.2, 0.05, number=0))
    assert actual.noise == 0.0
    assert opinion.boxes.shape == (0, 4)


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = draw_boxes(0.2, 0.05, number=500)
    _, whole = judge_drawn(one)
    monkeypatch.setattr(model, "BOXES", replace(model.BOXES, boxes_per_chunk=64))
    _, parts = judge_drawn(one)
    assert parts.p_bad.tolist() == whole.p_bad.tolist()
    assert parts.boxes.tolist() == whole.boxes.tolist()
