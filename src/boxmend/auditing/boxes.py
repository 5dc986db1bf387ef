"""How good annotated boxes are: a model of two who measure the same edge, and what follows from it.

An annotated edge is a = t + e and a detected one d = t + f, in shares of the detected side. The
annotator's error e is uniform within -N .. N, but for a few boxes that are grossly off. The
detector's error f is normal, a part of it wider, and some detections show another object. Only
a - d is seen. Three things tell e from f: uniform noise has a flat top and falls off at N, errors
of a detector pile up at zero; a detector errs less where it is more confident, an annotator does
not know how confident the detector is; and what even the most confident detections contradict is
the annotator's.

From the fitted model the true box is drawn, as often as SAMPLES, given both boxes. All answers are
means over these draws: how probable it is that the annotated box is bad, where the best box lies,
whether that one is good, and how much is gained.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.boxes import overlaps
from boxmend.data.types import Floats, Mask, Rows

BORDER = 0.1  # sides; edges nearer to the image's border show little noise, as they are clipped
BINS, BIN_WIDTH = 100, 0.01  # of residuals, in shares of a side
NOISES: Floats = np.linspace(0, 0.6, 31)  # N
SCALES: Floats = np.geomspace(0.01, 0.2, 60)  # of f
NARROWS = (0.55, 0.7, 0.85, 1.0)  # share of f that has this scale
WIDE = 2.5  # times as wide are the others, on hard objects
STRAYS = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2)  # shares of residuals of any size
ASTRAY = 0.02  # share of edges that even the most confident detector sees elsewhere
REACH = 0.7  # shares of a side: how far off a gross box, or another object, may be
CARE = 0.015  # N at least: nobody hits an edge exactly
STRATA = 5  # of confidence, of equally many boxes
FEW_BOXES = 100  # of fewer nothing is concluded
SAMPLES = 64
MOST_PULL = 0.5  # what follows the annotated box more than that measures nothing
GROSS, STRAY = 1, 2  # states: the annotated box is grossly off, the detected one of another object
AT_ONCE = 1_000  # boxes drawn for at a time, so few that a processor has the draws at hand
MOST_THREADS = 8
WIDER = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)  # times the fitted scales of f, as far as needed
TOLERANCE = 0.02  # by which mean and share may differ
ASKED = 2_000  # boxes by which that is found out
SPIKE = 6.0  # log odds in favour of no noise at all
EDGES_PER_BOX = 4  # whose errors go together, so that they count as one observation


@dataclass(frozen=True, eq=False)
class BoxModel:
    """The fitted model; the arrays have one entry per stratum of confidence."""

    noise: float  # N
    low: float
    high: float  # bounds of N at 95 %
    gross: float  # share of boxes that are grossly off
    limits: Floats  # [STRATA - 1] confidences between the strata
    scales: Floats  # of the narrow part of f
    narrows: Floats  # its share
    strays: Floats  # share of detections that show something else
    trust: float = 0.5  # the share of annotated sides in what sides are taken to be

    @property
    def precision(self) -> float:
        """The share that the annotated edge has in the best mean of both: by their variances."""
        wide = self.narrows + (1 - self.narrows) * WIDE**2
        errors = float((self.scales**2 * wide).mean())
        return errors / (errors + max(self.noise, CARE) ** 2 / 3)

    def strata(self, confidences: Floats) -> Rows:
        """Which stratum each confidence belongs to."""
        found: Rows = np.searchsorted(self.limits, confidences, side="right")
        return found


@dataclass(frozen=True, eq=False)
class BoxOpinion:
    """What the model thinks of annotated boxes, one row each."""

    p_bad: Floats  # [n]
    boxes: Floats  # [n, 4] the best guess
    p_fix: Floats  # [n] that it is nearer to the truth and good
    iou_gain: Floats  # [n] expected


def true_sides(annotated: Floats, detected: Floats, trust: float) -> Floats:
    """The sides of the true boxes as far as can be told, for each of the four edges [n, 4].

    A mean of both in logarithms; `trust` is the share of the annotated ones.
    """
    return _sides(annotated) ** trust * _sides(detected) ** (1 - trust)


def residuals(annotated: Floats, detected: Floats, sides: Floats) -> Floats:
    """a - d of the four edges [n, 4], in shares of the sides."""
    found: Floats = (annotated - detected) / sides
    return found


def is_free(detected: Floats, sizes: Floats) -> Mask:
    """[n, 4] Edges detected away from the border of their image, [n, 2] as width and height.

    Where the size of an image is not known (0), all edges count.
    """
    sides = _sides(detected)
    known = np.where(sizes > 0, sizes, np.inf)
    room = np.concatenate([detected[:, :2], known - detected[:, 2:]], axis=1)
    free: Mask = room > BORDER * sides
    return free


def straightened(
    annotated: Floats, detected: Floats, sides: Floats, is_counted: Mask, pull: float
) -> Floats:
    """Detected boxes as they would be without their habits, [n, 4].

    A detection that was chosen by its overlap with the annotated box follows that by the share
    `pull`. And a detector may draw boxes narrow or wide: annotators err to both sides, so the
    middle of the residuals is the detector's.
    """
    found = residuals(annotated, detected, sides) / (1 - pull)
    middle = [
        np.median(found[is_counted[:, k], k]) if is_counted[:, k].any() else 0.0 for k in range(4)
    ]
    straight = annotated - (found - np.array(middle)) * sides
    return _ordered(straight)


def pull_of(shifts: Floats, answers: Floats) -> float:
    """How far detected edges follow annotated ones that are shifted on purpose, [n, 4] each.

    An answer beyond the shift is a jump to another object: cut to it.
    """
    limit = np.abs(shifts)
    followed = np.clip(np.nan_to_num(answers), -limit, limit)
    total = float((shifts**2).sum())
    return min(max(float((shifts * followed).sum()) / total, 0.0), MOST_PULL) if total else 0.0


def fitted(
    annotated: Floats, detected: Floats, sizes: Floats, confidences: Floats, pull: float
) -> tuple[BoxModel, Floats]:
    """Fit the model to boxes [n, 4] in images of these sizes [n, 2]; also gives detected boxes
    without their habits.

    Twice: the first model tells how far either side is to be trusted as a measure.
    """
    is_counted = is_free(detected, sizes)
    trust = 0.25
    for _ in range(2):
        sides = true_sides(annotated, detected, trust)
        straight = straightened(annotated, detected, sides, is_counted, pull)
        found = residuals(annotated, straight, true_sides(annotated, straight, trust))
        model = replace(fit_boxes(found, is_counted, confidences), trust=trust)
        trust = model.precision / 2
    return model, straight


def fit_boxes(found: Floats, is_counted: Mask, confidences: Floats) -> BoxModel:
    """Fit the model to residuals [n, 4]; edges that are not counted are left out."""
    limits = np.quantile(confidences, np.arange(1, STRATA) / STRATA) if len(found) else np.zeros(4)
    strata = np.searchsorted(limits, confidences, side="right")
    counts = np.stack([_counts(found[strata == k], is_counted[strata == k]) for k in range(STRATA)])
    if len(found) < FEW_BOXES:
        none = np.zeros(STRATA)
        return BoxModel(0.0, 0.0, float(NOISES[-1]), 0.0, limits, none + SCALES[-1], none + 1, none)
    fit = np.stack(
        [[_fit(counts, narrow, stray) for stray in STRAYS] for narrow in NARROWS]
    )  # [narrow, stray, N, S, strata]
    best = fit.max(axis=(0, 1, 3)).sum(axis=-1)  # [N]: every stratum with its own f
    best[0] += SPIKE
    chances = np.exp(best - best.max())
    chances /= chances.sum()
    noise = float(chances @ NOISES)
    at = int(np.abs(NOISES - noise).argmin())
    flat = np.moveaxis(fit[:, :, at], -1, 0).reshape(STRATA, -1).argmax(axis=1)
    narrow, stray, scale = np.unravel_index(flat, (len(NARROWS), len(STRAYS), len(SCALES)))
    strays = np.array(STRAYS)[stray]
    gross = max(float(strays.min()) - ASTRAY, 0.0)
    low, high = _interval(chances)
    return BoxModel(
        noise=noise,
        low=low,
        high=high,
        gross=gross,
        limits=limits,
        scales=SCALES[scale],
        narrows=np.array(NARROWS)[narrow],
        strays=strays - gross,
    )


def spoilt_share(noise: float) -> float:
    """Which share of boxes a noise makes bad, away from the borders of images."""
    square = np.array([[0.0, 0.0, 1.0, 1.0]])
    spoilt = square + (2 * _points()[:, 1:5] - 1) * noise
    return float((overlaps(square, spoilt) < GOOD_IOU).mean())


def tempered(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxModel:
    """The model with errors of the detector so wide that what it says adds up, [n, 4] each.

    Over all boxes, the mean probability of being bad has to be the share that the noise makes
    bad. Where boxes are seen worse than the model has it, it says more, and is too sure of where
    the true ones are.
    """
    rows = np.unique(np.linspace(0, len(annotated) - 1, ASKED).astype(np.int64))
    if not len(annotated) or model.noise <= CARE:
        return model
    annotated, detected, sizes = annotated[rows], detected[rows], sizes[rows]
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    spoilt = [
        np.clip(annotated + (2 * point - 1) * model.noise * _sides(annotated), 0, limits)
        for point in _points()[:, 1:5]
    ]
    share = float(np.mean([(overlaps(annotated, one) < GOOD_IOU).mean() for one in spoilt]))
    wider = model
    for factor in WIDER:
        wider = replace(model, scales=model.scales * factor)
        found = judge_boxes(wider, annotated, detected, confidences[rows], sizes)
        if found.p_bad.mean() <= share + TOLERANCE:
            break
    return wider


def judge_boxes(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxOpinion:
    """Weigh annotated against detected boxes [n, 4] in images of these sizes [n, 2]."""
    strata = model.strata(confidences)
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    portions = np.split(np.arange(len(annotated)), range(AT_ONCE, len(annotated), AT_ONCE))

    def judged(rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
        return _judged(model, annotated[rows], detected[rows], strata[rows], limits[rows])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as threads:
        parts = list(threads.map(judged, portions))
    p_bad, boxes, p_fix, iou_gain = (np.concatenate(one) for one in zip(*parts, strict=True))
    return BoxOpinion(p_bad, boxes, p_fix, iou_gain)


def _judged(
    model: BoxModel, annotated: Floats, detected: Floats, strata: Rows, limits: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    truths = _truths(model, annotated, detected, strata)  # [n, SAMPLES, 4]
    for k in range(4):  # no object is seen beyond its image
        np.clip(truths[..., k], 0, limits[:, k, None], out=truths[..., k])
    best = np.stack([truths[..., k].mean(axis=1) for k in range(4)], axis=1)
    before, after = overlaps(annotated[:, None], truths), overlaps(best[:, None], truths)
    is_mended = (after > before) & (after >= GOOD_IOU)
    return (
        (before < GOOD_IOU).mean(axis=1),
        best,
        is_mended.mean(axis=1),
        (after - before).mean(axis=1),
    )


def _truths(model: BoxModel, annotated: Floats, detected: Floats, strata: Rows) -> Floats:
    """Draw true boxes [n, SAMPLES, 4], the same points of a fixed sequence for every box."""
    sides = true_sides(annotated, detected, model.trust)
    found = residuals(annotated, detected, sides)  # [n, 4]
    noise = max(model.noise, CARE)
    scales, narrows = model.scales[strata][:, None], model.narrows[strata][:, None]
    usual = _density(found, noise, scales, narrows)  # [n, 4]
    gross = _density(found, REACH, scales, narrows)
    flat = np.full(found.shape, 1 / (2 * REACH))
    priors = (1 - model.gross - model.strays[strata], model.gross, model.strays[strata])
    states = zip(priors, (usual, gross, flat), strict=True)
    chances = np.stack([prior * one.prod(axis=1) for prior, one in states])  # [3, n]
    chances /= np.maximum(chances.sum(axis=0), 1e-300)
    limits = np.cumsum(chances, axis=0)[:2, :, None]
    points = _points()  # [SAMPLES, 6]
    state = (points[:, 0] >= limits).sum(axis=0)  # [n, SAMPLES]
    truths = np.empty((4, *state.shape))  # by edges: each is drawn by itself
    for k in range(4):
        errors = _errors(found[:, k, None], noise, (scales, narrows), points[:, (k + 1, 5)])
        if model.gross > 0:
            gross_errors = _errors(
                found[:, k, None], REACH, (scales, narrows), points[:, (k + 1, 5)]
            )
            errors = np.where(state == GROSS, gross_errors, errors)
        errors = np.where(state == STRAY, (2 * points[:, k + 1] - 1) * noise, errors)  # e
        truths[k] = annotated[:, k, None] - errors * sides[:, k, None]
    np.maximum(truths[2:], truths[:2], out=truths[2:])
    return np.moveaxis(truths, 0, -1)


def _errors(found: Floats, reach: float, shape: tuple[Floats, Floats], points: Floats) -> Floats:
    """Draw e [n, SAMPLES] given r = e - f [n, 1], by points [SAMPLES, 2].

    f = e - r is normal, narrow or wide, and e within its reach.
    """
    scales, narrows = shape
    low, high = -reach - found, reach - found  # bounds of f
    bottoms, tops = (
        [ndtr(end / (factor * scales)) for factor in (1.0, WIDE)] for end in (low, high)
    )  # of the narrow and of the wide part
    narrow, wide = narrows * (tops[0] - bottoms[0]), (1 - narrows) * (tops[1] - bottoms[1])
    is_wide = points[:, 1] * np.maximum(narrow + wide, 1e-300) >= narrow
    scale = np.where(is_wide, WIDE * scales, scales)
    bottom = np.where(is_wide, bottoms[1], bottoms[0])
    room = np.where(is_wide, tops[1] - bottoms[1], tops[0] - bottoms[0])
    inside = np.clip(bottom + points[:, 0] * room, 1e-12, 1 - 1e-12)
    errors: Floats = np.clip(found + scale * ndtri(inside), -reach, reach)
    return errors


def _density(found: Floats, noise: float, scales: Floats, narrows: Floats) -> Floats:
    """The density of U(-N, N) + f at residuals."""
    total = np.zeros(found.shape)
    for share, factor in ((narrows, 1.0), (1 - narrows, WIDE)):
        scale = factor * scales
        total += share * (ndtr((found + noise) / scale) - ndtr((found - noise) / scale))
    density: Floats = total / (2 * noise)
    return density


@cache
def _points() -> Floats:
    """Points of a low-discrepancy sequence, [SAMPLES, 6]: state, four edges, narrow or wide."""
    points: Floats = qmc.Sobol(6, scramble=True, seed=0).random(SAMPLES)
    return points


def _counts(found: Floats, is_counted: Mask) -> Floats:
    """Count absolute residuals in bins [BINS]; a side or more is a mismatch and left out."""
    sizes = np.abs(found[is_counted])
    counts, _ = np.histogram(sizes, BINS, (0, BINS * BIN_WIDTH))
    return counts.astype(np.float64)


def _fit(counts: Floats, narrow: float, stray: float) -> Floats:
    """The log-likelihood of every N and scale in every stratum; [N, S, strata]."""
    shapes = _shapes()  # [2, N, S, BINS]
    density = (1 - stray) * (narrow * shapes[0] + (1 - narrow) * shapes[1]) + stray * BIN_WIDTH
    found: Floats = np.log(np.maximum(density, 1e-12)) @ counts.T / EDGES_PER_BOX
    return found


@cache
def _shapes() -> Floats:
    """Probabilities of the bins for narrow and wide errors, N and scale; [2, N, S, BINS]."""
    edges = np.linspace(0, BINS * BIN_WIDTH, BINS + 1)
    noises, scales = NOISES[:, None, None], SCALES[:, None]
    both = [_distribution(edges, noises, wide * scales) for wide in (1.0, WIDE)]
    shapes: Floats = 2 * np.diff(np.stack(both), axis=-1)  # both signs
    return shapes


def _distribution(edges: Floats, noises: Floats, scales: Floats) -> Floats:
    """P(U(-N, N) + normal < x): the mean of the normal distribution over a window of 2 N."""
    width = np.maximum(noises, 1e-3)  # narrower than a bin: as good as none
    upper, lower = _ramp((edges + width) / scales), _ramp((edges - width) / scales)
    chances: Floats = scales / (2 * width) * (upper - lower)
    return chances


def _ramp(places: Floats) -> Floats:
    """The integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    ramp: Floats = places * ndtr(places) + np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    return ramp


def _interval(chances: Floats) -> tuple[float, float]:
    """The middle 95 % of N, to the outer edges of its cells."""
    half = float(NOISES[1]) / 2
    below = np.cumsum(chances)
    first, last = int(np.argmax(below > 0.025)), int(np.argmax(below >= 0.975))
    return max(float(NOISES[first]) - half, 0.0), float(NOISES[last]) + half


def _sides(boxes: Floats) -> Floats:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1e-6)
    return np.concatenate([sides, sides], axis=1)


def _ordered(boxes: Floats) -> Floats:
    """Boxes whose far edges are not before their near ones."""
    return np.concatenate([boxes[..., :2], np.maximum(boxes[..., 2:], boxes[..., :2])], axis=-1)
