"""Box noise against numbers worked out on paper, and against simulated means of the IoU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from boxmend.data.noise.boxes import (
    BOX_NOISES,
    clip_to_image,
    disturb_boxes,
    gaussian_moves,
    image_sizes,
    is_sound,
    jitter_moves,
    move_edges,
    uniform_moves,
)
from boxmend.data.noise.streams import Stream, uniform_rows
from tests.data.noise.noise_data import build, iou

Floats = NDArray[np.float64]
ENDLESS = np.array([[np.inf, np.inf]])
BOX = np.array([[100.0, 200, 180, 250]])  # 80 x 50


def forty_percent(draws: Floats) -> Floats:
    return uniform_moves(draws, 0.4)


def disturb_with(
    boxes: Any, sizes: Any, draws_by_attempt: Any, move: Callable[[Floats], Floats] = forty_percent
) -> tuple[Floats, list[tuple[int, list[int]]]]:
    """Disturb with injected draws; returns the boxes and the attempts that were made."""
    made: list[tuple[int, list[int]]] = []

    def draws(rows: NDArray[np.int64], attempt: int) -> Floats:
        made.append((attempt, rows.tolist()))
        drawn: Floats = np.array(draws_by_attempt[min(attempt, len(draws_by_attempt) - 1)])[rows]
        return drawn

    return disturb_boxes(np.array(boxes, float), np.array(sizes, float), draws, move), made


def test_uniform_moves_map_the_unit_interval_to_the_amplitude_on_both_sides() -> None:
    moves = uniform_moves(np.array([[0.0, 0.25, 0.5, 0.75]]), 0.4)
    assert moves == pytest.approx(np.array([[-0.4, -0.2, 0.0, 0.2]]))


def test_gaussian_moves_are_the_quantiles_of_a_normal_with_sigma_as_standard_deviation() -> None:
    moves = gaussian_moves(np.array([[0.5, 0.8413447460685429, 0.15865525393145707, 0.975]]), 0.2)
    assert moves == pytest.approx(np.array([[0, 0.2, -0.2, 0.39199279690801085]]), abs=1e-12)


def test_jitter_moves_the_centre_and_scales_the_size() -> None:
    # a = (0.2, -0.4) of centre, b = (0.4, 0.2) of size, by amplitude 0.4
    moves = jitter_moves(np.array([[0.75, 0.0, 1.0, 0.75]]), 0.4)
    assert moves == pytest.approx(np.array([[0.2 - 0.2, -0.4 - 0.1, 0.2 + 0.2, -0.4 + 0.1]]))
    # On 80 x 50 at centre (140, 225): centre (156, 205), size (112, 60).
    assert move_edges(BOX, moves) == pytest.approx(np.array([[100, 175, 212, 235]]))


def test_edges_move_by_shares_of_their_own_side() -> None:
    moves = np.array([[0.1, -0.2, -0.3, 0.4]])
    assert move_edges(BOX, moves) == pytest.approx(np.array([[108, 190, 156, 270]]))


def test_moves_are_cut_toward_zero_to_hundredths() -> None:
    moves = np.array([[0.9999, -0.9999, 0.005, -0.005]])
    unit = np.array([[10.0, 20, 11, 21]])
    assert move_edges(unit, moves) == pytest.approx(np.array([[10.99, 19.01, 11, 21]]), abs=1e-12)


def test_boxes_are_clipped_to_their_image_unless_its_size_is_unknown() -> None:
    boxes = np.array([[-5.0, -6, 120, 90], [-5, -6, 120, 90]])
    sizes = np.array([[100.0, 80], [np.inf, np.inf]])
    assert clip_to_image(boxes, sizes).tolist() == [[0, 0, 100, 80], [-5, -6, 120, 90]]


def test_sound_boxes_have_sides_of_at_least_a_pixel() -> None:
    boxes = [[0, 0, 1, 1], [0, 0, 0.99, 5], [0, 0, 5, 0.99], [5, 0, 1, 9], [0, 0, np.nan, 9]]
    boxes += [[0, 0, np.inf, 9], [-np.inf, 0, 1, 9]]
    assert is_sound(np.array(boxes)).tolist() == [True] + [False] * 6


def test_only_degenerate_boxes_are_drawn_again() -> None:
    # Image 100 wide. Row 1 reaches to 10 and draws x2 -40 %, x1 +40 %: 0.8 px of 4 wide remain.
    boxes = [[10, 10, 50, 50], [20, 10, 24, 50]]
    first = [[0.75, 0.5, 0.5, 0.5], [1.0, 0.5, 0.0, 0.5]]
    again = [[0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.75, 0.5]]
    result, made = disturb_with(boxes, [[100, 100]] * 2, [first, again])
    assert made == [(0, [0, 1]), (1, [1])]
    assert result == pytest.approx(np.array([[18, 10, 50, 50], [20, 10, 24.8, 50]]))


def test_a_box_that_is_degenerate_after_twenty_redraws_stays_clean() -> None:
    result, made = disturb_with([[20, 10, 21, 50]], ENDLESS, [[[1.0, 0.5, 0.0, 0.5]]])
    assert result.tolist() == [[20, 10, 21, 50]]
    assert [attempt for attempt, _ in made] == list(range(21))  # the first, and 20 again


def test_a_sound_draw_at_the_last_attempt_is_still_taken() -> None:
    draws = [[[1.0, 0.5, 0.0, 0.5]]] * 20 + [[[0.5, 0.5, 1.0, 0.5]]]
    result, _ = disturb_with([[20, 10, 21, 50]], ENDLESS, draws)
    assert result == pytest.approx(np.array([[20, 10, 21.4, 50]]))


def test_an_inverted_box_is_drawn_again_and_never_swapped() -> None:
    draws = [[[0.99, 0.5, 0.01, 0.5]], [[0.5, 0.5, 0.75, 0.5]]]
    result, made = disturb_with(BOX, ENDLESS, draws, lambda drawn: uniform_moves(drawn, 1.0))
    assert len(made) == 2
    assert result == pytest.approx(np.array([[100, 200, 220, 250]]))


def test_a_box_clipped_to_nothing_falls_back_to_the_clean_one() -> None:
    result, _ = disturb_with([[99.2, 10, 100, 50]], [[100, 100]], [[[0.5, 0.5, 1.0, 0.5]]])
    assert result.tolist() == [[99.2, 10, 100, 50]]


def test_boxes_too_large_for_floats_stay_as_they_are() -> None:
    huge = [[-1.7e308, 0, 1.7e308, 10], [0, 0, 1e307, 10]]
    result, _ = disturb_with(huge, [[np.inf] * 2] * 2, [[[0.1, 0.2, 0.3, 0.4]] * 2])
    assert result.tolist() == huge


def test_no_boxes_give_no_boxes() -> None:
    result, made = disturb_with(np.empty((0, 4)), np.empty((0, 2)), [np.empty((0, 4))])
    assert result.shape == (0, 4)
    assert made == []


@given(
    st.floats(0.01, 0.49),
    st.lists(st.tuples(*[st.integers(0, 4000)] * 2, *[st.integers(1000, 90_000)] * 2), min_size=1),
    st.integers(0, 5),
)
def test_no_edge_moves_further_than_the_amplitude(
    amplitude: float, whole: list[tuple[int, ...]], seed: int
) -> None:
    corner_and_side = np.array(whole, float) / 100
    low, high = corner_and_side[:, :2], corner_and_side.reshape(-1, 2, 2).sum(1)
    boxes = np.concatenate([low, high], axis=1)
    sides = np.tile(corner_and_side[:, 2:], 2)
    noisy = disturb_boxes(
        boxes,
        np.full((len(boxes), 2), np.inf),
        lambda rows, attempt: uniform_rows(seed, Stream.BOXES, rows, 4, attempt),
        lambda draws: uniform_moves(draws, amplitude),
    )
    assert (np.abs(noisy - boxes) <= amplitude * sides + 1e-9).all()
    assert noisy * 100 == pytest.approx(np.round(noisy * 100), abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "amount", "mean", "above_half"),
    [
        ("uniform", 0.1, 0.823, 1.0),
        ("uniform", 0.2, 0.682, 0.993),
        ("uniform", 0.3, 0.566, 0.741),
        ("uniform", 0.4, 0.469, 0.385),
        ("jitter", 0.1, 0.811, 1.0),
        ("jitter", 0.2, 0.664, 0.983),
        ("jitter", 0.4, 0.448, 0.319),
        ("gaussian", 0.2, 0.548, None),
        ("gaussian", 0.25, 0.471, None),
        ("gaussian", 0.3, 0.405, None),
    ],
)
def test_the_mean_iou_of_unclipped_noise_is_the_simulated_one(
    kind: str, amount: float, mean: float, above_half: float | None
) -> None:
    n = 20_000
    low = np.stack([np.arange(n) % 977, np.arange(n) % 761], axis=1) + 1e5
    boxes = np.concatenate([low, low + 100 + low % 7], axis=1)
    noisy = disturb_boxes(
        boxes,
        np.full((n, 2), np.inf),
        lambda rows, attempt: uniform_rows(0, Stream.BOXES, rows, 4, attempt),
        lambda draws: BOX_NOISES[kind](draws, amount),
    )
    overlap = iou(boxes, noisy)
    assert overlap.mean() == pytest.approx(mean, abs=0.01)
    if above_half is not None:
        assert (overlap > 0.5).mean() == pytest.approx(above_half, abs=0.015)


def test_image_sizes_are_infinite_where_unknown_or_where_nothing_is_clipped() -> None:
    dataset = build([[0, 0, 10, 10]] * 3, [0, 0, 0], num_images=3, size=(640, 480))
    dataset.images.heights[1] = 0
    rows = np.array([0, 1, 2])
    assert image_sizes(dataset, rows).tolist() == [
        [640, 480],
        [np.inf, np.inf],
        [640, 480],
    ]
    assert image_sizes(dataset, rows[:1], clip=False).tolist() == [[np.inf, np.inf]]
    assert dataset.images.heights.tolist() == [480, 0, 480]


def test_the_input_boxes_are_not_modified() -> None:
    boxes = BOX.copy()
    boxes.setflags(write=False)
    result, _ = disturb_with(boxes, ENDLESS, [[[0.1, 0.2, 0.3, 0.4]]])
    assert result.tolist() != BOX.tolist()
    assert boxes.tolist() == BOX.tolist()
