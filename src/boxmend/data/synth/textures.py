"""Textures of the objects and of the background.

A texture is a field in 0..1 that mixes two colors. It uses only exactly rounded operations, so it
is identical on every machine; waves are triangles and parabolas.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from boxmend.data.synth.shapes import Field

Color = tuple[float, float, float]
"""Red, green and blue in 0..1."""

Knobs = tuple[float, float, float, float]
"""Four numbers in 0..1 that set the scale, slant and phase of a texture."""


@dataclass(frozen=True)
class Surface:
    """The surface of an object: the name of a texture, its settings, and the colors it mixes."""

    texture: str
    knobs: Knobs
    colors: tuple[Color, Color]


@dataclass(frozen=True)
class Ground:
    """The background: a pattern over a gradient, with soft glows of colored light."""

    pattern: str
    knobs: Knobs
    turn: float  # of gradient and pattern, in turns
    strength: float  # of the pattern
    colors: tuple[Color, Color]
    glows: tuple[tuple[float, float, float, Color], ...]  # x, y, radius, color added


def color_from_hsv(hue: float, saturation: float, value: float) -> Color:
    """Convert from hue (in turns, any number), saturation and value."""
    red, green, blue = (
        value * (1 - saturation * min(1.0, max(0.0, 2 - abs((hue * 6 + shift) % 6 - 2))))
        for shift in (5, 3, 1)
    )
    return red, green, blue


def mix_colors(first: Color, second: Color, share: float) -> Color:
    """Mix two colors; `share` is that of the second."""
    red, green, blue = (a + (b - a) * share for a, b in zip(first, second, strict=True))
    return red, green, blue


def mix_fields(colors: tuple[Color, Color], share: Field) -> Field:
    """Mix two colors by a field [h, w] of the second one's share; return [3, h, w]."""
    first, second = np.array(colors, dtype=np.float32)[..., None, None]  # [3, 1, 1] each
    blend: Field = share * (second - first)
    blend += first
    return blend


def paint_ground(ground: Ground, size: int) -> Field:
    """Paint the background [3, size, size], with tones around 0..1."""
    steps = ((np.arange(size) + 0.5) / size).astype(np.float32)
    across, down = steps[None, :], steps[:, None]
    cosine, sine = math.cos(ground.turn * 2 * math.pi), math.sin(ground.turn * 2 * math.pi)
    x, y = across * cosine + down * sine, down * cosine - across * sine
    canvas = mix_fields(ground.colors, np.clip(0.5 + 0.8 * (x - (cosine + sine) / 2), 0, 1))
    tone = GROUNDS[ground.pattern](x, y, 1 / size, ground.knobs)
    canvas *= 1 + ground.strength * (2 * tone - 1)
    for center_x, center_y, radius, color in ground.glows:
        off_x, off_y = (across - center_x) / radius, (down - center_y) / radius
        glow = np.maximum(1 - off_x * off_x - off_y * off_y, 0)
        canvas += glow * glow * np.array(color, dtype=np.float32)[:, None, None]
    return canvas


def take_fraction(value: Field) -> Field:
    """Return the fractional part, 0 <= part < 1, for negative values too."""
    part: Field = value - np.floor(value)
    return part


def triangle_wave(phase: Field) -> Field:
    """Return a wave that rises from 0 to 1 and falls back once per unit of phase."""
    wave: Field = 1 - np.abs(2 * take_fraction(phase) - 1)
    return wave


def scatter_by_cell(column: Field, row: Field, salt: float) -> Field:
    """Return a pseudo-random number in 0..1 for every cell (column, row) of whole numbers."""
    code = column.astype(np.int32).astype(np.uint32) * np.uint32(0x9E3779B1)
    code = code ^ (row.astype(np.int32).astype(np.uint32) * np.uint32(0x85EBCA77))
    code = (code + np.uint32(int(salt * 0xFFFF))) * np.uint32(0xC2B2AE3D)
    code = (code ^ (code >> np.uint32(15))) * np.uint32(0x27D4EB2F)
    return (code >> np.uint32(16)).astype(np.float32) * np.float32(1 / 65536)


def soft_step(distance: Field, pixel: float) -> Field:
    """Turn a distance into a mask: 0 below zero, 1 above, with a ramp of one pixel."""
    mask: Field = np.clip(distance / pixel + 0.5, 0, 1)
    return mask


# Textures of objects: x, y in the object's frame, where its radius is 1; `pixel` is the width of a
# pixel in that frame.


