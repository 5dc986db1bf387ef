"""The noise that a `Mender` estimates at every update: of labels and of boxes."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.boxes import BoxModel, estimate_pull, fit_box_model, fit_residuals
from boxmend.auditing.evidence import Detected
from boxmend.data.boxes import compute_iou
from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.types import Floats, Rows, Singles
from boxmend.repair.mender.box_votes import (
    BoxVotes,
    choose_hold_share,
    expected_scores,
    pair_votes,
    vote_boxes,
)
from boxmend.repair.mender.label_noise import (
    LabelNoise,
    fit_label_noise,
    fit_temperature,
    symmetric_transition,
)
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings

SIDES_PER_SHIFT = 6  # edges are shifted by a sixth of their side to measure the pull
MAX_SHIFTED = 20_000  # annotations whose boxes are shifted
MAX_RAW_SHARE = 0.8  # weight of the annotated box above which boxes are left alone, as in `mend`


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimated noise, and whether annotations change yet."""

    labels: LabelNoise
    boxes: BoxModel
    hold_share: float  # see `box_votes.hold_at_border`
    agreement: float  # mean IoU of the annotations with their votes; 0 without a vote
    is_warm_up: bool

    @property
    def mends_boxes(self) -> bool:
        """Whether the box noise is large enough, against the error of the votes, to move boxes."""
        return not self.is_warm_up and self.boxes.precision <= MAX_RAW_SHARE


def initial_estimates(num_labels: int, settings: MenderSettings) -> Estimates:
    """Return the estimates before the first update."""
    rate = settings.initial_label_noise if settings.label_noise == "auto" else settings.label_noise
    noise = 0.0 if settings.box_noise == "auto" else settings.box_noise
    nothing = np.zeros((0, 4))
    model = replace(
        fit_residuals(nothing, nothing.astype(np.bool_), np.zeros(0)), noise=noise, high=1.0
    )
    labels = LabelNoise(rate, 0.0, 1.0, 1.0, symmetric_transition(rate, num_labels))
    return Estimates(labels, model, 0.0, 0.0, is_warm_up=True)


def estimate_labels(
    p: Singles, labels: Rows, before: Estimates, settings: MenderSettings
) -> LabelNoise:
    """Return the label noise, given the evidence p [n, C] and labels [n] of visited annotations.

    After warm-up the rate does not fall: the detector memorises more and more errors, so later
    estimates can only be too low. If the rate is known, only tau is fitted.
    """
    known = before.labels
    if not len(p):
        return known
    if settings.label_noise != "auto":
        return replace(known, tau=fit_temperature(p, labels, known.transition))
    new = fit_label_noise(p, labels, known.rate, full=settings.full_matrix)
    if before.is_warm_up or new.rate >= known.rate:
        return new
    return replace(known, tau=fit_temperature(p, labels, known.transition))


def estimate_boxes(
    scene: Scene,
    votes: tuple[Floats, Floats],
    pull: float,
    before: Estimates,
    settings: MenderSettings,
) -> tuple[BoxModel, Floats]:
    """Return the box noise, and the votes [k, 4] without systematic errors.

    `votes` are voted boxes [k, 4], NaN without one, and their scores [k]; `pull` is the share by
    which they follow the annotated boxes.
    """
    boxes, scores = votes
    rows = np.flatnonzero(~np.isnan(boxes).any(axis=1))
    annotated = scene.objects.boxes[rows]
    model, corrected = fit_box_model(
        annotated, boxes[rows], scene.object_sizes[rows], scores[rows], pull
    )
    if settings.box_noise != "auto":
        known = settings.box_noise
        model = replace(model, noise=known, low=known, high=known)
    elif not before.is_warm_up and model.noise < before.boxes.noise:
        model = before.boxes
    without_bias = np.full(boxes.shape, np.nan)
    without_bias[rows] = corrected
    return model, without_bias


def measure_pull(
    scene: Scene, detected: Detected, posteriors: Singles, votes: BoxVotes
) -> float:
    """Return the share by which votes follow annotated boxes, by shifting some on purpose."""
    objects = scene.objects
    seen = np.flatnonzero(votes.counts > 0)
    rows = seen[:: -(-len(seen) // MAX_SHIFTED) or 1]
    if not len(rows):
        return 0.0
    signs = np.stack([2 * (rows >> bit & 1) - 1 for bit in range(4)], axis=1)
    sides = np.tile(objects.boxes[rows, 2:] - objects.boxes[rows, :2], 2)
    shifts = signs / SIDES_PER_SHIFT
    shifted = replace(
        objects,
        image_rows=objects.image_rows[rows],
        labels=objects.labels[rows],
        boxes=objects.boxes[rows] + shifts * sides,
    )
    pairs, _ = pair_votes(shifted, detected)
    again, _ = pair_votes(
        replace(
            shifted,
            boxes=objects.boxes[rows],
        ),
        detected,
    )
    scores = [expected_scores(posteriors[rows], detected, of) for of in (pairs, again)]
    both = [
        vote_boxes(len(rows), of, values, np.ones(len(of)), detected.boxes).boxes
        for of, values in zip((pairs, again), scores, strict=True)
    ]
    responses = (both[0] - both[1]) / sides
    is_there = ~np.isnan(responses).any(axis=1)
    return estimate_pull(shifts[is_there], responses[is_there])


def measure_agreement(annotated: Floats, votes: Floats) -> float:
    """Return the mean IoU of annotated boxes [k, 4] with their votes; 0 without a vote."""
    return float(compute_iou(annotated, votes).mean()) if len(annotated) else 0.0


def find_errors(model: BoxModel, scores: Floats) -> Floats:
    """Return the standard deviation [k] of the error of votes with these scores, in sides."""
    strata = model.find_strata(scores)
    narrow = model.narrows[strata]
    errors: Floats = model.scales[strata] * np.sqrt(
        narrow + (1 - narrow) * SHARED.wide_factor**2
    )
    return errors


def estimate_hold_share(scene: Scene, model: BoxModel) -> float:
    """Return the share for `box_votes.hold_at_border`."""
    return choose_hold_share(scene.objects.boxes, scene.object_sizes, model.noise)
