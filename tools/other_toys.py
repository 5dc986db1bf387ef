"""Drawn scenes to pre-train on: the embedded dataset's grounds, with other toys on them.

A class is one of thirteen silhouettes with one of three textures. No silhouette and no texture is
one of the embedded dataset's, so weights learnt here know nothing of what is asked there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from boxmend.data.synth.scene import SceneLayout, lay_out, paint
from boxmend.data.synth.shapes import Field, PlacedShape, Shape, compute_extent, linear_map
from boxmend.data.synth.textures import (
    Color,
    color_from_hsv,
    mix_colors,
    mix_fields,
    scatter_by_cell,
    soft_step,
    triangle_wave,
)

SIZE = 96  # pixels a side
MOST_OBJECTS = 5
SMALLEST, LARGEST = 0.19, 0.56  # diameters, in sides of the image
MOST_COVERED = 0.3  # of the smaller of two boxes by the other
PLACING_TRIES = 40
LEAST_CONTRAST = 0.3  # in lightness or, by a third, in the strongest channel
COLOR_TRIES = 8
STREAM = 0x0717

Corners = NDArray[np.float64]  # [k, 2], in order along the outline


@dataclass(frozen=True)
class Scene:
    """One painted image, and the box (xyxy, pixels) and label of each object in it."""

    pixels: NDArray[np.uint8]  # [3, SIZE, SIZE]
    boxes: NDArray[np.float32]  # [n, 4]
    labels: NDArray[np.int64]  # [n], into LABEL_NAMES


def draw(seed: int, index: int) -> Scene:
    """Draw scene `index` of `seed`; it depends on the two alone."""
    rng = np.random.default_rng((seed, index, STREAM))
    layout = lay_out(seed, index)
    canvas = paint(replace(layout, objects=(), labels=()), SIZE)
    boxes: list[NDArray[np.float64]] = []
    labels: list[int] = []
    diameters = rng.uniform(SMALLEST, LARGEST, rng.integers(2, MOST_OBJECTS + 1))
    for diameter in np.sort(diameters)[
        ::-1
    ].tolist():  # large ones first, so that small ones fit between them
        label = int(rng.integers(len(LABEL_NAMES)))
        shape, texture = divmod(label, len(TEXTURES))
        placed = _place(rng, list(SHAPES.values())[shape], diameter, boxes)
        if placed is not None:
            _paint_object(canvas, placed, list(TEXTURES.values())[texture], rng, layout)
            boxes.append(placed.box)
            labels.append(label)
    return Scene(
        pixels=_to_bytes(canvas, layout, rng),
        boxes=(np.array(boxes) * SIZE).astype(np.float32),
        labels=np.array(labels, dtype=np.int64),
    )


# Silhouettes: rounded polygons, some with a round hole. `build` in -1..1 sets the rounding.


def _polygon(corners: Corners, x: Field, y: Field) -> Field:
    """Return the signed distance to a polygon, negative inside."""
    nearest = np.full_like(x, np.inf)
    sign = np.ones_like(x)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        side_x, side_y, off_x, off_y = x2 - x1, y2 - y1, x - x1, y - y1
        along = np.clip((off_x * side_x + off_y * side_y) / (side_x**2 + side_y**2), 0, 1)
        nearest = np.minimum(nearest, (off_x - along * side_x) ** 2 + (off_y - along * side_y) ** 2)
        crosses = (y1 <= y) != (y2 <= y)
        is_left = side_x * off_y > side_y * off_x
        sign = np.where(crosses & (is_left == (y2 > y1)), -sign, sign)
    field: Field = sign * np.sqrt(nearest)
    return field


def _rounding(build: float) -> float:
    return 0.05 + 0.03 * build


def _distance(corners: Corners, hole: float, x: Field, y: Field, build: float) -> Field:
    field: Field = _polygon(corners, x, y) - _rounding(build)
    if hole:
        field = np.maximum(field, hole - np.sqrt(x * x + y * y))
    return field


def _hull(corners: Corners, build: float) -> tuple[Corners, float]:
    return corners, _rounding(build)


def _shape(*corners: tuple[float, float], hole: float = 0) -> Shape:
    """Center the corners, scale them into the circle of radius 0.95, and make a shape of them."""
    points = np.array(corners, dtype=np.float64)
    points -= (points.min(0) + points.max(0)) / 2
    points *= 0.95 / np.hypot(*points.T).max()
    return Shape(partial(_distance, points, hole), partial(_hull, points))


def _mirror(*corners: tuple[float, float]) -> list[tuple[float, float]]:
    """Complete a right half, listed from top to bottom, by its mirror image."""
    return [*corners, *((-x, y) for x, y in reversed(corners) if x)]


def _curve(count: int, at: Callable[[float], tuple[float, float]]) -> list[tuple[float, float]]:
    return [at(2 * math.pi * step / count) for step in range(count)]


def _drop(t: float) -> tuple[float, float]:
    return math.sin(t) * math.sin(t / 2) ** 1.5, -math.cos(t)


def _heart(t: float) -> tuple[float, float]:
    tail = 5 * math.cos(2 * t) + 2 * math.cos(3 * t) + math.cos(4 * t)
    return 16 * math.sin(t) ** 3, tail - 13 * math.cos(t)


def _leaf(t: float) -> tuple[float, float]:
    return 0.5 * math.sin(t) * abs(math.sin(t)), math.cos(t)


def _propeller(t: float) -> tuple[float, float]:
    radius = 0.55 + 0.45 * math.cos(3 * t)
    return radius * math.sin(t), radius * math.cos(t)


SHAPES: dict[str, Shape] = {
    "bolt": _shape((0.1, -1), (-0.6, 0.15), (-0.1, 0.15), (-0.3, 1), (0.6, -0.3), (0.1, -0.3)),
    "cup": _shape(*_mirror((0.3, 0.3), (0.3, -0.8), (0.8, -0.8), (0.7, 0.8))),
    "drop": _shape(*_curve(22, _drop)),
    "elbow": _shape((-0.8, -0.9), (-0.2, -0.9), (-0.2, 0.3), (0.8, 0.3), (0.8, 0.9), (-0.8, 0.9)),
    "fish": _shape(
        (-0.5, 0),
        (-1, -0.5),
        (-1, 0.5),
        (-0.5, 0),
        (0, 0.5),
        (0.5, 0.45),
        (1, 0),
        (0.5, -0.45),
        (0, -0.5),
    ),
    "frame": _shape((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8), hole=0.42),
    "heart": _shape(*_curve(24, _heart)),
    "hourglass": _shape(*_mirror((0.7, -0.9), (0.12, 0), (0.7, 0.9))),
    "house": _shape(*_mirror((0, -0.9), (0.7, -0.2), (0.7, 0.8))),
    "leaf": _shape(*_curve(20, _leaf)),
    "propeller": _shape(*_curve(30, _propeller)),
    "tee": _shape(*_mirror((0.85, -0.8), (0.85, -0.3), (0.25, -0.3), (0.25, 0.9))),
    "triangle": _shape(*_mirror((0, -0.9), (0.85, 0.6))),
}


# Textures: fields in 0..1 that mix two colors; x, y in the object's frame, where its radius is 1.

Texture = Callable[[Field, Field, float, NDArray[np.float64]], Field]


def _waves(x: Field, y: Field, pixel: float, knobs: NDArray[np.float64]) -> Field:
    period = 0.4 + 0.2 * knobs[0]
    bent = y + 0.3 * triangle_wave(x / (0.6 + 0.4 * knobs[1]) + knobs[2])
    return soft_step((triangle_wave(bent / period + knobs[3]) - 0.5) * (period / 2), pixel)


def _bricks(x: Field, y: Field, pixel: float, knobs: NDArray[np.float64]) -> Field:
    period = 0.4 + 0.2 * knobs[0]
    row = y / period + knobs[1]
    column = x / (period * 1.8) + knobs[2] + 0.5 * (np.floor(row) % 2)
    joint = np.minimum(triangle_wave(row), 1.8 * triangle_wave(column)) * (period / 2)
    tone = 0.35 * scatter_by_cell(np.floor(column), np.floor(row), knobs[3])
    field: Field = np.maximum(tone, 1 - soft_step(joint - 0.06, pixel))
    return field


def _halves(x: Field, y: Field, pixel: float, knobs: NDArray[np.float64]) -> Field:
    slant = 2 * knobs[0] - 1
    return soft_step(x + slant * y + 0.5 * (knobs[1] - 0.5), pixel)


TEXTURES: dict[str, Texture] = {"bricks": _bricks, "halves": _halves, "waves": _waves}
LABEL_NAMES = tuple(f"{texture} {shape}" for shape in SHAPES for texture in TEXTURES)


# Laying out and painting.


def _place(
    rng: np.random.Generator, shape: Shape, diameter: float, boxes: list[NDArray[np.float64]]
) -> PlacedShape | None:
    """Place an object where it covers little of the others; return None if there is no room."""
    build, aspect = rng.uniform(-1, 1), rng.uniform(0.75, 1.33)
    transform = linear_map(radius=diameter / 2, turn=rng.uniform(), aspect=aspect)
    reach = compute_extent(shape, build, transform)
    sides = reach[2:] - reach[:2]
    for _ in range(PLACING_TRIES):
        corner = rng.uniform(size=2) * (1 - sides)
        box = np.concatenate([corner, corner + sides])
        if all(_covered_share(box, other) <= MOST_COVERED for other in boxes):
            center = float(corner[0] - reach[0]), float(corner[1] - reach[1])
            return PlacedShape(shape.distance, build, center, transform, box)
    return None


def _covered_share(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the share of the smaller box that both boxes cover."""
    shared = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    area = min(float(np.prod(box[2:] - box[:2])) for box in (first, second))
    return float(np.prod(np.maximum(shared, 0))) / area


