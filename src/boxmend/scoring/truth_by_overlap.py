"""Find the truth in a corrected version of a dataset, by ids or by the overlap of boxes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxmend.data.boxes import compute_iou, compute_shares_inside, iterate_image_pairs
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats import load
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.scoring.truth import (
    NONE,
    IgnoredObjects,
    KnownTruth,
    TrueObjects,
    UnpairedError,
    known_truth,
    pair_with_clean,
)

MIN_MATCH_IOU = 0.3  # of an annotation with its object
SAME_LABEL_BONUS = 0.1  # added to the IoU, to decide between objects with a similar overlap
MIN_TWIN_IOU = 0.5  # of a duplicate with its object, or of an annotation with a difficult object
MIN_INSIDE_CROWD = 0.5  # share of the area of a box
MIN_MATCHED_SHARE = 0.5  # with fewer matches it is the truth of another dataset
MIN_OVERLAPPING_SHARE = 0.9  # of annotations paired by id; noisy boxes still overlap


@dataclass(frozen=True)
class CorrectedTruth:
    """The truth, and whether annotations were paired with it by overlap."""

    truth: KnownTruth
    is_by_overlap: bool
    num_matched: int


def truth_of_correction(source: str | Path | Dataset, dataset: Dataset) -> CorrectedTruth:
    """Return the truth, paired by id if possible, otherwise by one-to-one matching of boxes.

    `source` is as for `known_truth`. A DataError explains why it is not the truth of the dataset.
    """
    try:
        truth = known_truth(source, dataset)
    except UnpairedError:
        return match_with_correction(source, dataset)
    rows = np.flatnonzero(~truth.is_spurious & ~dataset.is_ignored)
    overlaps = compute_iou(dataset.boxes[rows], truth.boxes[rows]) > 0
    if len(rows) and overlaps.mean() < MIN_OVERLAPPING_SHARE and _is_dataset(source):
        return match_with_correction(source, dataset)
    return CorrectedTruth(truth, is_by_overlap=False, num_matched=int((~truth.is_spurious).sum()))


def _is_dataset(source: str | Path | Dataset) -> bool:
    return isinstance(source, Dataset) or Path(source).suffix != ".parquet"


def match_with_correction(source: str | Path | Dataset, dataset: Dataset) -> CorrectedTruth:
    """Match annotations and corrected objects one to one, so that the total IoU is the largest.

    - An annotation without a match is a duplicate if it overlaps a matched object of its label by
      an IoU of 0.5 or more, and spurious otherwise. An object without a match is missing.
    - Difficult and crowd objects of the correction are neutral: annotations and proposals on them
      do not count. Objects inside a crowd of the dataset are not missing.
    """
    clean = source if isinstance(source, Dataset) else load(str(source))
    where = "the corrected dataset" if isinstance(source, Dataset) else str(source)
    images, labels = pair_with_clean(where, clean, dataset)
    is_known = (images != UNKNOWN) & np.isfinite(clean.boxes).all(axis=1)
    objects = _select_objects(clean, images, labels, is_known & ~clean.is_ignored)
    ignored = _select_ignored(clean, images, is_known & clean.is_ignored)
    matches = _match(dataset, objects)
    num_matched = int((matches != NONE).sum())
    if num_matched < MIN_MATCHED_SHARE * int((~dataset.is_ignored).sum()):
        raise DataError(
            f"{where}: only {num_matched:,} of {len(dataset):,} annotations overlap an object in "
            "it, so it is not a corrected version of the dataset; give one with the same images"
        )
    twins = _find_twins(dataset, objects, matches)
    object_rows = np.where(matches == NONE, twins, matches)
    is_neutral = (object_rows == NONE) & _mark_ignored(dataset.image_rows, dataset.boxes, ignored)
    keeps = _keep_objects(dataset, objects, matches)
    places = np.append(np.where(keeps, np.cumsum(keeps) - 1, NONE), NONE)
    has_object = object_rows != NONE
    true_labels, true_boxes = dataset.labels.copy(), dataset.boxes.copy()
    true_labels[has_object] = objects.labels[object_rows[has_object]]
    true_boxes[has_object] = objects.boxes[object_rows[has_object]]
    is_spurious = ~has_object & ~is_neutral
    true_labels[is_spurious], true_boxes[is_spurious] = UNKNOWN, np.nan
    known = TrueObjects(
        image_rows=objects.image_rows[keeps],
        labels=objects.labels[keeps],
        boxes=objects.boxes[keeps],
        object_rows=places[object_rows],
        are_all_known=True,
    )
    truth = KnownTruth(
        labels=true_labels,
        boxes=true_boxes,
        is_spurious=is_spurious,
        image_rows=known.image_rows,
        image_boxes=known.boxes,
        objects=known,
        is_neutral=is_neutral,
        ignored=ignored,
    )
    return CorrectedTruth(truth, is_by_overlap=True, num_matched=num_matched)


@dataclass(frozen=True, eq=False)
class CorrectedObjects:
    """The objects of a corrected dataset, with image rows and labels of the audited one."""

    image_rows: Rows  # [m]
    labels: Rows  # [m]
    boxes: Floats  # [m, 4]


def _select_objects(clean: Dataset, images: Rows, labels: Rows, mask: Mask) -> CorrectedObjects:
    return CorrectedObjects(images[mask], labels[mask], clean.boxes[mask])


def _select_ignored(clean: Dataset, images: Rows, mask: Mask) -> IgnoredObjects:
    return IgnoredObjects(images[mask], clean.boxes[mask], clean.is_crowd[mask])


def _match(dataset: Dataset, objects: CorrectedObjects) -> Rows:
    """Return the object [n] of each annotation, or NONE; crowds are not matched."""
    from scipy.optimize import linear_sum_assignment

    matches = np.full(len(dataset), NONE, np.int64)
    rows = np.flatnonzero((dataset.image_rows != UNKNOWN) & ~dataset.is_crowd)
    ours, theirs, iou = _find_pairs((dataset.image_rows[rows], dataset.boxes[rows]), objects)
    ours = rows[ours]
    is_near = iou >= MIN_MATCH_IOU
    ours, theirs, iou = ours[is_near], theirs[is_near], iou[is_near]
    gain = iou + SAME_LABEL_BONUS * (dataset.labels[ours] == objects.labels[theirs])
    image_rows = dataset.image_rows[ours]
    order = np.argsort(image_rows, kind="stable")
    bounds = np.flatnonzero(np.diff(image_rows[order], prepend=-2, append=-2))
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        pairs = order[start:end]
        annotations, left = np.unique(ours[pairs], return_inverse=True)
        candidates, right = np.unique(theirs[pairs], return_inverse=True)
        table = np.zeros((len(annotations), len(candidates)))
        table[left, right] = gain[pairs]
        chosen = linear_sum_assignment(table, maximize=True)
        is_pair = table[chosen] > 0
        matches[annotations[chosen[0][is_pair]]] = candidates[chosen[1][is_pair]]
    return matches


def _find_pairs(
    boxes: tuple[Rows, Floats], objects: CorrectedObjects | IgnoredObjects
) -> tuple[Rows, Rows, Floats]:
    """Return the rows of boxes and objects that overlap in one image, and their IoU."""
    none = np.zeros(0, np.int64)
    parts = [(none, none, np.zeros(0))]
    for ours, theirs in iterate_image_pairs(boxes[0], objects.image_rows):
        iou = compute_iou(boxes[1][ours], objects.boxes[theirs])
        overlaps = iou > 0
        parts.append((ours[overlaps], theirs[overlaps], iou[overlaps]))
    ours, theirs, iou = (np.concatenate(column) for column in zip(*parts, strict=True))
    return ours, theirs, iou


def _find_twins(dataset: Dataset, objects: CorrectedObjects, matches: Rows) -> Rows:
    """Return the matched object [n] that each unmatched annotation is a duplicate of, or NONE."""
    twins = np.full(len(dataset), NONE, np.int64)
    is_matched = np.zeros(len(objects.labels), np.bool_)
    is_matched[matches[matches != NONE]] = True
    rows = np.flatnonzero((matches == NONE) & (dataset.image_rows != UNKNOWN) & ~dataset.is_crowd)
    ours, theirs, iou = _find_pairs((dataset.image_rows[rows], dataset.boxes[rows]), objects)
    ours = rows[ours]
    is_same = (iou >= MIN_TWIN_IOU) & (dataset.labels[ours] == objects.labels[theirs])
    is_same &= is_matched[theirs]
    order = np.flatnonzero(is_same)[np.argsort(iou[is_same], kind="stable")]
    twins[ours[order]] = theirs[order]  # the largest overlap is written last
    return twins


def _mark_ignored(image_rows: Rows, boxes: Floats, ignored: IgnoredObjects) -> Mask:
    """Return a mask [n] of boxes on an ignored object: IoU 0.5, or half the area in a crowd."""
    marks = np.zeros(len(boxes), np.bool_)
    rows = np.flatnonzero(image_rows != UNKNOWN)
    ours, theirs, iou = _find_pairs((image_rows[rows], boxes[rows]), ignored)
    ours = rows[ours]
    inside = compute_shares_inside(boxes[ours], ignored.boxes[theirs])
    is_on = np.where(ignored.is_crowd[theirs], inside >= MIN_INSIDE_CROWD, iou >= MIN_TWIN_IOU)
    marks[ours[is_on]] = True
    return marks


def _keep_objects(dataset: Dataset, objects: CorrectedObjects, matches: Rows) -> Mask:
    """Return a mask [m] of objects that are matched, or not inside a crowd of the dataset."""
    keeps = np.zeros(len(objects.labels), np.bool_)
    keeps[matches[matches != NONE]] = True
    crowds = np.flatnonzero(dataset.is_crowd & (dataset.image_rows != UNKNOWN))
    areas = IgnoredObjects(
        dataset.image_rows[crowds], dataset.boxes[crowds], np.ones(len(crowds), np.bool_)
    )
    return keeps | ~_mark_ignored(objects.image_rows, objects.boxes, areas)
