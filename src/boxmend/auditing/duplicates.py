"""Find objects annotated twice, by comparison with planted duplicates.

A planted duplicate is a box whose edges are drawn again. See `calibration`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import (
    NOT_MEASURED,
    Share,
    estimate_error_share,
    fit_error_curve,
    make_sample,
)
from boxmend.auditing.evidence import Objects
from boxmend.auditing.likeness import keep_order
from boxmend.auditing.pairs import find_largest, find_overlaps
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows


@dataclass(frozen=True)
class RepeatConstants:
    """Constants of the search for objects annotated twice; lengths are in sides of a box."""

    duplicate_min_iou: float = 0.5  # of two annotations that may be of one object
    min_redraw_error_sides: float = 0.05  # of an edge that is drawn again
    max_redraw_error_sides: float = 0.1  # with a larger one, neighbours look like duplicates
    close_quantile: float = 0.01  # of the IoU of planted duplicates; pairs above it are close
    rarity: float = 1 / 3  # ratio of real close pairs to pairs that are slightly less close
    min_rate: float = 0.002  # of duplicates; some pairs of real objects are as close


REPEATS = RepeatConstants()


@dataclass(frozen=True, eq=False)
class Repeats:
    """Annotations that are duplicates of another one."""

    rows: Rows  # [d] the duplicate, to remove
    kept: Rows  # [d] the other annotation of the object, to keep
    p_duplicate: Floats  # [d]
    rate: Share  # of all annotations


def find_repeats(
    objects: Objects, support: Floats, noise: float, random: np.random.Generator
) -> Repeats:
    """Find objects annotated twice with the same label.

    Of two annotations, the one with less `support` [n] is the duplicate. `noise` is the box noise
    in sides of a box.
    """
    pairs = find_overlaps(
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
    observed, planted = make_sample(iou), make_sample(planted_iou)
    share = estimate_error_share(observed, planted)
    p_duplicate = fit_error_curve(observed, planted, share.cautious).at(iou)
    p_duplicate = keep_order(np.maximum(p_duplicate, _judge_close_pairs(iou, planted_iou)), iou)
    is_first_better = support[first] >= support[second]  # with equal support the first is kept
    rows = np.where(is_first_better, second, first)
    kept = np.where(is_first_better, first, second)
    # A duplicate of several annotations is listed once, with its most probable pair.
    _, places = find_largest(rows, p_duplicate, len(objects))
    chosen = np.sort(places[places >= 0])
    rate = share.scale(len(iou) / len(objects)) if len(objects) else NOT_MEASURED
    return Repeats(rows[chosen], kept[chosen], p_duplicate[chosen], rate)


def _judge_close_pairs(iou: Floats, planted: Floats) -> Floats:
    """Return the probability [p] that pairs as close as planted ones are duplicates, else 0.

    Pairs of real objects are rarer the closer they are. Their number among the close pairs is
    estimated as `rarity` times the number of pairs in an interval of the same width just below.
    """
    if not len(iou) or not len(planted):
        return np.zeros(len(iou))
    least = float(np.quantile(planted, REPEATS.close_quantile))
    is_close = iou >= least
    num_close = int(is_close.sum())
    num_below = int(((iou >= 2 * least - 1) & ~is_close).sum())
    p = max(1 - (num_below * REPEATS.rarity + 1) / (num_close + 1), 0.0)
    return np.where(is_close, p, 0.0)
