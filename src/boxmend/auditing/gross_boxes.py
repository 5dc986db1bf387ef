"""Find boxes that are grossly off, independent of the usual box noise.

Such errors are planted by moving edges until the box is bad. Each real or planted box is compared
with the best detection of its class that no other annotation of the class overlaps more. See
`likeness`.
"""

from dataclasses import dataclass

import numpy as np

from boxmend.auditing.calibration import NOT_MEASURED, Share, fit_mean_curve, make_sample
from boxmend.auditing.evidence import NONE, Detected, Objects
from boxmend.auditing.fixes.table import GOOD_IOU
from boxmend.auditing.likeness import fit_likeness, judge_by_scores
from boxmend.auditing.pairs import Pairs, find_largest, find_overlaps
from boxmend.data.boxes import compute_areas, compute_iou
from boxmend.data.types import Floats, Mask, Rows


@dataclass(frozen=True)
class GrossBoxConstants:
    """Constants of planted gross boxes and of their comparison; lengths are in sides of a box."""

    max_shift_sides: float = 0.4  # of an edge of a planted gross box
    tries: int = 6  # to make a box bad
    min_annotations: int = 100  # with a detection; fewer are too few to fit
    max_planted: int = 100_000
    overlap_power: float = 2.0  # of the IoU, in the choice of the best detection
    min_rate: float = 0.015  # of gross boxes; detections of some good boxes look as bad


GROSS_BOXES = GrossBoxConstants()


@dataclass(frozen=True, eq=False)
class GrossBoxes:
    """The judgement of boxes by comparison with planted gross errors, one row per annotation."""

    p_gross: Floats  # [n] probability that the box is grossly off
    boxes: Floats  # [n, 4] the detected box, or the annotated one without a detection
    p_fix: Floats  # [n] probability that this box is good, and better than the annotated one
    iou_gain: Floats  # [n] expected gain of the IoU with the true box
    rate: Share


@dataclass(frozen=True, eq=False)
class _Matched:
    """The detection that each annotation is compared with, or NONE, and their IoU."""

    detections: Rows
    iou: Floats

    @property
    def has_any(self) -> Mask:
        mask: Mask = self.detections != NONE
        return mask


def judge_gross_boxes(
    objects: Objects, detected: Detected, sizes: Floats, random: np.random.Generator
) -> GrossBoxes:
    """Judge which boxes are grossly off; `sizes` [images, 2] are those of images."""
    n = len(objects)
    nothing = GrossBoxes(np.zeros(n), objects.boxes.copy(), np.zeros(n), np.zeros(n), NOT_MEASURED)
    pairs = _same_class_pairs(objects, detected)
    owners, best, second = _find_owners(pairs, len(detected))
    real = _match(pairs, best[pairs.second], detected, n)
    has_any = real.has_any
    if has_any.sum() < GROSS_BOXES.min_annotations:
        return nothing
    rows = random.permutation(n)[: GROSS_BOXES.max_planted]
    planted = Objects(
        objects.image_rows[rows],
        objects.labels[rows],
        plant_gross_boxes(objects.boxes[rows], random),
        objects.num_labels,
    )
    moved = _same_class_pairs(planted, detected)
    is_own = owners[moved.second] == rows[moved.first]
    rivals = np.where(is_own, second[moved.second], best[moved.second])
    matched = _match(moved, rivals, detected, len(planted))
    is_known = matched.has_any
    if is_known.sum() < GROSS_BOXES.min_annotations:
        return nothing
    seen = _describe_boxes(objects, detected, real, sizes)[has_any]
    known = _describe_boxes(planted, detected, matched, sizes)[is_known]
    model = fit_likeness(seen, known)
    scores, planted_scores = model.score(seen), model.score(known)
    p, share = judge_by_scores(scores, planted_scores)
    after = compute_iou(detected.boxes[matched.detections], objects.boxes[rows])[is_known]
    before = compute_iou(planted.boxes, objects.boxes[rows])[is_known]
    is_right = (after >= GOOD_IOU) & (after > before)
    known_sample = make_sample(planted_scores)
    p_right = fit_mean_curve(known_sample, is_right.astype(np.float64)).at(scores)
    gain = fit_mean_curve(known_sample, np.clip(after - before, 0, 1)).at(scores)
    result = nothing
    result.p_gross[has_any] = p
    result.boxes[has_any] = detected.boxes[real.detections[has_any]]
    result.p_fix[has_any] = p * p_right
    result.iou_gain[has_any] = p * gain
    part = float(is_known.mean())  # of gross errors that have a detection to compare with
    rate = share.scale(float(has_any.mean()) / max(part, 0.1))
    return GrossBoxes(result.p_gross, result.boxes, result.p_fix, result.iou_gain, rate)


