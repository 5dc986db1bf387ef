"""The model of two who measure the same edge: hand-computed parts, then drawn boxes."""

import numpy as np
import pytest

from boxmend.auditing import boxes as model
from boxmend.comparison.annotations import overlaps


def drawn(noise: float, error: float, number: int = 4000, seed: int = 0) -> dict[str, np.ndarray]:
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


def judged(one: dict[str, np.ndarray]) -> tuple[model.BoxModel, model.BoxOpinion]:
    found, straight = model.fitted(
        one["annotated"], one["detected"], one["sizes"], one["confidences"], 0.0
    )
    opinion = model.judge_boxes(found, one["annotated"], straight, one["confidences"], one["sizes"])
    return found, opinion


def test_residuals_are_in_shares_of_the_sides() -> None:
    annotated, detected = np.array([[0.0, 0, 20, 10]]), np.array([[2.0, 1, 18, 11]])
    sides = model.true_sides(annotated, detected, trust=1.0)
    assert sides.tolist() == [[20, 10, 20, 10]]
    assert model.residuals(annotated, detected, sides).tolist() == [[-0.1, -0.1, 0.1, -0.1]]
    # half in logarithms: sqrt(20 * 16) and sqrt(10 * 10)
    assert model.true_sides(annotated, detected, 0.5)[0, :2] == pytest.approx([320**0.5, 10])


def test_edges_near_the_border_are_not_free() -> None:
    detected = np.array([[1.0, 30, 51, 95]])  # sides 50 and 65: borders within 5 and 6.5
    assert model.is_free(detected, np.array([[100.0, 100]])).tolist() == [
        [False, True, True, False]
    ]
    assert model.is_free(detected, np.zeros((1, 2))).tolist() == [[False, True, True, True]]


def test_what_follows_half_of_every_shift_has_a_pull_of_a_half() -> None:
    shifts = np.array([[0.1, -0.2, 0.1, 0.2]])
    assert model.pull_of(shifts, 0.5 * shifts) == pytest.approx(0.5)
    assert model.pull_of(shifts, 0.25 * shifts) == pytest.approx(0.25)
    assert model.pull_of(shifts, -shifts) == 0.0
    assert model.pull_of(np.zeros((0, 4)), np.zeros((0, 4))) == 0.0


def test_habits_are_taken_out() -> None:
    random = np.random.default_rng(0)
    annotated = np.tile([100.0, 100, 200, 200], (2000, 1)) + random.uniform(-10, 10, (2000, 4))
    detected = np.tile([103.0, 103, 197, 197], (2000, 1))  # always drawn too small
    sides = np.full((2000, 4), 100.0)
    straight = model.straightened(annotated, detected, sides, np.ones((2000, 4), bool), 0.0)
    assert straight.mean(axis=0) == pytest.approx([100, 100, 200, 200], abs=0.6)


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.4])
def test_the_noise_of_drawn_boxes_is_found_again(noise: float) -> None:
    found, _ = judged(drawn(noise, 0.04))
    assert found.low <= noise <= found.high
    assert found.noise == pytest.approx(noise, abs=0.02)


def test_exact_annotations_have_no_noise_and_no_bad_boxes() -> None:
    found, opinion = judged(drawn(0.0, 0.08))
    assert found.noise < 0.01
    assert opinion.p_bad.max() < 0.5
    assert opinion.p_bad.mean() < 0.01


@pytest.mark.parametrize(("noise", "error"), [(0.2, 0.04), (0.4, 0.05)])
def test_probabilities_and_gains_of_drawn_boxes_are_right(noise: float, error: float) -> None:
    one = drawn(noise, error)
    _, opinion = judged(one)
    before = overlaps(one["annotated"], one["true"])
    after = overlaps(opinion.boxes, one["true"])
    is_bad, is_mended = before < 0.7, (after > before) & (after >= 0.7)
    for chances, is_true in ((opinion.p_bad, is_bad), (opinion.p_fix, is_mended)):
        assert chances.mean() == pytest.approx(is_true.mean(), abs=0.08)
        for low, high in ((0.0, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.01)):
            inside = (chances >= low) & (chances < high)
            if inside.sum() > 100:
                assert is_true[inside].mean() == pytest.approx(chances[inside].mean(), abs=0.12)
    assert after.mean() > before.mean() + 0.05
    assert opinion.iou_gain.mean() == pytest.approx((after - before).mean(), abs=0.02)


def test_of_few_boxes_nothing_is_concluded() -> None:
    found, opinion = judged(drawn(0.4, 0.05, number=20))
    assert found.noise == 0.0
    assert found.high == pytest.approx(0.6)
    assert len(opinion.p_bad) == 20


def test_no_box_is_no_trouble() -> None:
    found, opinion = judged(drawn(0.2, 0.05, number=0))
    assert found.noise == 0.0
    assert opinion.boxes.shape == (0, 4)


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = drawn(0.2, 0.05, number=500)
    _, whole = judged(one)
    monkeypatch.setattr(model, "AT_ONCE", 64)
    _, parts = judged(one)
    assert parts.p_bad.tolist() == whole.p_bad.tolist()
    assert parts.boxes.tolist() == whole.boxes.tolist()