def _paint_object(
    canvas: Field,
    placed: PlacedShape,
    texture: Texture,
    rng: np.random.Generator,
    layout: SceneLayout,
) -> None:
    """Lay an object onto the canvas [3, SIZE, SIZE] in place: shadow, texture, a lit edge."""
    window = placed.window(SIZE, reach=4)
    x, y = placed.pixel_centers(SIZE, window)
    unit = placed.pixels_per_unit(SIZE)
    distance = placed.distance(x, y, placed.build) * unit  # in pixels, [h, w]
    down, across = np.gradient(distance)
    facing = across * layout.light[0] + down * layout.light[1]  # 1 where it faces the light
    view = canvas[:, *window]
    view *= 1 - 0.4 * np.clip(0.5 - (distance + 2 * facing) / 4, 0, 1)
    base, second = _colors(rng, mix_colors(*layout.ground.colors, 0.5))
    color = mix_fields((base, second), texture(x, y, 1 / unit, rng.uniform(size=4)))
    edge = np.clip(1 + distance / (0.25 * unit), 0, 1)  # 1 at the outline, 0 on the flat top
    color *= 1 + rng.uniform(0.1, 0.4) * edge * facing
    color -= rng.uniform(0, 0.3) * np.clip(1 + distance / 1.5, 0, 1)
    view += (color - view) * np.clip(0.5 - distance, 0, 1)


