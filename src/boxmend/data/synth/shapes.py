"""Silhouettes: the six labelled shapes and the small shapes of clutter.

Every shape is a signed distance in its own frame, negative inside, within a circle of radius about
1 around the origin. The fields use only sums, products, quotients, square roots and comparisons,
which IEEE 754 rounds alike on every machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.floating]
"""Values over a window of pixels, float32; NumPy's stubs lose the width in mixed arithmetic."""

_TAU = 2 * math.pi


@dataclass(frozen=True)
class Shape:
    """A silhouette with one degree of freedom, `build` in -1..1 (slim to stout).

    `distance(x, y, build)` is the signed distance of each point. `hull(build)` returns points
    [k, 2] and a radius: circles of that radius around these points have the silhouette's convex
    hull, and so its extent in any direction.
    """

    distance: Callable[[Field, Field, float], Field]
    hull: Callable[[float], tuple[NDArray[np.float64], float]]


@dataclass(frozen=True)
class PlacedShape:
    """A shape at a place in an image; lengths are fractions of the image's side."""

    distance: Callable[[Field, Field, float], Field]
    build: float
    center: tuple[float, float]
    transform: NDArray[np.float64]  # [2, 2], from the shape's frame to the image's
    box: NDArray[np.float64]  # [4], xyxy, around the whole silhouette

    def window(self, size: int, reach: int) -> tuple[slice, slice]:
        """Return the slices of rows and columns of the box, widened by `reach` pixels."""
        left, top = (max(0, math.floor(low * size) - reach) for low in self.box[:2])
        right, bottom = (min(size, math.ceil(high * size) + reach) for high in self.box[2:])
        return slice(top, bottom), slice(left, right)

    def pixel_centers(self, size: int, window: tuple[slice, slice]) -> tuple[Field, Field]:
        """Return the pixel centers of a window in the shape's frame: x, y [h, w]."""
        rows, columns = window
        x = (np.arange(columns.start, columns.stop) + 0.5 - self.center[0] * size) / size
        y = (np.arange(rows.start, rows.stop)[:, None] + 0.5 - self.center[1] * size) / size
        (a, b), (c, d) = self.transform.tolist()
        determinant = a * d - b * c
        own_x, own_y = (d * x - b * y) / determinant, (a * y - c * x) / determinant
        return own_x.astype(np.float32), own_y.astype(np.float32)

    def pixels_per_unit(self, size: int) -> float:
        """Return the number of pixels per unit of the shape's length, averaged over directions."""
        (a, b), (c, d) = self.transform.tolist()
        return math.sqrt(a * d - b * c) * size


def linear_map(*, radius: float, turn: float, aspect: float) -> NDArray[np.float64]:
    """Return the [2, 2] map that stretches by `aspect` along x, rotates, and scales by `radius`.

    The stretch keeps the area; `turn` is in full turns, not radians.
    """
    cosine, sine = math.cos(turn * _TAU), math.sin(turn * _TAU)
    along, across = radius * math.sqrt(aspect), radius / math.sqrt(aspect)
    return np.array([[cosine * along, -sine * across], [sine * along, cosine * across]])


