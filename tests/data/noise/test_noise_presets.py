"""The noise of UNA: new kinds of noise, and the preset that mixes them."""

from dataclasses import replace

import numpy as np
import pytest

from boxmend.data.noise import NoiseSettings, disturb, make_preset
from boxmend.data.noise.boxes import move_edges, redraw_moves
from boxmend.data.noise.labels import relabel_any
from boxmend.data.noise.spurious import invent_from_corners
from boxmend.errors import DataError, UsageError
from tests.data.noise.noise_data import many


def test_a_redrawn_box_spans_two_points_around_the_old_one() -> None:
    box = np.array([[100.0, 200.0, 140.0, 300.0]])  # sides 40 and 100; points in 80..160, 150..350
    draws = np.array([[0.25, 0.9, 0.75, 0.5]])  # x: 100 and 140; y: 330 and 250
    assert move_edges(box, redraw_moves(draws, 0.5)).tolist() == [[100, 250, 140, 330]]
    without_margin = move_edges(box, redraw_moves(np.array([[1.0, 0.1, 0.5, 0.2]]), 0.0))
    assert without_margin == pytest.approx(np.array([[120, 210, 140, 220]]))


def test_any_label_may_be_drawn_the_right_one_too() -> None:
    labels, keys = np.array([0, 1, 2, 3]), np.array([0.1, 0.9, 0.2, 0.3])
    draws = np.array([0.0, 0.0, 0.99, 0.3])
    assert relabel_any(labels, keys, draws, 0.75, 4).tolist() == [0, 1, 3, 1]


def test_images_take_turns_for_boxes_between_random_corners() -> None:
    clean = many(30, num_images=7)
    added = invent_from_corners(clean, np.arange(75), seed=3)
    counts = np.bincount(added.image_rows, minlength=len(clean.images))
    assert counts.max() - counts[counts > 0].min() <= 1
    assert counts.sum() == 75
    sizes = clean.images.sizes[added.image_rows]
    assert (added.boxes[:, :2] >= 0).all()
    assert (added.boxes[:, 2:] <= sizes).all()
    assert (added.boxes[:, 2:] - added.boxes[:, :2] >= 1).all()
    fewer = invent_from_corners(clean, np.arange(20), seed=3)
    assert (fewer.boxes == added.boxes[:20]).all()


def test_the_preset_has_four_equal_shares() -> None:
    clean = many(500)
    noisy = disturb(clean, make_preset("una:0.2", seed=1))
    n = noisy.counts["eligible"]
    assert noisy.counts["missing"] == noisy.counts["spurious"] == round(0.2 * n)
    assert noisy.counts["boxes_changed"] == pytest.approx(0.2 * 0.8 * n, rel=0.2)
    right = 1 / len(clean.label_names)
    assert noisy.counts["labels_changed"] == pytest.approx(0.2 * 0.8 * (1 - right) * n, rel=0.2)
    assert make_preset("una:0") == replace(
        NoiseSettings(),
        labels="any:0",
        gross_noise="redraw:0.5",
        spurious_at="corners",
    )


@pytest.mark.parametrize("text", ["una", "una:2", "una:x", "other:0.2"])
def test_a_wrong_preset_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"una:0\.2"):
        make_preset(text)


def test_corners_need_images_of_known_size() -> None:
    clean = many(5)
    images = replace(clean.images, widths=clean.images.widths * 0)
    with pytest.raises(DataError, match="known size"):
        invent_from_corners(replace(clean, images=images), np.arange(3), seed=0)
