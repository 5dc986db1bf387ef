"""Objects annotated twice: planted by drawing a box again beside itself. See `calibration`."""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    NOT_MEASURED,
    Share,
    error_curve,
    sample,
    share_of_errors,
)
from boxmend.auditing.evidence import Objects
from boxmend.auditing.likeness import keep_order
from boxmend.auditing.pairs import largest_by, overlapping
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class RepeatConstants:
    """How objects annotated twice are found."""

    duplicate_min_iou: float = 0.5  # between two annotations that may be of one object
    min_redraw_error_sides: float = 0.05  # how far an edge lies off when it is drawn again
    max_redraw_error_sides: float = 0.1  # beyond it, neighbours look like duplicates
    close_quantile: float = 0.01  # of the IoU of planted ones, from which a pair is close
    rarity: float = 1 / 3  # of two real objects that close, to those a little less close
    min_rate: float = 0.002  # two real objects may be as close


REPEATS = RepeatConstants()


@dataclass(frozen=True, eq=False)
class Repeats:
    """Annotations that repeat another one."""

    rows: Rows  # [d] to remove
    kept: Rows  # [d] to keep
    p_duplicate: Floats  # [d]
    rate: Share  # of all annotations


def find_repeats(
    objects: Objects, support: Floats, noise: float, random: np.random.Generator
) -> Repeats:
    """Find objects annotated twice with one label; the one with less support is to be removed.

    `noise` says how far off, in shares of the side, an edge is drawn.
    """
    pairs = overlapping(
        objects.image_rows,
        objects.boxes,
        objects.image_rows,
        objects.boxes,
        REPEATS.duplicate_min_iou,
    )
    is_once = pairs.first < pairs.second
    is_once &= objects.labels[pairs.first] == objects.labels[pairs.second]
    first, second, iou = pairs.first[is_once], pairs.second[is_once], pairs.iou[is_once]
    reach = float(np.clip(noise, REPEATS.min_redraw_error_sides, REPEATS.max_redraw_error_sides))
    sides = np.tile(objects.boxes[:, 2:] - objects.boxes[:, :2], 2)
    again = objects.boxes + (2 * random.random(objects.boxes.shape) - 1) * reach * sides
    planted_iou = compute_iou(objects.boxes, again)
    observed, planted = sample(iou), sample(planted_iou)
    share = share_of_errors(observed, planted)
    p_duplicate = error_curve(observed, planted, share.cautious).at(iou)
    p_duplicate = keep_order(np.maximum(p_duplicate, _p_of_close(iou, planted_iou)), iou)
    is_first_better = support[first] >= support[second]  # of equals the first stays
    rows = np.where(is_first_better, second, first)
    kept = np.where(is_first_better, first, second)
    _, places = largest_by(rows, p_duplicate, len(objects))  # of several, the likeliest
    chosen = np.sort(places[places >= 0])
    rate = share.times(len(iou) / len(objects)) if len(objects) else NOT_MEASURED
    return Repeats(rows[chosen], kept[chosen], p_duplicate[chosen], rate)


def _p_of_close(iou: Floats, planted: Floats) -> Floats:
    """Return the probability [p] that pairs as close as planted ones are duplicates, else 0.

    Two real objects are the rarer, the closer they are. So few of the close pairs are two objects:
    `rarity` times the pairs in an interval of the same width just below.
    """
    if not len(iou) or not len(planted):
        return np.zeros(len(iou))
    least = float(np.quantile(planted, REPEATS.close_quantile))
    is_close = iou >= least
    num_close = int(is_close.sum())
    num_below = int(((iou >= 2 * least - 1) & ~is_close).sum())
    p = max(1 - (num_below * REPEATS.rarity + 1) / (num_close + 1), 0.0)
    return np.where(is_close, p, 0.0)