def _solid(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    field: Field = np.clip(0.12 + 0.12 * (x * (knobs[0] - 0.5) + y * (knobs[1] - 0.5)), 0, 1)
    return field


def _stripes(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    slant, period = knobs[0] * 2 - 1, 0.44 + 0.2 * knobs[1]
    phase = (x + slant * y) / period + knobs[2]
    return soft_step((triangle_wave(phase) - 0.5) * (period / 2), pixel)


def _dots(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.46 + 0.14 * knobs[0]
    row = y / period + knobs[1]
    column = x / period + knobs[2] + 0.5 * (np.floor(row) % 2)
    off_x, off_y = take_fraction(column) - 0.5, take_fraction(row) - 0.5
    return soft_step((0.34 - np.sqrt(off_x * off_x + off_y * off_y)) * period, pixel)


def _checker(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.62 + 0.2 * knobs[0]
    across = triangle_wave(x / period + knobs[1]) - 0.5
    along = triangle_wave(y / period + knobs[2]) - 0.5
    nearest = np.minimum(np.abs(across), np.abs(along)) * (period / 2)
    return soft_step(np.where((across > 0) == (along > 0), nearest, -nearest), pixel)


def _rings(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.36 + 0.1 * knobs[0]
    off_x, off_y = x + 0.3 * (knobs[1] - 0.5), y + 0.3 * (knobs[2] - 0.5)
    wave = triangle_wave(np.sqrt(off_x * off_x + off_y * off_y) / period + knobs[3])
    return soft_step((wave - 0.5) * (period / 2), pixel)


def _speckle(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    density = 4.6 + 1.2 * knobs[0]
    column, row = (0.8 * x - 0.6 * y) * density, (0.6 * x + 0.8 * y) * density
    cell_x, cell_y = np.floor(column), np.floor(row)
    near_x, near_y = (scatter_by_cell(cell_x, cell_y, salt) for salt in knobs[1:3])
    off_x = column - cell_x - 0.3 - 0.4 * near_x
    off_y = row - cell_y - 0.3 - 0.4 * near_y
    radius = 0.22 + 0.24 * take_fraction(near_x * 7 + near_y * 5)
    return soft_step((radius - np.sqrt(off_x * off_x + off_y * off_y)) / density, pixel)


TEXTURES: dict[str, Callable[[Field, Field, float, Knobs], Field]] = {
    "solid": _solid,
    "stripes": _stripes,
    "dots": _dots,
    "checker": _checker,
    "rings": _rings,
    "speckle": _speckle,
}


# Patterns of the background: x, y run over 0..1 across the image, slightly rotated; 0.5 is neutral.


def _plain(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    return 0.5 + 0 * (x + y)


def _cloth(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.07 + 0.12 * knobs[0]
    wide = soft_step((triangle_wave(x / period + knobs[1]) - 0.45) * (period / 2), pixel)
    thin = soft_step((triangle_wave(y / (period * 1.7)) - 0.7) * period, pixel)
    field: Field = 0.2 + 0.5 * wide + 0.3 * thin * (1 if knobs[2] > 0.5 else 0)
    return field


def _tiles(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.16 + 0.16 * knobs[0]
    column, row = x / period + knobs[1], y / period + knobs[2]
    joint = np.minimum(triangle_wave(column), triangle_wave(row)) * (period / 2)
    tone = 0.45 + 0.4 * scatter_by_cell(np.floor(column), np.floor(row), knobs[3])
    field: Field = tone * soft_step(joint - 0.006, max(pixel, 0.006))
    return field


def _planks(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    period = 0.14 + 0.14 * knobs[0]
    plank = y / period + knobs[1]
    number = np.floor(plank)
    tone = scatter_by_cell(number, number * 0, knobs[2])
    bend = triangle_wave(x * 0.7 + tone * 7)
    grain = triangle_wave(plank * 4 + bend * bend * 1.2 + tone * 5)
    joint = soft_step(triangle_wave(plank) * (period / 2) - 0.005, max(pixel, 0.006))
    field: Field = (0.3 + 0.45 * tone + 0.25 * grain) * joint
    return field


def _terrazzo(x: Field, y: Field, pixel: float, knobs: Knobs) -> Field:
    density = 14 + 14 * knobs[0]
    column, row = x * density, y * density + 0.35 * triangle_wave(x * density * 0.5)
    cell = scatter_by_cell(np.floor(column), np.floor(row), knobs[1])
    off_x, off_y = take_fraction(column) - 0.5, take_fraction(row) - 0.5
    radius = np.sqrt(off_x * off_x + off_y * off_y)
    chip = soft_step((0.2 + 0.25 * cell - radius) / density, pixel)
    field: Field = 0.5 + chip * (cell - 0.5)
    return field


GROUNDS: dict[str, Callable[[Field, Field, float, Knobs], Field]] = {
    "plain": _plain,
    "cloth": _cloth,
    "tiles": _tiles,
    "planks": _planks,
    "terrazzo": _terrazzo,
}
