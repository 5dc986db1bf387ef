"""The noise that a `Mender` estimates at every update: of labels and of boxes."""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.auditing.boxes import BoxModel, estimate_pull, fit_box_model, fit_residuals
from boxmend.auditing.evidence import Detected, Objects
from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.boxes import compute_iou
from boxmend.data.types import Floats, Rows, Singles
from boxmend.repair.mender.box_votes import (
    BoxVotes,
    choose_hold_share,
    expected_scores,
    pair_votes,
    vote_boxes,
)
from boxmend.repair.mender.label_noise import LabelNoise
from boxmend.repair.mender.memory import MenderMemory
from boxmend.repair.mender.scene import Scene
from boxmend.repair.mender.settings import MenderSettings

SIDES_PER_SHIFT = 6  # edges are shifted by a sixth of their side to measure the pull
MAX_SHIFTED = 20_000  # annotations whose boxes are shifted
KEPT_BOUND = 0.9  # of the earlier lower bound of the noise, at every update
MAX_RAW_SHARE = 0.8  # weight of the annotated box above which boxes are left alone, as in `mend`


@dataclass(frozen=True, eq=False)
class Estimates:
    """The estimated noise, and whether annotations change yet."""

    labels: LabelNoise
    boxes: BoxModel
    hold_share: float  # see `box_votes.hold_at_border`
    agreement: float  # mean IoU of the annotations with their votes; 0 without a vote
    is_warm_up: bool
    judges_labels: bool  # after warm-up, if the label noise is precise enough
    mends_boxes: bool  # after warm-up, if the last two updates found box noise

    @property
    def has_box_noise(self) -> bool:
        """Whether the box noise is large, compared with the error of the votes."""
        return self.boxes.precision <= MAX_RAW_SHARE


def initial_boxes(settings: MenderSettings) -> BoxModel:
    """Return the box noise before the first update: 0, or the known one."""
    nothing = np.zeros((0, 4))
    model = fit_residuals(nothing, nothing.astype(np.bool_), np.zeros(0))
    return model if settings.box_noise == "auto" else _set_noise(model, settings.box_noise)


def estimate_boxes(
    scene: Scene, memory: MenderMemory, pull: float, before: Estimates, settings: MenderSettings
) -> tuple[BoxModel, Floats]:
    """Return the box noise, and the remembered votes [k, 4] without systematic errors.

    `pull` is the share by which votes follow the annotated boxes. After warm-up the noise does not
    fall below its earlier lower bound, which fades slowly, like that of labels.
    """
    rows = np.flatnonzero(memory.vote_visits > 0)
    model, corrected = fit_box_model(
        scene.objects.boxes[rows],
        memory.votes[rows],
        scene.object_sizes[rows],
        memory.vote_scores[rows],
        pull,
    )
    if settings.box_noise != "auto":
        model = _set_noise(model, settings.box_noise)
    elif not before.is_warm_up and model.noise < KEPT_BOUND * before.boxes.low:
        model = replace(before.boxes, low=KEPT_BOUND * before.boxes.low)
    unbiased = memory.votes.copy()
    unbiased[rows] = corrected
    return model, unbiased


def _set_noise(model: BoxModel, noise: float) -> BoxModel:
    return replace(model, noise=noise, low=noise, high=noise)


def measure_pull(scene: Scene, detected: Detected, posteriors: Singles, votes: BoxVotes) -> float:
    """Return the share by which votes follow annotated boxes, by shifting some on purpose."""
    objects = scene.objects
    seen = np.flatnonzero(votes.counts > 0)
    rows = seen[:: -(-len(seen) // MAX_SHIFTED) or 1]
    if not len(rows):
        return 0.0
    signs = np.stack([2 * (rows >> bit & 1) - 1 for bit in range(4)], axis=1)
    annotated = objects.boxes[rows]
    sides = np.tile(annotated[:, 2:] - annotated[:, :2], 2)
    shifts = signs / SIDES_PER_SHIFT
    moved, stayed = (
        _vote_alone(scene, rows, boxes, detected, posteriors)
        for boxes in (annotated + shifts * sides, annotated)
    )
    responses = (moved - stayed) / sides
    is_there = ~np.isnan(responses).any(axis=1)
    return estimate_pull(shifts[is_there], responses[is_there])


def _vote_alone(
    scene: Scene, rows: Rows, boxes: Floats, detected: Detected, posteriors: Singles
) -> Floats:
    """Return the votes for some annotations, moved to other boxes, without rivals."""
    image_rows, labels = scene.objects.image_rows[rows], scene.objects.labels[rows]
    objects = Objects(image_rows, labels, boxes, scene.objects.num_labels)
    pairs, _ = pair_votes(objects, detected)
    scores = expected_scores(posteriors[rows], detected, pairs)
    return vote_boxes(len(rows), pairs, scores, np.ones(len(pairs)), detected.boxes).boxes


def measure_agreement(annotated: Floats, votes: Floats) -> float:
    """Return the mean IoU of annotated boxes [k, 4] with their votes; 0 without a vote."""
    return float(compute_iou(annotated, votes).mean()) if len(annotated) else 0.0


def find_errors(model: BoxModel, scores: Floats) -> Floats:
    """Return the standard deviation [k] of the error of votes with these scores, in sides."""
    strata = model.find_strata(scores)
    narrow = model.narrows[strata]
    errors: Floats = model.scales[strata] * np.sqrt(narrow + (1 - narrow) * SHARED.wide_factor**2)
    return errors


def estimate_hold_share(scene: Scene, model: BoxModel) -> float:
    """Return the share for `box_votes.hold_at_border`."""
    return choose_hold_share(scene.objects.boxes, scene.object_sizes, model.noise)
