"""Drawn scenes: the same bytes on every machine, and true boxes and labels."""

import hashlib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from boxmend.data.synth.scene import LABEL_NAMES, DrawnScene, Piece, draw_scene, lay_out, paint
from boxmend.data.synth.shapes import PlacedShape
from boxmend.data.synth.textures import Color, color_from_hsv
from tests.data.synth.silhouettes import silhouette

SCENES = range(40)


def fingerprint(scene: DrawnScene) -> str:
    return hashlib.sha256(scene.pixels.tobytes()).hexdigest()


def extent_of_pixels(placed: PlacedShape, size: int) -> np.ndarray:
    rows, columns = np.nonzero(silhouette(placed, size) > 0.5)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


def recolor(piece: Piece, color: Color) -> Piece:
    return replace(piece, surface=replace(piece.surface, colors=(color, color)))


def test_a_scene_never_changes() -> None:
    scene = draw_scene(7, 3)
    assert fingerprint(scene) == "6623bd6d3036d72670912ba59e12c6d0cb97ed6a64d20c591a27cb68fc337f45"
    assert [LABEL_NAMES[label] for label in scene.labels] == ["plus", "star"]
    assert scene.boxes.tolist() == [[29.48, 2.44, 68.32, 40.36], [64.99, 37.11, 87.89, 59.48]]


def test_the_same_call_gives_the_same_bytes() -> None:
    first, second = draw_scene(1, 5), draw_scene(1, 5)
    assert first.pixels.tobytes() == second.pixels.tobytes()
    assert first.boxes.tobytes() == second.boxes.tobytes()
    assert first.labels.tobytes() == second.labels.tobytes()


def test_a_scene_does_not_depend_on_those_drawn_before_it() -> None:
    forward = [fingerprint(draw_scene(2, index)) for index in range(4)]
    backward = [fingerprint(draw_scene(2, index)) for index in reversed(range(4))]
    assert forward == backward[::-1]


def test_every_seed_and_index_gives_another_scene() -> None:
    prints = {fingerprint(draw_scene(seed, index)) for seed in range(3) for index in range(5)}
    assert len(prints) == 15
    assert fingerprint(draw_scene(1, 2)) != fingerprint(draw_scene(2, 1))


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        draw_scene(-1, 0)


@pytest.mark.parametrize("size", [64, 96, 131])
def test_arrays_have_the_promised_shapes(size: int) -> None:
    scene = draw_scene(0, 0, size=size)
    assert scene.pixels.shape == (size, size, 3)
    assert scene.pixels.dtype == np.uint8
    assert scene.pixels.flags.c_contiguous
    assert scene.boxes.shape == (len(scene.labels), 4)
    assert scene.boxes.dtype == np.float64
    assert scene.labels.dtype == np.int64


def test_boxes_lie_inside_the_image_and_are_as_large_as_promised() -> None:
    for index in SCENES:
        scene = draw_scene(3, index)
        sides = scene.boxes[:, 2:] - scene.boxes[:, :2]
        assert 2 <= len(scene.boxes) <= 4
        assert scene.boxes.min() >= 0
        assert scene.boxes.max() <= 96
        assert sides.min() > 10  # a slim arrow lying flat
        assert sides.max() < 54  # the largest diameter, stretched
        np.testing.assert_array_equal(scene.boxes, np.round(scene.boxes, 2))


def test_boxes_are_tight_around_the_silhouette() -> None:
    fine = 8  # a tip thinner than a pixel shows only on a finer grid
    for index in SCENES:
        for piece in lay_out(4, index).objects:
            seen = extent_of_pixels(piece.placed, 96 * fine) / fine
            np.testing.assert_allclose(piece.placed.box * 96, seen, atol=0.15)


def test_the_painted_body_fills_its_box() -> None:
    for index in range(15):
        scene, layout = draw_scene(4, index), lay_out(4, index)
        for box, piece in zip(scene.boxes, layout.objects, strict=True):
            red, blue = (
                paint(replace(layout, objects=(recolor(piece, color),), over=()), 96)
                for color in ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
            )
            rows, columns = np.nonzero(np.abs(red - blue).max(axis=0) > 0.2)  # shadows agree
            body = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            np.testing.assert_allclose(box, body, atol=1.3)  # a whole pixel at slim tips


