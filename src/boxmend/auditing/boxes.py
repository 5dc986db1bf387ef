"""Estimate how good annotated boxes are, with a model of two measurements of the same edge.

An annotated edge is a = t + e and a detected edge is d = t + f, where t is the true edge, all in
shares of the side. The annotator's error e is uniform within -N .. N, except for a few boxes that
are grossly off. The detector's error f is a mixture of a narrow and a wide normal distribution, and
some detections show another object. Only a - d is observed. Three properties separate e from f:

- The distribution of e is flat and ends at N; that of f has its peak at 0.
- f is smaller where the detector is more confident; e does not depend on this confidence.
- If even the most confident detections contradict an edge, the error is the annotator's.

Given both boxes, the true box is drawn several times from the fitted model. All results are means
over these draws: the probability that the annotated box is bad, the best box, the probability that
the best box is good, and the expected gain.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

from boxmend.auditing.box_likelihood import (
    ERROR_SCALES_SIDES,
    NOISES_SIDES,
    compute_noise_interval,
    count_residuals,
    log_likelihood,
)
from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Mask, Rows

GROSS_STATE = 1  # the annotated box is grossly off
STRAY_STATE = 2  # the detection shows another object


@dataclass(frozen=True)
class BoxModelConstants:
    """Assumptions of the model in addition to `BOX_NOISE_MODEL`; lengths are in sides of a box."""

    stray_shares: tuple[float, ...] = (0.0, 0.01, 0.03, 0.06, 0.1, 0.2)  # of any residual
    detector_stray_share: float = 0.02  # detections of other objects, even by a confident detector
    max_gross_error_sides: float = 0.7  # of a gross box; also of a detection of another object
    min_noise_sides: float = 0.015  # even careful annotators are this imprecise
    num_strata: int = 5  # of confidence, each with equally many boxes
    min_boxes: int = 100  # fewer are too few to fit the model
    num_samples: int = 64  # true boxes drawn for each annotated box
    boxes_per_chunk: int = 1_000  # so few that their draws fit into the processor's cache
    max_threads: int = 8
    scale_factors: tuple[float, ...] = (1.0, 1.15, 1.3, 1.5, 1.75, 2.0)  # of f, in this order
    bad_share_tolerance: float = 0.0  # of the mean probability above the share of bad boxes
    max_tempering_boxes: int = 2_000  # that are judged to choose the factor


BOXES = BoxModelConstants()


@dataclass(frozen=True, eq=False)
class BoxModel:
    """A fitted model of box errors; the arrays have one entry per stratum of confidence."""

    noise: float  # N
    low: float  # bounds of N at 95%
    high: float
    gross: float  # share of boxes that are grossly off
    limits: Floats  # [strata - 1] confidences between the strata
    scales: Floats  # standard deviation of the narrow part of f
    narrows: Floats  # share of the narrow part of f
    strays: Floats  # share of detections that show another object
    trust: float = 0.5  # weight of the annotated box in the estimated sides

    @property
    def precision(self) -> float:
        """The weight of the annotated edge in the mean of both with the least variance."""
        wide = self.narrows + (1 - self.narrows) * SHARED.wide_factor**2
        errors = float((self.scales**2 * wide).mean())
        return errors / (errors + max(self.noise, BOXES.min_noise_sides) ** 2 / 3)

    def find_strata(self, confidences: Floats) -> Rows:
        """Return the stratum [n] that each confidence belongs to."""
        strata: Rows = np.searchsorted(self.limits, confidences, side="right")
        return strata


@dataclass(frozen=True, eq=False)
class BoxOpinion:
    """The judgement of annotated boxes by the model, one row each."""

    p_bad: Floats  # [n] probability that the annotated box is bad
    boxes: Floats  # [n, 4] the best estimate of the true box
    p_fix: Floats  # [n] probability that this estimate is good, and better than the annotated box
    iou_gain: Floats  # [n] expected gain of the IoU with the true box


def estimate_true_sides(annotated: Floats, detected: Floats, trust: float) -> Floats:
    """Return the estimated sides of the true boxes, for each of the four edges [n, 4].

    They are geometric means of both boxes; `trust` is the weight of the annotated box.
    """
    return _edge_sides(annotated) ** trust * _edge_sides(detected) ** (1 - trust)


def compute_residuals(annotated: Floats, detected: Floats, sides: Floats) -> Floats:
    """Return a - d of the four edges [n, 4], in shares of the sides."""
    residuals: Floats = (annotated - detected) / sides
    return residuals


def mark_free_edges(detected: Floats, sizes: Floats) -> Mask:
    """Mark edges [n, 4] that are detected away from the border of their image.

    `sizes` [n, 2] are widths and heights of images; where they are unknown (0), only the left and
    top border count.
    """
    sides = _edge_sides(detected)
    known = np.where(sizes > 0, sizes, np.inf)
    room = np.concatenate([detected[:, :2], known - detected[:, 2:]], axis=1)
    free: Mask = room > SHARED.border_sides * sides
    return free


def remove_systematic_errors(
    annotated: Floats, detected: Floats, sides: Floats, is_counted: Mask, pull: float
) -> Floats:
    """Return detected boxes [n, 4] without the systematic errors of the detector.

    A detection that was chosen by its overlap with the annotated box follows that box by the
    share `pull`. A detector may also predict boxes that are too narrow or too wide. Errors of
    annotators have the median 0, so the median of the residuals is the error of the detector.
    """
    residuals = compute_residuals(annotated, detected, sides) / (1 - pull)
    medians = [
        np.median(residuals[is_counted[:, k], k]) if is_counted[:, k].any() else 0.0
        for k in range(4)
    ]
    corrected = annotated - (residuals - np.array(medians)) * sides
    return _order_edges(corrected)


def estimate_pull(shifts: Floats, responses: Floats) -> float:
    """Return the share by which detected edges follow annotated edges.

    `shifts` [n, 4] are shifts of annotated edges, and `responses` [n, 4] the resulting shifts of
    the matched detections. A response larger than its shift is a jump to another object, so it is
    cut to the shift.
    """
    limit = np.abs(shifts)
    followed = np.clip(np.nan_to_num(responses), -limit, limit)
    total = float((shifts**2).sum())
    if not total:
        return 0.0
    return min(max(float((shifts * followed).sum()) / total, 0.0), SHARED.max_pull)


def fit_box_model(
    annotated: Floats, detected: Floats, sizes: Floats, confidences: Floats, pull: float
) -> tuple[BoxModel, Floats]:
    """Fit the model to boxes [n, 4] in images of these sizes [n, 2].

    Return the model and the detected boxes without systematic errors. The fit runs twice: the first
    model shows how precise the annotated and the detected sides are.
    """
    is_counted = mark_free_edges(detected, sizes)
    trust = 0.25
    for _ in range(2):
        sides = estimate_true_sides(annotated, detected, trust)
        corrected = remove_systematic_errors(annotated, detected, sides, is_counted, pull)
        sides = estimate_true_sides(annotated, corrected, trust)
        residuals = compute_residuals(annotated, corrected, sides)
        model = replace(fit_residuals(residuals, is_counted, confidences), trust=trust)
        trust = model.precision / 2
    return model, corrected


def fit_residuals(residuals: Floats, is_counted: Mask, confidences: Floats) -> BoxModel:
    """Fit the model to residuals [n, 4]; edges that are not counted are left out."""
    num_strata = BOXES.num_strata
    quantiles = np.arange(1, num_strata) / num_strata
    limits = np.quantile(confidences, quantiles) if len(residuals) else np.zeros(4)
    strata = np.searchsorted(limits, confidences, side="right")
    counts = np.stack(
        [
            count_residuals(residuals[strata == k], is_counted[strata == k])
            for k in range(num_strata)
        ]
    )
    if len(residuals) < BOXES.min_boxes:
        none = np.zeros(num_strata)
        return BoxModel(
            0.0,
            0.0,
            float(NOISES_SIDES[-1]),
            0.0,
            limits,
            none + ERROR_SCALES_SIDES[-1],
            none + 1,
            none,
        )
    narrow_shares, stray_shares = SHARED.narrow_shares, BOXES.stray_shares
    fit = np.stack(
        [
            [log_likelihood(counts, narrow, stray) for stray in stray_shares]
            for narrow in narrow_shares
        ]
    )  # [narrow, stray, N, S, strata]
    best = fit.max(axis=(0, 1, 3)).sum(axis=-1)  # [N]: each stratum has its own f
    best[0] += SHARED.no_noise_log_odds
    chances = np.exp(best - best.max())
    chances /= chances.sum()
    noise = float(chances @ NOISES_SIDES)
    at = int(np.abs(NOISES_SIDES - noise).argmin())
    flat = np.moveaxis(fit[:, :, at], -1, 0).reshape(num_strata, -1).argmax(axis=1)
    shape = len(narrow_shares), len(stray_shares), len(ERROR_SCALES_SIDES)
    narrow, stray, scale = np.unravel_index(flat, shape)
    strays = np.array(stray_shares)[stray]
    gross = max(float(strays.min()) - BOXES.detector_stray_share, 0.0)
    low, high = compute_noise_interval(chances)
    return BoxModel(
        noise=noise,
        low=low,
        high=high,
        gross=gross,
        limits=limits,
        scales=ERROR_SCALES_SIDES[scale],
        narrows=np.array(narrow_shares)[narrow],
        strays=strays - gross,
    )


def compute_bad_share(noise: float) -> float:
    """Return the share of boxes that this noise makes bad, away from the borders of images."""
    square = np.array([[0.0, 0.0, 1.0, 1.0]])
    disturbed = square + (2 * _sample_points()[:, 1:5] - 1) * noise
    return float((compute_iou(square, disturbed) < GOOD_IOU).mean())


def temper_model(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxModel:
    """Return the model with detector errors wide enough that its probabilities are calibrated.

    Over all boxes [n, 4], the mean probability of a bad box must be the share that the noise makes
    bad. If detections are less precise than the model assumes, the mean is larger, and the model
    is too certain of the true boxes.
    """
    rows = np.unique(np.linspace(0, len(annotated) - 1, BOXES.max_tempering_boxes).astype(np.int64))
    if not len(annotated) or model.noise <= BOXES.min_noise_sides:
        return model
    annotated, detected, sizes = annotated[rows], detected[rows], sizes[rows]
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    disturbed = [
        np.clip(annotated + (2 * point - 1) * model.noise * _edge_sides(annotated), 0, limits)
        for point in _sample_points()[:, 1:5]
    ]
    share = float(
        np.mean([(compute_iou(annotated, moved) < GOOD_IOU).mean() for moved in disturbed])
    )
    wider = model
    for factor in BOXES.scale_factors:
        wider = replace(model, scales=model.scales * factor)
        opinion = judge_boxes(wider, annotated, detected, confidences[rows], sizes)
        if opinion.p_bad.mean() <= share + BOXES.bad_share_tolerance:
            break
    return wider


def judge_boxes(
    model: BoxModel, annotated: Floats, detected: Floats, confidences: Floats, sizes: Floats
) -> BoxOpinion:
    """Judge annotated boxes [n, 4] by detected ones, in images of these sizes [n, 2]."""
    strata = model.find_strata(confidences)
    limits = np.tile(np.where(sizes > 0, sizes, np.inf), 2)
    chunk = BOXES.boxes_per_chunk
    portions = np.split(np.arange(len(annotated)), range(chunk, len(annotated), chunk))

    def judge_rows(rows: Rows) -> tuple[Floats, Floats, Floats, Floats]:
        return _judge_chunk(model, annotated[rows], detected[rows], strata[rows], limits[rows])

    with ThreadPoolExecutor(min(os.cpu_count() or 1, BOXES.max_threads)) as threads:
        parts = list(threads.map(judge_rows, portions))
    p_bad, boxes, p_fix, iou_gain = (np.concatenate(column) for column in zip(*parts, strict=True))
    return BoxOpinion(p_bad, boxes, p_fix, iou_gain)


def _judge_chunk(
    model: BoxModel, annotated: Floats, detected: Floats, strata: Rows, limits: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    truths = _draw_true_boxes(model, annotated, detected, strata)  # [n, samples, 4]
    for k in range(4):  # objects end at the border of their image
        np.clip(truths[..., k], 0, limits[:, k, None], out=truths[..., k])
    best = np.stack([truths[..., k].mean(axis=1) for k in range(4)], axis=1)
    before, after = compute_iou(annotated[:, None], truths), compute_iou(best[:, None], truths)
    is_better_and_good = (after > before) & (after >= GOOD_IOU)
    return (
        (before < GOOD_IOU).mean(axis=1),
        best,
        is_better_and_good.mean(axis=1),
        (after - before).mean(axis=1),
    )


def _draw_true_boxes(model: BoxModel, annotated: Floats, detected: Floats, strata: Rows) -> Floats:
    """Draw true boxes [n, samples, 4]; every box uses the same points of a fixed sequence."""
    sides = estimate_true_sides(annotated, detected, model.trust)
    residuals = compute_residuals(annotated, detected, sides)  # [n, 4]
    noise = max(model.noise, BOXES.min_noise_sides)
    scales, narrows = model.scales[strata][:, None], model.narrows[strata][:, None]
    usual = _residual_density(residuals, noise, scales, narrows)  # [n, 4]
    reach = BOXES.max_gross_error_sides
    gross = _residual_density(residuals, reach, scales, narrows)
    flat = np.full(residuals.shape, 1 / (2 * reach))
    priors = (1 - model.gross - model.strays[strata], model.gross, model.strays[strata])
    states = zip(priors, (usual, gross, flat), strict=True)
    chances = np.stack([prior * density.prod(axis=1) for prior, density in states])  # [3, n]
    chances /= np.maximum(chances.sum(axis=0), 1e-300)
    limits = np.cumsum(chances, axis=0)[:2, :, None]
    points = _sample_points()  # [samples, 6]
    state = (points[:, 0] >= limits).sum(axis=0)  # [n, samples]
    truths = np.empty((4, *state.shape))  # by edge, since each is drawn separately
    for k in range(4):
        errors = _draw_annotator_errors(
            residuals[:, k, None], noise, (scales, narrows), points[:, (k + 1, 5)]
        )
        if model.gross > 0:
            gross_errors = _draw_annotator_errors(
                residuals[:, k, None], reach, (scales, narrows), points[:, (k + 1, 5)]
            )
            errors = np.where(state == GROSS_STATE, gross_errors, errors)
        errors = np.where(state == STRAY_STATE, (2 * points[:, k + 1] - 1) * noise, errors)
        truths[k] = annotated[:, k, None] - errors * sides[:, k, None]
    np.maximum(truths[2:], truths[:2], out=truths[2:])
    return np.moveaxis(truths, 0, -1)


def _draw_annotator_errors(
    residuals: Floats, reach: float, shape: tuple[Floats, Floats], points: Floats
) -> Floats:
    """Draw annotator errors e [n, samples] within `reach`, given residuals r = e - f [n, 1].

    f = e - r is normal, narrow or wide. Each draw uses one of the points [samples, 2].
    """
    scales, narrows = shape
    low, high = -reach - residuals, reach - residuals  # bounds of f
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
    errors: Floats = np.clip(residuals + scale * ndtri(inside), -reach, reach)
    return errors


def _residual_density(residuals: Floats, noise: float, scales: Floats, narrows: Floats) -> Floats:
    """Return the density [n, 4] of U(-N, N) + f at the residuals."""
    total = np.zeros(residuals.shape)
    for share, factor in ((narrows, 1.0), (1 - narrows, SHARED.wide_factor)):
        scale = factor * scales
        total += share * (ndtr((residuals + noise) / scale) - ndtr((residuals - noise) / scale))
    density: Floats = total / (2 * noise)
    return density


@cache
def _sample_points() -> Floats:
    """Return points [samples, 6] of a fixed sequence: state, four edges, narrow or wide."""
    points: Floats = qmc.Sobol(6, scramble=True, seed=0).random(BOXES.num_samples)
    return points


def _edge_sides(boxes: Floats) -> Floats:
    """Return for each edge [n, 4] the side of the box across it: width, height, width, height."""
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1e-6)
    return np.concatenate([sides, sides], axis=1)


def _order_edges(boxes: Floats) -> Floats:
    """Return boxes whose right and bottom edges are not before the left and top ones."""
    return np.concatenate([boxes[..., :2], np.maximum(boxes[..., 2:], boxes[..., :2])], axis=-1)