def plant_gross_boxes(boxes: Floats, random: np.random.Generator) -> Floats:
    """Return boxes [n, 4] with edges moved until they are bad; after the last try some are not."""
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    reach = GROSS_BOXES.max_shift_sides
    moved: Floats = boxes + (2 * random.random(boxes.shape) - 1) * reach * sides
    for _ in range(GROSS_BOXES.tries):
        is_good = compute_iou(boxes, moved) >= GOOD_IOU
        draws = random.random((int(is_good.sum()), 4))
        moved[is_good] = boxes[is_good] + (2 * draws - 1) * reach * sides[is_good]
    return moved


def _same_class_pairs(objects: Objects, detected: Detected) -> Pairs:
    pairs = find_overlaps(objects.image_rows, objects.boxes, detected.image_rows, detected.boxes)
    is_same = objects.labels[pairs.first] == detected.labels[pairs.second]
    return Pairs(pairs.first[is_same], pairs.second[is_same], pairs.iou[is_same])


def _find_owners(pairs: Pairs, num_detections: int) -> tuple[Rows, Floats, Floats]:
    """Return the annotation that overlaps each detection most, its IoU, and the second largest."""
    best, places = find_largest(pairs.second, pairs.iou, num_detections)
    is_owned = places >= 0
    owners = np.full(num_detections, NONE)
    owners[is_owned] = pairs.first[places[is_owned]]
    is_left = np.ones(len(pairs), np.bool_)
    is_left[places[is_owned]] = False
    second, _ = find_largest(pairs.second[is_left], pairs.iou[is_left], num_detections)
    return owners, best, second


def _match(pairs: Pairs, rivals: Floats, detected: Detected, number: int) -> _Matched:
    """Match annotations with the best detection that no rival [p] overlaps more."""
    is_own = pairs.iou >= rivals
    first, second, iou = pairs.first[is_own], pairs.second[is_own], pairs.iou[is_own]
    values = detected.scores[second] * iou**GROSS_BOXES.overlap_power
    _, places = find_largest(first, values, number)
    has_any = places >= 0
    detections, overlap = np.full(number, NONE), np.zeros(number)
    detections[has_any] = second[places[has_any]]
    overlap[has_any] = iou[places[has_any]]
    return _Matched(detections, overlap)


def _describe_boxes(
    objects: Objects, detected: Detected, matched: _Matched, sizes: Floats
) -> Floats:
    """Return features [n, 6]: IoU, score and size of the detection, and two largest edge errors."""
    boxes, scores = detected.boxes[matched.detections], detected.scores[matched.detections]
    sides = np.tile(np.maximum(boxes[:, 2:] - boxes[:, :2], 1.0), 2)
    off = np.sort(np.abs(objects.boxes - boxes) / sides, axis=1)
    image_areas = np.prod(sizes[objects.image_rows], axis=1)
    columns = (
        matched.iou,
        np.log(scores + 0.01),
        -np.log(1 - np.clip(scores, 0, 1) + 0.02),
        np.log(np.maximum(compute_areas(boxes), 1.0) / np.maximum(image_areas, 1.0)),
        np.log(off[:, 3] + 0.02),
        np.log(off[:, 2] + 0.02),
    )
    return np.stack(columns, axis=1)