def test_no_object_hides_much_of_another() -> None:
    hidden = []
    for index in range(150):
        covers = [silhouette(piece.placed, 96) for piece in lay_out(5, index).objects]
        for below, cover in enumerate(covers[:-1]):
            later = np.max(covers[below + 1 :], axis=0)
            hidden.append(float((cover * later).sum() / cover.sum()))
    assert max(hidden) < 0.4
    assert np.mean(np.array(hidden) > 0.02) > 0.05  # but overlaps do occur


def test_labels_are_about_equally_frequent() -> None:
    labels = np.concatenate([lay_out(6, index).labels for index in range(300)])
    shares = np.bincount(labels, minlength=len(LABEL_NAMES)) / len(labels)
    assert len(shares) == len(LABEL_NAMES)
    np.testing.assert_allclose(shares, 1 / 6, atol=0.04)


def test_every_label_has_its_typical_texture_seven_times_in_ten() -> None:
    seen: dict[int, list[str]] = {label: [] for label in range(len(LABEL_NAMES))}
    for index in range(300):
        layout = lay_out(6, index)
        for label, piece in zip(layout.labels, layout.objects, strict=True):
            seen[label].append(piece.surface.texture)
    favourites = {label: max(set(names), key=names.count) for label, names in seen.items()}
    assert len(set(favourites.values())) == len(LABEL_NAMES)
    share = np.mean([name == favourites[label] for label in seen for name in seen[label]])
    assert share == pytest.approx(0.7 + 0.3 / 6, abs=0.05)  # the random one may be the same


def test_the_layout_is_the_same_at_every_size() -> None:
    for index in range(10):
        small, large = draw_scene(8, index), draw_scene(8, index, size=320)
        np.testing.assert_array_equal(small.labels, large.labels)
        np.testing.assert_allclose(small.boxes * (320 / 96), large.boxes, atol=0.03)


def test_a_large_picture_shrinks_to_the_small_one() -> None:
    for index in range(12):
        layout = lay_out(8, index)
        shrunk = paint(layout, 288).reshape(3, 96, 3, 96, 3).mean(axis=(2, 4))
        assert np.abs(shrunk - paint(layout, 96)).mean() < 0.012  # of 1; thin edges differ


def test_objects_stand_out_from_what_is_around_them() -> None:
    for index in SCENES:
        pixels = draw_scene(9, index).pixels.astype(float)
        objects = [piece.placed for piece in lay_out(9, index).objects]
        covers = np.array([silhouette(placed, 96) for placed in objects])  # [n, 96, 96]
        for number, placed in enumerate(objects):
            inside = (covers[number] > 0.99) & (covers.sum(axis=0) < 1.01)
            around = np.zeros((96, 96), dtype=bool)
            around[placed.window(96, reach=4)] = True
            around &= covers.max(axis=0) < 0.01
            difference = np.abs(pixels[inside] - pixels[around].mean(axis=0)).max(axis=1)
            assert difference.mean() > 30  # of 255


def test_scenes_differ_in_brightness_without_clipping_away() -> None:
    means = np.array([draw_scene(10, index).pixels.mean() for index in SCENES])
    assert means.std() > 12
    assert means.min() > 40
    assert means.max() < 225


@pytest.mark.parametrize(
    ("hue", "expected"),
    [(0, (1, 0.5, 0.5)), (1 / 6, (1, 1, 0.5)), (1 / 3, (0.5, 1, 0.5)), (-1 / 3, (0.5, 0.5, 1))],
)
def test_hues_run_from_red_over_green_to_blue(hue: float, expected: tuple[float, ...]) -> None:
    assert color_from_hsv(hue, 0.5, 1.0) == pytest.approx(expected)


def test_label_names_are_sorted_and_distinct() -> None:
    assert all(first < second for first, second in pairwise(LABEL_NAMES))