def _colors(rng: np.random.Generator, ground: Color) -> tuple[Color, Color]:
    """Draw two tones of any hue, the first of them unlike the ground if it can be."""
    for _ in range(COLOR_TRIES):
        base = color_from_hsv(*rng.uniform((0, 0.3, 0.4), (1, 0.95, 1)).tolist())
        if _contrast(base, ground) >= LEAST_CONTRAST:
            break
    towards = (1.0, 1.0, 1.0) if rng.uniform() < 0.5 else (0.0, 0.0, 0.0)
    return base, mix_colors(base, towards, rng.uniform(0.4, 0.75))


def _contrast(first: Color, second: Color) -> float:
    steps = [a - b for a, b in zip(first, second, strict=True)]
    lightness = 0.3 * steps[0] + 0.6 * steps[1] + 0.1 * steps[2]
    return abs(lightness) + max(map(abs, steps)) / 3


def _to_bytes(canvas: Field, layout: SceneLayout, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Turn tones [3, H, W] into bytes: contrast, brightness, grain."""
    tones = (canvas - 0.5) * layout.contrast + 0.5 + layout.brightness
    tones = tones + rng.normal(0, 0.4 * layout.grain, (1, SIZE, SIZE))
    return np.round(np.clip(tones, 0, 1) * 255).astype(np.uint8)
