"""Noise on boxes: every edge moves by a share of the box's own side.

Draws and moves have one column per edge, in the order x1, y1, x2, y2.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats

REDRAWS = 20  # a box that came out degenerate is drawn again this often, then stays clean
MIN_SIDE = 1.0  # pixels; below it a box is degenerate
STEPS_PER_PIXEL = 100  # edges move by whole hundredths: files stay short

Moves = Callable[[Floats, float], Floats]
Draws = Callable[[NDArray[np.int64], int], Floats]


def uniform_moves(draws: Floats, amplitude: float) -> Floats:
    """Move each edge on its own by d ~ U(-N, N), in shares of the side."""
    return (2 * draws - 1) * amplitude


def gaussian_moves(draws: Floats, sigma: float) -> Floats:
    """Move each edge on its own by d ~ N(0, s), s the standard deviation in shares of the side."""
    from scipy.special import ndtri  # late: no other noise pays for the import

    moves: Floats = ndtri(draws) * sigma
    return moves


def jitter_moves(draws: Floats, amplitude: float) -> Floats:
    """Move the centre by a ~ U(-N, N) and scale the size by 1 + b, b ~ U(-N, N) (OA-MIL).

    The edges then move by a - b/2 and a + b/2. The first two columns of the draws are for the
    centre, the last two for the size.
    """
    spread = uniform_moves(draws, amplitude)
    centre, half = spread[:, :2], spread[:, 2:] / 2  # a, b/2
    return np.concatenate([centre - half, centre + half], axis=1)


BOX_NOISES: dict[str, Moves] = {
    "uniform": uniform_moves,
    "gaussian": gaussian_moves,
    "jitter": jitter_moves,
}
"""Each kind of box noise: (draws [n, 4], amount) -> moves [n, 4]."""


def moved(boxes: Floats, moves: Floats) -> Floats:
    """Move the edges of boxes by shares of their sides, cut toward zero to hundredths of a pixel.

    Cut, not rounded: so no edge ever moves further than the amplitude allows.
    """
    sides = boxes[:, 2:] - boxes[:, :2]  # [n, 2]
    pixels = moves * np.tile(sides, 2)  # [n, 4]
    return boxes + np.trunc(pixels * STEPS_PER_PIXEL) / STEPS_PER_PIXEL


def clipped(boxes: Floats, sizes: Floats) -> Floats:
    """Clip boxes to [0, W] x [0, H]; a size that is not finite clips nothing."""
    high = np.tile(sizes, 2)  # [n, 4]
    return np.clip(boxes, np.where(np.isfinite(high), 0.0, -np.inf), high)


def is_sound(boxes: Floats) -> NDArray[np.bool_]:
    """Mark the boxes that are finite and at least one pixel wide and high."""
    sides = boxes[:, 2:] - boxes[:, :2]
    sound: NDArray[np.bool_] = np.all((sides >= MIN_SIDE) & np.isfinite(sides), axis=1)
    return sound


def disturbed(
    boxes: Floats, sizes: Floats, draws: Draws, move: Callable[[Floats], Floats]
) -> Floats:
    """Disturb boxes, again and again while they come out degenerate; then they stay clean.

    `sizes` [n, 2] is what the boxes are clipped to. `draws(rows, attempt)` gives the draws
    [len(rows), 4] of these rows for one attempt, and `move` turns draws into moves.
    """
    result = boxes.copy()
    pending = np.arange(len(boxes))
    attempt = 0
    # A box from a broken file may be so large that its sides overflow; it then stays clean.
    with np.errstate(over="ignore", invalid="ignore"):
        while len(pending) and attempt <= REDRAWS:
            drawn = move(draws(pending, attempt))
            tried = clipped(moved(boxes[pending], drawn), sizes[pending])
            sound = is_sound(tried)
            result[pending[sound]] = tried[sound]
            pending = pending[~sound]
            attempt += 1
    return result


def image_sizes(dataset: Dataset, rows: NDArray[np.int64], clip: bool = True) -> Floats:
    """Find the image size [n, 2] for annotations at `rows`; infinite where unknown or no clip."""
    sizes = dataset.images.sizes
    if not clip:
        sizes[:] = np.inf
    sizes[(sizes <= 0).any(axis=1)] = np.inf
    return sizes[dataset.image_rows[rows]]
