"""How good annotated boxes are: a model of two who measure the same edge, and what follows from it.

An annotated edge is a = t + e and a detected one d = t + f, in shares of the detected side. The
annotator's error e is uniform within -N .. N, but for a few boxes that are grossly off. The
detector's error f is normal, a part of it wider, and some detections show another object. Only
a - d is seen. Three things tell e from f: uniform noise has a flat top and falls off at N, errors
of a detector pile up at zero; a detector errs less where it is more confident, an annotator does
not know how confident the detector is; and what even the most confident detections contradict is
the annotator's.

From the fitted model the true box is drawn several times, given both boxes. All answers are means
over these draws: how probable it is that the annotated box is bad, where the best box lies, whether
that one is good, and how much is gained.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from boxmend.auditing.box_likelihood import (
    NOISES,
    SCALES,
    count_residuals,
    log_likelihood,
    noise_interval,
)
from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Mask, Rows

GROSS, STRAY = 1, 2  # states: the annotated box is grossly off, the detected one of another object


@dataclass(frozen=True)
class BoxModelConstants:
    """What the model assumes beside `BOX_NOISE_MODEL`; sides are shares of a box's side."""

    stray_shares: tuple[float, ...] = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2)  # of residuals of any size
    detector_stray_share: float = 0.02  # edges that even the most confident detector sees elsewhere
    max_gross_error_sides: float = 0.7  # how far off a gross box, or another object, may be
    min_noise_sides: float = 0.015  # nobody hits an edge exactly
    num_strata: int = 5  # of confidence, of equally many boxes
    min_boxes: int = 100  # of fewer nothing is concluded
    num_samples: int = 64  # true boxes that are drawn for each annotated one
    boxes_per_chunk: int = 1_000  # so few that a processor has their draws at hand
    max_threads: int = 8
    scale_factors: tuple[float, ...] = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)  # of f, as far as needed
    bad_share_tolerance: float = 0.0  # by which the mean probability may exceed the share
    max_tempering_boxes: int = 2_000  # by which the factor is found out


BOXES = BoxModelConstants()