def compute_extent(
    shape: Shape, build: float, transform: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the bounds xyxy [4] of the transformed silhouette, relative to its origin."""
    points, radius = shape.hull(build)
    x, y = (
        points[:, 0] * row[0] + points[:, 1] * row[1]  # no matmul: its rounding depends on the BLAS
        for row in transform
    )
    pad_x, pad_y = (radius * math.sqrt(row[0] * row[0] + row[1] * row[1]) for row in transform)
    return np.array([x.min() - pad_x, y.min() - pad_y, x.max() + pad_x, y.max() + pad_y])


# Signed distances to primitives.


def _length(x: Field, y: Field) -> Field:
    norm: Field = np.sqrt(x * x + y * y)
    return norm


def _box(x: Field, y: Field, half_width: float, half_height: float) -> Field:
    over_x, over_y = np.abs(x) - half_width, np.abs(y) - half_height
    outside = _length(np.maximum(over_x, 0), np.maximum(over_y, 0))
    field: Field = outside + np.minimum(np.maximum(over_x, over_y), 0)
    return field


def _triangle(x: Field, y: Field, half_base: float, height: float) -> Field:
    """Return the distance to an isosceles triangle: tip at (height, 0), base on the line x = 0."""
    y = np.abs(y)
    from_tip, norm = height - x, height * height + half_base * half_base
    share = np.clip((from_tip * height + y * half_base) / norm, 0, 1)
    to_side = _length(from_tip - share * height, y - share * half_base)
    to_base = _length(x, np.maximum(y - half_base, 0))
    inside = (x > 0) & (y * height < from_tip * half_base)
    nearest: Field = np.minimum(to_side, to_base)
    return np.where(inside, -nearest, nearest)


# The six labelled shapes.

_ARROW_ROUND, _GEAR_ROUND, _MOON_ROUND, _PLUS_ROUND, _STAR_ROUND = 0.06, 0.05, 0.05, 0.07, 0.07
_ARROW_BACK, _ARROW_NECK, _ARROW_TIP = -0.90, 0.02, 0.94  # x of tail, head's base and tip
_GEAR_TEETH, _GEAR_BODY, _GEAR_TIP = 8, 0.68, 0.93
_MOON_OUTER = 0.95
_PLUS_REACH = 0.88
_STAR_REACH = 0.93
_COS_36, _SIN_36 = 0.8090169943749475, 0.5877852522924731
_COS_22, _SIN_22 = 0.9238795325112867, 0.3826834323650898  # of 22.5 degrees, half a tooth


def _arrow_sizes(build: float) -> tuple[float, float]:
    return 0.62 + 0.06 * build, 0.19 + 0.05 * build  # half heights of head and shaft


def _arrow(x: Field, y: Field, build: float) -> Field:
    head, shaft = _arrow_sizes(build)
    middle, half = (_ARROW_BACK + _ARROW_NECK) / 2, (_ARROW_NECK - _ARROW_BACK) / 2
    head_field = _triangle(x - _ARROW_NECK, y, head, _ARROW_TIP - _ARROW_NECK)
    field: Field = np.minimum(head_field, _box(x - middle, y, half, shaft)) - _ARROW_ROUND
    return field


def _arrow_hull(build: float) -> tuple[NDArray[np.float64], float]:
    head, shaft = _arrow_sizes(build)
    back, neck = _ARROW_BACK, _ARROW_NECK
    corners = [(_ARROW_TIP, 0), (neck, head), (neck, -head), (back, shaft), (back, -shaft)]
    return np.array(corners), _ARROW_ROUND


def _gear(x: Field, y: Field, build: float) -> Field:
    radius = _length(x, y)
    x, y = np.abs(x), np.abs(y)
    x, y = np.maximum(x, y), np.minimum(x, y)  # 0 to 45 degrees
    over = 2 * np.maximum(y * _COS_22 - x * _SIN_22, 0)
    x, y = x + over * _SIN_22, y - over * _COS_22  # mirrored onto the tooth at 0 degrees
    tooth = _box(x - _GEAR_TIP / 2, y, _GEAR_TIP / 2, 0.13 + 0.02 * build)
    field: Field = np.minimum(tooth, radius - _GEAR_BODY) - _GEAR_ROUND
    with_hole: Field = np.maximum(field, 0.26 + 0.04 * build - radius)
    return with_hole


def _gear_hull(build: float) -> tuple[NDArray[np.float64], float]:
    half = 0.13 + 0.02 * build
    angles = [_TAU * tooth / _GEAR_TEETH for tooth in range(_GEAR_TEETH)]
    corners = [
        (_GEAR_TIP * math.cos(a) - side * math.sin(a), _GEAR_TIP * math.sin(a) + side * math.cos(a))
        for a in angles
        for side in (-half, half)
    ]
    return np.array(corners), _GEAR_ROUND


def _moon_cut(build: float) -> tuple[float, float, float, float]:
    """Return center and radius of the disc that is cut away, and the upper horn's x and y."""
    center, radius = 0.58 + 0.08 * build, 0.80
    horn = (_MOON_OUTER**2 - radius**2 + center**2) / (2 * center)
    return center, radius, horn, math.sqrt(_MOON_OUTER**2 - horn**2)


def _moon(x: Field, y: Field, build: float) -> Field:
    center, radius, horn_x, horn_y = _moon_cut(build)
    y = np.abs(y)
    body = np.maximum(_length(x, y) - _MOON_OUTER, radius - _length(x - center, y))
    beyond = x * horn_y - y * horn_x > center * np.maximum(horn_y - y, 0)
    return np.where(beyond, _length(x - horn_x, y - horn_y), body) - _MOON_ROUND


def _moon_hull(build: float) -> tuple[NDArray[np.float64], float]:
    _, _, horn_x, horn_y = _moon_cut(build)
    start = math.atan2(horn_y, horn_x)
    arc = [start + (_TAU - 2 * start) * step / 96 for step in range(97)]
    points = [(_MOON_OUTER * math.cos(a), _MOON_OUTER * math.sin(a)) for a in arc]
    return np.array(points), _MOON_ROUND


def _plus(x: Field, y: Field, build: float) -> Field:
    arm = 0.24 + 0.05 * build
    x, y = np.abs(x), np.abs(y)
    field: Field = _box(np.maximum(x, y), np.minimum(x, y), _PLUS_REACH, arm) - _PLUS_ROUND
    return field


def _plus_hull(build: float) -> tuple[NDArray[np.float64], float]:
    arm, reach = 0.24 + 0.05 * build, _PLUS_REACH
    ends = [(reach, arm), (reach, -arm), (-reach, arm), (-reach, -arm)]
    return np.array(ends + [(y, x) for x, y in ends]), _PLUS_ROUND


def _ring(x: Field, y: Field, build: float) -> Field:
    half_width = 0.20 + 0.04 * build
    field: Field = np.abs(_length(x, y) - (1 - half_width)) - half_width
    return field


def _ring_hull(build: float) -> tuple[NDArray[np.float64], float]:
    return np.zeros((1, 2)), 1.0


def _star(x: Field, y: Field, build: float) -> Field:
    x = np.abs(x)
    over = 2 * np.maximum(x * _COS_36 - y * _SIN_36, 0)
    x, y = x - over * _COS_36, y + over * _SIN_36
    over = 2 * np.maximum(-x * _COS_36 - y * _SIN_36, 0)
    x, y = np.abs(x + over * _COS_36), y + over * _SIN_36 - _STAR_REACH
    waist = 0.46 + 0.05 * build  # radius of the inner corners, as a share of the outer one
    side_x, side_y = waist * _SIN_36, waist * _COS_36 - 1
    along = (x * side_x + y * side_y) / (side_x * side_x + side_y * side_y)
    along = np.clip(along, 0, _STAR_REACH)
    sign = np.where(y * side_x - x * side_y > 0, np.float32(1), np.float32(-1))
    field: Field = _length(x - along * side_x, y - along * side_y) * sign - _STAR_ROUND
    return field


def _star_hull(build: float) -> tuple[NDArray[np.float64], float]:
    angles = [_TAU * tip / 5 for tip in range(5)]
    return np.array([(math.sin(a), math.cos(a)) for a in angles]) * _STAR_REACH, _STAR_ROUND


SHAPES: dict[str, Shape] = {
    "arrow": Shape(_arrow, _arrow_hull),
    "gear": Shape(_gear, _gear_hull),
    "moon": Shape(_moon, _moon_hull),
    "plus": Shape(_plus, _plus_hull),
    "ring": Shape(_ring, _ring_hull),
    "star": Shape(_star, _star_hull),
}


# Clutter: shapes without a label.


def _disc(x: Field, y: Field, build: float) -> Field:
    field: Field = _length(x, y) - 1
    return field


def _block(x: Field, y: Field, build: float) -> Field:
    field: Field = _box(x, y, 0.75, 0.65 + 0.15 * build) - 0.1
    return field


def _wedge(x: Field, y: Field, build: float) -> Field:
    field: Field = _triangle(x + 0.45, y, 0.75 + 0.1 * build, 1.3) - 0.1
    return field


def _stick(x: Field, y: Field, build: float) -> Field:
    return _box(x, y, 0.95, 0) - (0.05 + 0.02 * build)


def _squiggle(x: Field, y: Field, build: float) -> Field:
    phase = x * 1.3 - np.floor(x * 1.3)
    half = np.where(phase < 0.5, phase, phase - 0.5) * 2  # 0..1 on either half wave
    bend = half * (1 - half) * np.where(phase < 0.5, np.float32(0.9), np.float32(-0.9))
    thread = np.abs(y - bend) * 0.7 - 0.05  # 0.7: a slanted thread is nearer than it is below
    field: Field = np.maximum(thread, np.abs(x) - 0.95 - 0.04 * build)
    return field


CLUTTER: dict[str, Callable[[Field, Field, float], Field]] = {
    "disc": _disc,
    "block": _block,
    "wedge": _wedge,
    "stick": _stick,
    "squiggle": _squiggle,
}
