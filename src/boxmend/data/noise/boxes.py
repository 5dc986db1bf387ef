"""Noise on boxes: every edge moves by a share of the box's own side.

Draws and moves have one column per edge, in the order x1, y1, x2, y2.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Rows

MAX_REDRAWS = 20  # a degenerate result is drawn again this often; then the box stays clean
MIN_SIDE_PIXELS = 1.0  # a box with a shorter side is degenerate
STEPS_PER_PIXEL = 100  # edges move by whole hundredths of a pixel, which keeps files short

Moves = Callable[[Floats, float], Floats]
Draws = Callable[[NDArray[np.int64], int], Floats]


def uniform_moves(draws: Floats, amplitude: float) -> Floats:
    """Return independent moves of the edges, d ~ U(-N, N), in shares of the side."""
    return (2 * draws - 1) * amplitude


def gaussian_moves(draws: Floats, sigma: float) -> Floats:
    """Return independent moves of the edges, d ~ N(0, sigma), in shares of the side."""
    from scipy.special import ndtri  # imported late: only this noise needs it

    moves: Floats = ndtri(draws) * sigma
    return moves


def jitter_moves(draws: Floats, amplitude: float) -> Floats:
    """Return moves that shift the centre by a ~ U(-N, N) and scale the size by 1 + b (OA-MIL).

    b ~ U(-N, N) as well. The edges move by a - b/2 and a + b/2. The first two columns of the
    draws set the centre, the last two the size.
    """
    spread = uniform_moves(draws, amplitude)
    centre, half = spread[:, :2], spread[:, 2:] / 2  # a, b/2
    return np.concatenate([centre - half, centre + half], axis=1)


def redraw_moves(draws: Floats, margin: float) -> Floats:
    """Return moves to a random box: per axis the span of two points, each U(-M, 1 + M) (UNA).

    Points are in shares of the side, from the lower edge on.
    """
    points = (1 + 2 * margin) * draws - margin
    low, high = np.minimum(points[:, :2], points[:, 2:]), np.maximum(points[:, :2], points[:, 2:])
    return np.concatenate([low, high - 1], axis=1)


BOX_NOISES: dict[str, Moves] = {
    "uniform": uniform_moves,
    "gaussian": gaussian_moves,
    "jitter": jitter_moves,
    "redraw": redraw_moves,
}
"""Each kind of box noise: (draws [n, 4], amount) -> moves [n, 4]."""


def move_edges(boxes: Floats, moves: Floats) -> Floats:
    """Move the edges of boxes by shares of their sides, in hundredths of a pixel.

    Moves are truncated, not rounded, so that no edge moves further than the amplitude allows.
    """
    sides = boxes[:, 2:] - boxes[:, :2]  # [n, 2]
    pixels = moves * np.tile(sides, 2)  # [n, 4]
    return boxes + np.trunc(pixels * STEPS_PER_PIXEL) / STEPS_PER_PIXEL


def clip_to_image(boxes: Floats, sizes: Floats) -> Floats:
    """Clip boxes to [0, W] x [0, H]; where a size is infinite, boxes stay as they are."""
    high = np.tile(sizes, 2)  # [n, 4]
    return np.clip(boxes, np.where(np.isfinite(high), 0.0, -np.inf), high)


def is_sound(boxes: Floats) -> NDArray[np.bool_]:
    """Mark the boxes that are finite and at least one pixel wide and high."""
    sides = boxes[:, 2:] - boxes[:, :2]
    sound: NDArray[np.bool_] = np.all((sides >= MIN_SIDE_PIXELS) & np.isfinite(sides), axis=1)
    return sound


def disturb_boxes(
    boxes: Floats, sizes: Floats, draws: Draws, move: Callable[[Floats], Floats]
) -> Floats:
    """Disturb boxes; draw degenerate results again, and leave a box clean after the last redraw.

    `sizes` [n, 2] are the image sizes to clip to. `draws(rows, attempt)` returns the draws
    [len(rows), 4] of one attempt, and `move` turns draws into moves.
    """
    result = boxes.copy()
    pending = np.arange(len(boxes))
    attempt = 0
    # The sides of a huge box from a broken file may overflow; such a box stays clean.
    with np.errstate(over="ignore", invalid="ignore"):
        while len(pending) and attempt <= MAX_REDRAWS:
            moves = move(draws(pending, attempt))
            moved = clip_to_image(move_edges(boxes[pending], moves), sizes[pending])
            sound = is_sound(moved)
            result[pending[sound]] = moved[sound]
            pending = pending[~sound]
            attempt += 1
    return result


def image_sizes(dataset: Dataset, image_rows: Rows, clip: bool = True) -> Floats:
    """Return the sizes [n, 2] of images; infinite where unknown, and all if `clip` is off."""
    sizes = dataset.images.sizes
    if not clip:
        sizes[:] = np.inf
    sizes[(sizes <= 0).any(axis=1)] = np.inf
    return sizes[image_rows]
