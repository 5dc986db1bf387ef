"""Drawn scenes of toys on a table, with the box and label of each toy.

A scene is first laid out in fractions of the image's side, then painted. The layout does not depend
on the size in pixels, so a scene looks alike at every size.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.synth.shapes import (
    CLUTTER,
    SHAPES,
    Field,
    PlacedShape,
    compute_extent,
    linear_map,
)
from boxmend.data.synth.textures import (
    GROUNDS,
    TEXTURES,
    Color,
    Ground,
    Knobs,
    Surface,
    color_from_hsv,
    mix_colors,
    mix_fields,
    paint_ground,
)

LABEL_NAMES: tuple[str, ...] = ("arrow", "gear", "moon", "plus", "ring", "star")

_LAYOUT_STREAM, _GRAIN_STREAM = 0x70795, 0x6EA14
_TYPICAL_TEXTURES = ("stripes", "speckle", "dots", "checker", "solid", "rings")  # by label
_TYPICAL_HUES = (0.02, 0.61, 0.14, 0.35, 0.49, 0.89)  # by label, in turns
_TYPICAL_TEXTURE_RATE, _TYPICAL_HUE_RATE = 0.7, 0.5
_MIN_DIAMETER, _MAX_DIAMETER = 0.21, 0.52  # of the side; 20 and 50 of 96 pixels
_MARGIN = 0.012  # of the side, between an object and the image's edge
_MAX_COVERED_SHARE = 0.38  # of a box by other boxes; of the silhouettes inside, below 40%
_MAX_PLACEMENTS = 60  # tries per object
_MIN_CONTRAST = 0.34  # between an object's color and the background's, see _contrast
_BLACK, _WHITE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class DrawnScene:
    """A painted image and its true annotations.

    `boxes` are xyxy, zero-based, half-open and in pixels, rounded to hundredths; each is tight
    around the whole silhouette of its object, even where a later object covers it. `labels` index
    LABEL_NAMES.
    """

    pixels: NDArray[np.uint8]  # [H, W, 3]
    boxes: NDArray[np.float64]  # [n, 4]
    labels: NDArray[np.int64]  # [n]


@dataclass(frozen=True)
class Piece:
    """A drawn thing: an object or clutter."""

    placed: PlacedShape
    surface: Surface


@dataclass(frozen=True)
class SceneLayout:
    """All properties of a scene that do not depend on its size in pixels."""

    ground: Ground
    under: tuple[Piece, ...]  # clutter below the objects
    objects: tuple[Piece, ...]
    over: tuple[Piece, ...]  # clutter above the objects
    labels: tuple[int, ...]
    light: tuple[float, float]  # unit vector towards the lamp
    contrast: float
    brightness: float
    grain: float


def draw_scene(seed: int, index: int, *, size: int = 96) -> DrawnScene:
    """Draw scene `index` of `seed`, `size` pixels square; neither number may be negative.

    The result depends only on the three arguments; `size` only scales boxes and keeps labels.
    """
    layout = lay_out(seed, index)
    return DrawnScene(
        pixels=_render_bytes(paint(layout, size), layout, _Draws(seed, index, _GRAIN_STREAM)),
        boxes=np.round(np.array([piece.placed.box for piece in layout.objects]) * size, 2),
        labels=np.array(layout.labels, dtype=np.int64),
    )


def lay_out(seed: int, index: int) -> SceneLayout:
    """Choose the content of scene `index` of `seed` and its places."""
    draws = _Draws(seed, index, _LAYOUT_STREAM)
    ground = _draw_ground(draws)
    labels, objects = _draw_objects(draws, ground)
    clutter = [_draw_clutter(draws) for _ in range(4 + draws.below(6))]
    num_over = draws.below(3)
    lamp = draws.between(0.58, 0.92) * 2 * math.pi  # above, since y points down
    return SceneLayout(
        ground=ground,
        under=tuple(clutter[num_over:]),
        objects=objects,
        over=tuple(clutter[:num_over]),
        labels=labels,
        light=(math.cos(lamp), math.sin(lamp)),
        contrast=draws.between(0.8, 1.15),
        brightness=draws.between(-0.08, 0.06),
        grain=draws.between(0.01, 0.06),
    )


def paint(layout: SceneLayout, size: int) -> Field:
    """Paint background and pieces from bottom to top: [3, size, size], tones around 0..1."""
    canvas = paint_ground(layout.ground, size)
    for piece in (*layout.under, *layout.objects, *layout.over):
        _paint_piece(canvas, piece, layout.light)
    return canvas


class _Draws:
    """Uniform random numbers made from the raw output of the bit generator.

    NumPy guarantees the raw stream of a bit generator across releases, but not the methods of
    `Generator`.
    """

    def __init__(self, seed: int, index: int, stream: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence((seed, index, stream)))

    def unit(self) -> float:
        return float((int(self._bits.random_raw()) >> 11) * 2.0**-53)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def below(self, count: int) -> int:
        return int(self.unit() * count)

    def knobs(self) -> Knobs:
        return self.unit(), self.unit(), self.unit(), self.unit()

    def octets(self, count: int) -> NDArray[np.uint8]:
        words = np.asarray(self._bits.random_raw(-(-count // 8)), dtype="<u8")
        return words.view(np.uint8)[:count]


# Laying out.


def _draw_ground(draws: _Draws) -> Ground:
    hue, vivid, value = draws.unit(), draws.unit(), draws.between(0.42, 1.0)
    saturation = 0.06 + 0.4 * vivid * vivid  # mostly stone, wood and linen
    far_hue, far_value = hue + draws.between(-0.1, 0.1), value * draws.between(0.65, 1.1)
    dark = (-0.12, -0.12, -0.12)
    glows = [
        (
            draws.unit(),
            draws.unit(),
            draws.between(0.25, 0.7),
            mix_colors(dark, color_from_hsv(draws.unit(), 0.6, 0.26), draws.unit()),
        )
        for _ in range(3)
    ]
    return Ground(
        pattern=tuple(GROUNDS)[draws.below(len(GROUNDS))],
        knobs=draws.knobs(),
        turn=draws.unit(),
        strength=draws.between(0.08, 0.26),
        colors=(
            color_from_hsv(hue, saturation, value),
            color_from_hsv(far_hue, saturation, far_value),
        ),
        glows=tuple(glows),
    )


def _draw_objects(draws: _Draws, ground: Ground) -> tuple[tuple[int, ...], tuple[Piece, ...]]:
    diameters = [draws.between(_MIN_DIAMETER, _MAX_DIAMETER) for _ in range(2 + draws.below(3))]
    labels: list[int] = []
    pieces: list[Piece] = []
    for diameter in sorted(diameters, reverse=True):  # small objects find room later
        label = draws.below(len(LABEL_NAMES))
        placed = _place(draws, label, diameter, [piece.placed.box for piece in pieces])
        labels.append(label)
        pieces.append(Piece(placed, _draw_surface(draws, label, ground)))
    return tuple(labels), tuple(pieces)


def _place(
    draws: _Draws, label: int, diameter: float, boxes: list[NDArray[np.float64]]
) -> PlacedShape:
    """Place an object where it covers little of earlier ones; shrink it if necessary."""
    shape, build = SHAPES[LABEL_NAMES[label]], draws.between(-1, 1)
    unit_map = linear_map(radius=0.5, turn=draws.unit(), aspect=draws.between(0.87, 1.15))
    unit_reach = compute_extent(shape, build, unit_map)
    candidates: list[tuple[float, float, NDArray[np.float64]]] = []
    for attempt in range(_MAX_PLACEMENTS):
        fitted = max(_MIN_DIAMETER, diameter * (1 - attempt / _MAX_PLACEMENTS))
        sides = (unit_reach[2:] - unit_reach[:2]) * fitted
        corner = _MARGIN + (1 - 2 * _MARGIN - sides) * np.array([draws.unit(), draws.unit()])
        box = np.concatenate([corner, corner + sides])
        candidates.append((_find_max_covered_share([*boxes, box]), fitted, box))
        if candidates[-1][0] <= _MAX_COVERED_SHARE:
            break
    _, fitted, box = min(candidates, key=lambda candidate: candidate[0])
    center = float(box[0] - unit_reach[0] * fitted), float(box[1] - unit_reach[1] * fitted)
    return PlacedShape(shape.distance, build, center, unit_map * fitted, box)


def _find_max_covered_share(boxes: list[NDArray[np.float64]]) -> float:
    """Return the largest share of any box that other boxes cover, summed over these."""
    shares: list[float] = []
    for box in boxes:
        left, top, right, bottom = box.tolist()
        shared = 0.0
        for other in boxes:
            x1, y1, x2, y2 = other.tolist()
            if other is not box:
                width, height = min(right, x2) - max(left, x1), min(bottom, y2) - max(top, y1)
                shared += max(width, 0.0) * max(height, 0.0)
        shares.append(shared / ((right - left) * (bottom - top)))
    return max(shares)


def _draw_surface(draws: _Draws, label: int, ground: Ground) -> Surface:
    texture = tuple(TEXTURES)[draws.below(len(TEXTURES))]
    if draws.unit() < _TYPICAL_TEXTURE_RATE:
        texture = _TYPICAL_TEXTURES[label]
    hue = draws.unit()
    if draws.unit() < _TYPICAL_HUE_RATE:
        hue = _TYPICAL_HUES[label] + 0.06 * (hue - 0.5)
    saturation, value = draws.between(0.6, 0.95), draws.between(0.6, 1.0)
    tones = [color_from_hsv(hue, saturation, v) for v in (value, 0.98, 0.42)]
    behind = mix_colors(*ground.colors, 0.5)
    visible = [tone for tone in tones if _contrast(tone, behind) >= _MIN_CONTRAST]
    base = visible[0] if visible else max(tones, key=lambda t: _contrast(t, behind))
    towards = _WHITE if draws.unit() < 0.6 else _BLACK
    second = mix_colors(base, towards, draws.between(0.45, 0.75))
    return Surface(texture, draws.knobs(), (base, second))


def _contrast(first: Color, second: Color) -> float:
    """Return the difference of two colors: that of lightness plus a third of the largest."""
    red, green, blue = (a - b for a, b in zip(first, second, strict=True))
    lightness = 0.3 * red + 0.6 * green + 0.1 * blue
    return abs(lightness) + max(abs(red), abs(green), abs(blue)) / 3


def _draw_clutter(draws: _Draws) -> Piece:
    kind = tuple(CLUTTER)[draws.below(len(CLUTTER))]
    thin = kind in ("stick", "squiggle")
    radius = draws.between(0.10, 0.26) if thin else draws.between(0.018, 0.065)
    transform = linear_map(radius=radius, turn=draws.unit(), aspect=draws.between(0.8, 1.25))
    center = draws.unit(), draws.unit()
    reach = 1.25 * radius * 1.12  # an upper bound: farthest corner times largest stretch
    box = np.array([center[0] - reach, center[1] - reach, center[0] + reach, center[1] + reach])
    color = color_from_hsv(draws.unit(), draws.between(0.1, 0.9), draws.between(0.2, 1.0))
    surface = Surface("solid", draws.knobs(), (color, mix_colors(color, _WHITE, 0.5)))
    return Piece(PlacedShape(CLUTTER[kind], draws.between(-1, 1), center, transform, box), surface)


# Painting.


def _paint_piece(canvas: Field, piece: Piece, light: tuple[float, float]) -> None:
    """Paint a piece onto the canvas [3, H, W] in place: its shadow, then its lit body."""
    size, placed, surface = canvas.shape[-1], piece.placed, piece.surface
    window = placed.window(size, reach=2 + size // 32)
    x, y = placed.pixel_centers(size, window)
    unit = placed.pixels_per_unit(size)
    distance = placed.distance(x, y, placed.build) * unit  # in pixels, [h, w]
    facing = _slope(distance, light)  # 1 where the outline faces the lamp, [h, w]
    view = canvas[:, *window]

    drop = 0.02 * size
    view *= 1 - np.clip(0.21 - (distance + drop * facing) * (0.32 / drop), 0, 0.42)  # the shadow

    edge = np.clip(1 + distance / (0.22 * unit), 0, 1)  # 0 on the flat top, 1 at the outline
    gloss = facing * edge
    rim = np.clip(1 + distance / (0.05 * unit + 0.5), 0, 1)
    color = mix_fields(surface.colors, TEXTURES[surface.texture](x, y, 1 / unit, surface.knobs))
    color *= 1 + 0.4 * gloss * edge - 0.3 * rim
    color += 0.5 * np.maximum(gloss - 0.45, 0)
    color -= view
    color *= np.clip(0.5 - distance, 0, 1)
    view += color


def _slope(distance: Field, towards: tuple[float, float]) -> Field:
    """Return the derivative of a field [h, w] along a unit vector; zero on the border."""
    slope = np.zeros_like(distance)
    across = distance[1:-1, 2:] - distance[1:-1, :-2]
    down = distance[2:, 1:-1] - distance[:-2, 1:-1]
    slope[1:-1, 1:-1] = across * (towards[0] / 2) + down * (towards[1] / 2)
    return slope


def _render_bytes(canvas: Field, layout: SceneLayout, draws: _Draws) -> NDArray[np.uint8]:
    """Turn tones [3, H, W] into bytes [H, W, 3] with exposure, darker corners and grain."""
    size = canvas.shape[-1]
    steps = ((np.arange(size) + 0.5) / size - 0.5).astype(np.float32)
    corner = steps[:, None] * steps[:, None] + steps[None, :] * steps[None, :]
    noise = draws.octets(2 * size * size).reshape(2, size, size).astype(np.float32)
    grain = (noise[0] + noise[1] - 255) * (layout.grain / 255)
    tones = (canvas - 0.5) * layout.contrast + (0.5 + layout.brightness)
    tones = tones * (1 - 0.35 * corner) + grain
    planes = np.floor(np.clip(tones, 0, 1) * 255 + 0.5).astype(np.uint8)
    return np.ascontiguousarray(planes.transpose(1, 2, 0))