@dataclass(frozen=True, eq=False)
class BoxModel:
    """The fitted model; the arrays have one entry per stratum of confidence."""

    noise: float  # N
    low: float
    high: float  # bounds of N at 95 %
    gross: float  # share of boxes that are grossly off
    limits: Floats  # [strata - 1] confidences between the strata
    scales: Floats  # of the narrow part of f
    narrows: Floats  # its share
    strays: Floats  # share of detections that show something else
    trust: float = 0.5  # the share of annotated sides in what sides are taken to be

    @property
    def precision(self) -> float:
        """The share that the annotated edge has in the best mean of both: by their variances."""
        wide = self.narrows + (1 - self.narrows) * SHARED.wide_factor**2
        errors = float((self.scales**2 * wide).mean())
        return errors / (errors + max(self.noise, BOXES.min_noise_sides) ** 2 / 3)

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
    """Return the estimated sides of the true boxes, for each of the four edges [n, 4].

    It is a geometric mean of both boxes; `trust` is the weight of the annotated one.
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
    free: Mask = room > SHARED.border_sides * sides
    return free


def remove_habits(
    annotated: Floats, detected: Floats, sides: Floats, is_counted: Mask, pull: float
) -> Floats:
    """Return detected boxes [n, 4] without the systematic errors of the detector.

    A detection that was chosen by its overlap with the annotated box follows that box by the
    share `pull`. A detector may also draw boxes too narrow or too wide. Annotators err to both
    sides, so the median of the residuals is the error of the detector.
    """
    found = residuals(annotated, detected, sides) / (1 - pull)
    middle = [
        np.median(found[is_counted[:, k], k]) if is_counted[:, k].any() else 0.0 for k in range(4)
    ]
    straight = annotated - (found - np.array(middle)) * sides
    return _order_edges(straight)


def pull_of(shifts: Floats, answers: Floats) -> float:
    """How far detected edges follow annotated ones that are shifted on purpose, [n, 4] each.

    An answer beyond the shift is a jump to another object: cut to it.
    """
    limit = np.abs(shifts)
    followed = np.clip(np.nan_to_num(answers), -limit, limit)
    total = float((shifts**2).sum())
    if not total:
        return 0.0
    return min(max(float((shifts * followed).sum()) / total, 0.0), SHARED.max_pull)


def fit_box_model(
    annotated: Floats, detected: Floats, sizes: Floats, confidences: Floats, pull: float
) -> tuple[BoxModel, Floats]:
    """Fit the model to boxes [n, 4] in images of these sizes [n, 2].

    Returns the model and the detected boxes without systematic errors. It fits twice: the first
    model shows how precise the annotated and the detected sides are.
    """
    is_counted = is_free(detected, sizes)
    trust = 0.25
    for _ in range(2):
        sides = true_sides(annotated, detected, trust)
        straight = remove_habits(annotated, detected, sides, is_counted, pull)
        found = residuals(annotated, straight, true_sides(annotated, straight, trust))
        model = replace(fit_boxes(found, is_counted, confidences), trust=trust)
        trust = model.precision / 2
    return model, straight


def fit_boxes(found: Floats, is_counted: Mask, confidences: Floats) -> BoxModel:
    """Fit the model to residuals [n, 4]; edges that are not counted are left out."""
    num_strata = BOXES.num_strata
    quantiles = np.arange(1, num_strata) / num_strata
    limits = np.quantile(confidences, quantiles) if len(found) else np.zeros(4)
    strata = np.searchsorted(limits, confidences, side="right")
    counts = np.stack(
        [count_residuals(found[strata == k], is_counted[strata == k]) for k in range(num_strata)]
    )
    if len(found) < BOXES.min_boxes:
        none = np.zeros(num_strata)
        return BoxModel(0.0, 0.0, float(NOISES[-1]), 0.0, limits, none + SCALES[-1], none + 1, none)
    narrow_shares, stray_shares = SHARED.narrow_shares, BOXES.stray_shares
    fit = np.stack(
        [
            [log_likelihood(counts, narrow, stray) for stray in stray_shares]
            for narrow in narrow_shares
        ]
    )  # [narrow, stray, N, S, strata]
    best = fit.max(axis=(0, 1, 3)).sum(axis=-1)  # [N]: every stratum with its own f
    best[0] += SHARED.no_noise_log_odds
    chances = np.exp(best - best.max())
    chances /= chances.sum()
    noise = float(chances @ NOISES)
    at = int(np.abs(NOISES - noise).argmin())
    flat = np.moveaxis(fit[:, :, at], -1, 0).reshape(num_strata, -1).argmax(axis=1)
    shape = len(narrow_shares), len(stray_shares), len(SCALES)
    narrow, stray, scale = np.unravel_index(flat, shape)
    strays = np.array(stray_shares)[stray]
    gross = max(float(strays.min()) - BOXES.detector_stray_share, 0.0)
    low, high = noise_interval(chances)
    return BoxModel(
        noise=noise,
        low=low,
        high=high,
        gross=gross,
        limits=limits,
        scales=SCALES[scale],
        narrows=np.array(narrow_shares)[narrow],
        strays=strays - gross,
    )


def spoilt_share(noise: float) -> float:
    """Which share of boxes a noise makes bad, away from the borders of images."""
    square = np.array([[0.0, 0.0, 1.0, 1.0]])
    spoilt = square + (2 * _points()[:, 1:5] - 1) * noise
    return float((compute_iou(square, spoilt) < GOOD_IOU).mean())


def temper_model(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxModel:
    """Return the model with wider errors of the detector, until its probabilities add up.

    Over all boxes [n, 4], the mean probability of being bad must be the share that the noise
    makes bad. If detections are less precise than the model assumes, the mean is larger, and the
    model is too sure of the true boxes.
    """
    rows = np.unique(np.linspace(0, len(annotated) - 1, BOXES.max_tempering_boxes).astype(np.int64))
    if not len(annotated) or model.noise <= BOXES.min_noise_sides:
        return model
    annotated, detected, sizes = annotated[rows], detected[rows], sizes[rows]
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    spoilt = [
        np.clip(annotated + (2 * point - 1) * model.noise * _sides(annotated), 0, limits)
        for point in _points()[:, 1:5]
    ]
    share = float(np.mean([(compute_iou(annotated, one) < GOOD_IOU).mean() for one in spoilt]))
    wider = model
    for factor in BOXES.scale_factors:
        wider = replace(model, scales=model.scales * factor)
        found = judge_boxes(wider, annotated, detected, confidences[rows], sizes)
        if found.p_bad.mean() <= share + BOXES.bad_share_tolerance:
            break
    return wider


def judge_boxes(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxOpinion:
    """Weigh annotated against detected boxes [n, 4] in images of these sizes [n, 2]."""
    strata = model.strata(confidences)
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    chunk = BOXES.boxes_per_chunk
    portions = np.split(np.arange(len(annotated)), range(chunk, len(annotated), chunk))

    def judge_rows(rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
        return _judge_chunk(model, annotated[rows], detected[rows], strata[rows], limits[rows])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, BOXES.max_threads)) as threads:
        parts = list(threads.map(judge_rows, portions))
    p_bad, boxes, p_fix, iou_gain = (np.concatenate(one) for one in zip(*parts, strict=True))
    return BoxOpinion(p_bad, boxes, p_fix, iou_gain)


def _judge_chunk(
    model: BoxModel, annotated: Floats, detected: Floats, strata: Rows, limits: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    truths = _truths(model, annotated, detected, strata)  # [n, samples, 4]
    for k in range(4):  # no object is seen beyond its image
        np.clip(truths[..., k], 0, limits[:, k, None], out=truths[..., k])
    best = np.stack([truths[..., k].mean(axis=1) for k in range(4)], axis=1)
    before, after = compute_iou(annotated[:, None], truths), compute_iou(best[:, None], truths)
    is_mended = (after > before) & (after >= GOOD_IOU)
    return (
        (before < GOOD_IOU).mean(axis=1),
        best,
        is_mended.mean(axis=1),
        (after - before).mean(axis=1),
    )


def _truths(model: BoxModel, annotated: Floats, detected: Floats, strata: Rows) -> Floats:
    """Draw true boxes [n, samples, 4], by the same points of a fixed sequence for every box."""
    sides = true_sides(annotated, detected, model.trust)
    found = residuals(annotated, detected, sides)  # [n, 4]
    noise = max(model.noise, BOXES.min_noise_sides)
    scales, narrows = model.scales[strata][:, None], model.narrows[strata][:, None]
    usual = _density(found, noise, scales, narrows)  # [n, 4]
    reach = BOXES.max_gross_error_sides
    gross = _density(found, reach, scales, narrows)
    flat = np.full(found.shape, 1 / (2 * reach))
    priors = (1 - model.gross - model.strays[strata], model.gross, model.strays[strata])
    states = zip(priors, (usual, gross, flat), strict=True)
    chances = np.stack([prior * one.prod(axis=1) for prior, one in states])  # [3, n]
    chances /= np.maximum(chances.sum(axis=0), 1e-300)
    limits = np.cumsum(chances, axis=0)[:2, :, None]
    points = _points()  # [samples, 6]
    state = (points[:, 0] >= limits).sum(axis=0)  # [n, samples]
    truths = np.empty((4, *state.shape))  # by edges: each is drawn by itself
    for k in range(4):
        errors = _errors(found[:, k, None], noise, (scales, narrows), points[:, (k + 1, 5)])
        if model.gross > 0:
            gross_errors = _errors(
                found[:, k, None], reach, (scales, narrows), points[:, (k + 1, 5)]
            )
            errors = np.where(state == GROSS, gross_errors, errors)
        errors = np.where(state == STRAY, (2 * points[:, k + 1] - 1) * noise, errors)  # e
        truths[k] = annotated[:, k, None] - errors * sides[:, k, None]
    np.maximum(truths[2:], truths[:2], out=truths[2:])
    return np.moveaxis(truths, 0, -1)


def _errors(found: Floats, reach: float, shape: tuple[Floats, Floats], points: Floats) -> Floats:
    """Draw e [n, samples] given r = e - f [n, 1], by points [samples, 2].

    f = e - r is normal, narrow or wide, and e within its reach.
    """
    scales, narrows = shape
    low, high = -reach - found, reach - found  # bounds of f
    bottoms, tops = (
        [ndtr(end / (factor * scales)) for factor in (1.0, SHARED.wide_factor)]
        for end in (low, high)
    )  # of the narrow and of the wide part
    narrow, wide = narrows * (tops[0] - bottoms[0]), (1 - narrows) * (tops[1] - bottoms[1])
    is_wide = points[:, 1] * np.maximum(narrow + wide, 1e-300) >= narrow
    scale = np.where(is_wide, SHARED.wide_factor * scales, scales)
    bottom = np.where(is_wide, bottoms[1], bottoms[0])
    room = np.where(is_wide, tops[1] - bottoms[1], tops[0] - bottoms[0])
    inside = np.clip(bottom + points[:, 0] * room, 1e-12, 1 - 1e-12)
    errors: Floats = np.clip(found + scale * ndtri(inside), -reach, reach)
    return errors


def _density(found: Floats, noise: float, scales: Floats, narrows: Floats) -> Floats:
    """The density of U(-N, N) + f at residuals."""
    total = np.zeros(found.shape)
    for share, factor in ((narrows, 1.0), (1 - narrows, SHARED.wide_factor)):
        scale = factor * scales
        total += share * (ndtr((found + noise) / scale) - ndtr((found - noise) / scale))
    density: Floats = total / (2 * noise)
    return density


@cache
def _points() -> Floats:
    """Points of a low-discrepancy sequence, [samples, 6]: state, four edges, narrow or wide."""
    points: Floats = qmc.Sobol(6, scramble=True, seed=0).random(BOXES.num_samples)
    return points


def _sides(boxes: Floats) -> Floats:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1e-6)
    return np.concatenate([sides, sides], axis=1)


def _order_edges(boxes: Floats) -> Floats:
    """Return boxes whose right and bottom edges are not before the left and top ones."""
    return np.concatenate([boxes[..., :2], np.maximum(boxes[..., 2:], boxes[..., :2])], axis=-1)
