"""Calibrate the audit of a training run by errors that the run planted into its annotations.

The run judged the planted errors like all other annotations, and the user's values show what it
should have found. A planted label shows how often the label that the run prefers is the right one.
A planted box shows which share of an annotator's error stays in the settled box. Few errors are
planted, so both figures are shrunk towards what is usual.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit, ndtri
from scipy.stats import qmc

from boxmend.auditing import boxes as box_model
from boxmend.auditing.boxes import BOXES, BoxOpinion
from boxmend.auditing.calibration import (
    NOT_MEASURED,
    Share,
    estimate_error_share,
    make_sample,
)
from boxmend.auditing.fixes.table import GOOD_IOU, Fixes, Kind
from boxmend.auditing.labels import LabelOpinion
from boxmend.auditing.probing import Planted, Probe, check_fixes
from boxmend.auditing.run_evidence import find_shift, read_estimate
from boxmend.data.boxes import clip_boxes, compute_iou
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.runs.history import read_history
from boxmend.runs.opening import OpenRun
from boxmend.runs.planting import remove_planted_share
from boxmend.runs.settling import group_means, settling_visits

CAUSES = {Kind.WRONG_LABEL: "any other class", Kind.BAD_BOX: "grossly off"}


@dataclass(frozen=True)
class RunProbeConstants:
    """Constants of the calibration by planted errors; lengths are in sides of a box."""

    tail_caution: float = 1.0  # standard deviations added before the lowest share is chosen
    min_tail_share: float = 0.3  # of the few planted labels
    labels_of_equal_weight: int = 60  # planted labels that count as much as the run's estimate
    odds_deviation: float = 0.5  # usual error of log odds that the preferred label is right
    usual_kept_share: float = 0.2  # of an annotator's error in a settled box
    kept_share_deviation: float = 0.05
    spread_factor: float = 1.4  # error of a settled edge, per standard deviation of its visits
    rounding_sides: float = 0.01  # error of a settled edge even if all visits agree
    spread_quantile: float = 0.9  # of the spreads, for a box with one visit
    large_spread: float = 0.06  # if all boxes have one visit
    num_samples: int = 64  # true boxes drawn for each annotated box


RUN_PROBE = RunProbeConstants()


@dataclass(frozen=True, eq=False)
class ProbedRun:
    """A run with its dataset as the training saw it, and as the user has it."""

    opened: OpenRun
    """Its dataset has the planted errors, and its history all visits."""
    original: Dataset
    rows: Rows
    """[p] Rows with a planted error."""

    @property
    def has_wrong_label(self) -> Mask:
        """[p] Whether the label was planted."""
        seen = self.opened.dataset.labels[self.rows]
        mask: Mask = seen != self.original.labels[self.rows]
        return mask


def open_as_trained(opened: OpenRun) -> ProbedRun | None:
    """Return a run with the annotations that its training saw; None if it planted no errors."""
    planted = opened.history.planted
    if not len(planted):
        return None
    seen = planted.put_into(opened.dataset)
    trained = OpenRun(opened.run, seen, read_history(opened.run, seen))
    return ProbedRun(trained, opened.dataset, planted.rows)


def calibrate_labels(probed: ProbedRun, rows: Rows, labels: LabelOpinion) -> LabelOpinion:
    """Return the judgement of labels at `rows`, calibrated by those that were planted.

    Some of the user's labels are wrong, so a preferred label that differs from both may be right.
    Without an estimate of the label noise, nothing changes.
    """
    is_planted = np.isin(rows, probed.rows[probed.has_wrong_label])
    if not is_planted.any() or read_estimate(probed.opened.run, "label_noise") is None:
        return labels
    rate = _estimate_label_noise(probed, labels, is_planted)
    p_right = labels.p_fix / np.maximum(labels.p_wrong, 1e-12)
    odds = _to_odds(labels.p_wrong)
    p_wrong = expit(odds + find_shift(odds[~is_planted], rate.value))
    has_other = labels.labels >= 0
    counted = np.flatnonzero(is_planted & has_other)
    is_hit = labels.labels[counted] == probed.original.labels[rows[counted]]
    odds = _to_odds(p_right)
    odds += _fit_shift(odds[counted], is_hit, 1 - rate.value)
    return replace(
        labels,
        p_wrong=p_wrong,
        p_fix=np.where(has_other, p_wrong * expit(odds), 0.0),
        rate=rate,
    )


def _estimate_label_noise(probed: ProbedRun, labels: LabelOpinion, is_planted: Mask) -> Share:
    """Return the label noise without planted errors.

    There are two estimates: that of the run, and that of the tail, in which planted labels show
    which share of the wrong ones lies there. On data with a known truth, the first was too high and
    the second too low. The result is a mean of both, with the bounds of both.
    """
    if probed.opened.run.settings().get("label_noise") != "auto":
        return labels.rate
    estimated = remove_share(labels.rate, float(is_planted.mean()))
    suspicions, is_other = _to_odds(labels.p_wrong), ~is_planted
    tail = estimate_error_share(
        make_sample(suspicions[is_other]),
        make_sample(suspicions[is_planted]),
        RUN_PROBE.tail_caution,
        RUN_PROBE.min_tail_share,
    )
    number = int(is_planted.sum())
    weight = number / (number + RUN_PROBE.labels_of_equal_weight)
    return Share(
        weight * tail.value + (1 - weight) * estimated.value,
        min(tail.low, estimated.low),
        max(tail.high, estimated.high),
    )


def _to_odds(p: Floats) -> Floats:
    odds: Floats = logit(np.clip(p, 1e-9, 1 - 1e-9))
    return odds


def _fit_shift(odds: Floats, happened: Mask, possible: float) -> float:
    """Return what to add to log odds so that they agree best with events.

    An event happens with the probability of the odds times `possible`. Few events change little.
    """
    shifts = np.linspace(-3, 3, 121)
    expected = possible * expit(odds + shifts[:, None])
    fit = np.log(np.where(happened, expected, 1 - expected)).sum(axis=1)
    return float(shifts[(fit - (shifts / RUN_PROBE.odds_deviation) ** 2 / 2).argmax()])


def remove_share(rate: Share, planted: float) -> Share:
    """Return the rate of errors among annotations without the share of planted errors."""
    values = (rate.value, rate.low, rate.high)
    return Share(*(remove_planted_share(value, planted) for value in values))


def judge_settled_boxes(probed: ProbedRun, rows: Rows, noise: Share) -> BoxOpinion:
    """Judge annotated boxes at `rows` by the settled ones, given the box noise.

    A settled edge has two errors: visits differ, and a share of the annotator's error stays. True
    boxes are drawn with both errors around the settled box. Whether the annotated box is bad
    follows from the settled box without that share. A few settled boxes are of other objects.
    """
    opened = probed.opened
    annotated, settled = opened.dataset.boxes[rows], opened.settlement.boxes[rows]
    kept = measure_kept_share(probed, noise.value)
    spreads = RUN_PROBE.spread_factor * measure_spreads(opened)[rows]
    own = np.hypot(spreads, RUN_PROBE.rounding_sides)
    errors = np.sqrt(own**2 + (kept * noise.value) ** 2 / 3)  # the variance of uniform noise
    # The kept part of the annotator's error points to the annotated box.
    freed = settled + kept / max(1 - kept, 0.5) * (settled - annotated)
    sizes = opened.dataset.images.sizes[opened.dataset.image_rows[rows]]
    n = len(rows)
    sums = np.zeros((3, n))
    points = ndtri(qmc.Sobol(4, scramble=True, seed=0).random(RUN_PROBE.num_samples))
    for point in points:
        truths = _draw_boxes(settled, point * errors[:, None], sizes)
        before, after = compute_iou(annotated, truths), compute_iou(settled, truths)
        is_bad = compute_iou(annotated, _draw_boxes(freed, point * own[:, None], sizes)) < GOOD_IOU
        sums += is_bad, (after > before) & (after >= GOOD_IOU), after - before
    p_bad, p_fix, gain = sums / len(points)
    is_moved = opened.settlement.is_moved[rows]
    usual = p_bad[is_moved].mean() if is_moved.any() else 0.0
    return BoxOpinion(
        p_bad=np.where(is_moved, p_bad, usual),
        boxes=settled.copy(),
        p_fix=np.where(is_moved, p_fix * (1 - BOXES.detector_stray_share), 0.0),
        iou_gain=np.where(is_moved, gain, 0.0),
    )


def estimate_bad_boxes(opened: OpenRun, noise: Share) -> Share:
    """Return the share of bad boxes that the noise makes; unknown if the run moved no box."""
    if not opened.settlement.is_moved.any():
        return NOT_MEASURED
    ends = (noise.value, noise.low, noise.high)
    return Share(*map(box_model.compute_bad_share, ends))


def measure_kept_share(probed: ProbedRun, noise: float) -> float:
    """Return the share of an annotator's error that stays in a settled box, from planted boxes.

    A training with `mend` moves no edge by more than the noise, so only what lies within can be
    undone. The user's edge is anywhere within the noise of the true one. The result is a mean with
    the usual share that weighs both by their errors.
    """
    opened, usual = probed.opened, RUN_PROBE.usual_kept_share
    rows = probed.rows[~probed.has_wrong_label]
    before, planted = probed.original.boxes[rows], opened.dataset.boxes[rows]
    settled = opened.settlement.boxes[rows]
    sizes = opened.dataset.images.sizes[opened.dataset.image_rows[rows]]
    is_free = box_model.mark_free_edges(settled, sizes)
    sides = _edge_sides(before)
    shifts = np.where(is_free, (planted - before) / sides, 0.0)
    undone = np.where(is_free, (planted - settled) / sides, 0.0)
    possible = shifts
    if _has_limited_moves(opened):
        possible = shifts - np.sign(shifts) * _expected_excess(np.abs(shifts), noise)
    total = float((possible**2).sum())
    if not total:
        return usual
    share = float((undone * possible).sum()) / total
    errors = ((undone - share * possible) * possible).sum(axis=1)  # [p] of boxes, not of edges
    variance = max(float((errors**2).sum()) / total**2, 1e-9)
    weight = RUN_PROBE.kept_share_deviation**2 / (RUN_PROBE.kept_share_deviation**2 + variance)
    return float(np.clip(weight * (1 - share) + (1 - weight) * usual, 0.0, 1.0))


def _has_limited_moves(opened: OpenRun) -> bool:
    """Return whether the training moved no edge by more than the noise; other methods average."""
    settings = opened.run.settings()
    boxes = settings.get("mend", {}).get("boxes", "edges")
    return bool(settings.get("method", "mend") == "mend" and boxes == "edges")


def _expected_excess(shifts: Floats, noise: float) -> Floats:
    """Return by how much positive shifts, added to uniform noise, exceed this noise on average."""
    if noise <= 0:
        return shifts
    excess: Floats = np.where(shifts <= 2 * noise, shifts**2 / (4 * noise), shifts - noise)
    return excess


def measure_spreads(opened: OpenRun) -> Floats:
    """Return the standard deviation [n] of the edges of a box over the visits that settle it.

    A box that one visit settled gets a large spread of the others.
    """
    history, n = opened.history, len(opened.dataset)
    visits = settling_visits(
        history.rows, history.is_kept & ~history.is_warm_up, history.num_epochs
    )
    rows, boxes = history.rows[visits], history.final_boxes[visits].astype(np.float64)
    means = np.stack([group_means(boxes[:, side], rows, n) for side in range(4)], axis=1)
    squares = (((boxes - means[rows]) / _edge_sides(means[rows])) ** 2).mean(axis=1)
    counts = np.bincount(rows, minlength=n)
    is_repeated = counts > 1
    spreads = np.zeros(n)
    sums = np.bincount(rows, squares, minlength=n)
    spreads[is_repeated] = np.sqrt(sums[is_repeated] / (counts[is_repeated] - 1))
    known = spreads[is_repeated]
    large = np.quantile(known, RUN_PROBE.spread_quantile) if len(known) else RUN_PROBE.large_spread
    spreads[~is_repeated] = large
    return spreads


def count_found(probed: ProbedRun, fixes: Fixes) -> Probe:
    """Return how many of the planted errors the fixes find, and fix as the user has them."""
    opened, rows, is_label = probed.opened, probed.rows, probed.has_wrong_label
    seen, original = opened.dataset, probed.original
    is_bad = compute_iou(seen.boxes[rows], original.boxes[rows]) < GOOD_IOU
    none = np.zeros(0, np.int64)
    by_kind = {Kind.WRONG_LABEL: rows[is_label], Kind.BAD_BOX: rows[~is_label & is_bad]}
    planted = Planted(
        seen,
        original,
        {kind: by_kind.get(kind, none) for kind in Kind},
        original.labels,
        original.boxes,
    )
    counts = check_fixes(planted, fixes)
    return {kind: {cause: counts[kind]} for kind, cause in CAUSES.items() if len(by_kind[kind])}


def _edge_sides(boxes: Floats) -> Floats:
    """Return for each edge [n, 4] the side of the box across it, at least one pixel."""
    sides: Floats = np.tile(np.maximum(boxes[:, 2:] - boxes[:, :2], 1.0), 2)
    return sides


def _draw_boxes(boxes: Floats, errors: Floats, sizes: Floats) -> Floats:
    """Return boxes with edges moved by errors [n, 4] in sides, within images of these sizes."""
    moved = boxes + errors * _edge_sides(boxes)
    ordered = np.concatenate([moved[:, :2], np.maximum(moved[:, :2], moved[:, 2:])], axis=1)
    drawn: Floats = clip_boxes(ordered, sizes)
    return drawn
