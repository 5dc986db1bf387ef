"""Disturb the annotations of a dataset."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.noise.boxes import BOX_NOISES, disturb_boxes, image_sizes
from boxmend.data.noise.counts import (
    choose_missing,
    duplicate_annotations,
    invent_annotations,
    join_added,
)
from boxmend.data.noise.labels import (
    read_confusion,
    relabel_by_matrix,
    relabel_pairs,
    relabel_symmetric,
)
from boxmend.data.noise.settings import NoiseSettings
from boxmend.data.noise.streams import (
    Stream,
    choose_smallest,
    count_of_rate,
    uniform_rows,
    uniforms,
)
from boxmend.data.noise.truth import Origin, Truth
from boxmend.data.types import Rows


@dataclass(frozen=True)
class Noisy:
    """A disturbed dataset, its truth, and the counts of what was disturbed.

    Changed labels and boxes are counted among the kept annotations only, so no annotation counts
    both as missing or duplicate and as changed.
    """

    dataset: Dataset
    truth: Truth
    counts: dict[str, int]


def disturb(dataset: Dataset, settings: NoiseSettings) -> Noisy:
    """Disturb a copy of a dataset; the dataset itself stays as it is."""
    eligible = _eligible_rows(dataset)
    seed = settings.seed
    keys = uniforms(seed, Stream.SUBSET, len(eligible))
    inside = choose_smallest(keys, count_of_rate(settings.subset, len(eligible)))  # in `eligible`
    changed = replace(
        dataset,
        labels=_relabel(dataset, eligible, inside, settings),
        boxes=_move_boxes(dataset, eligible, inside, settings),
    )
    is_kept = np.ones(len(dataset), np.bool_)
    is_kept[choose_missing(eligible, settings.missing, seed)] = False
    invented = invent_annotations(dataset, eligible, settings.spurious, seed)
    repeated = duplicate_annotations(
        changed, eligible, is_kept, rate=settings.duplicate, seed=seed, clip=settings.clip
    )
    added = join_added(invented, repeated)
    # Add before removing, so that no new annotation gets the id of a removed one.
    full = changed.add(added.image_rows, added.labels, added.boxes) if len(added) else changed
    is_there = np.concatenate([is_kept, np.ones(len(added), np.bool_)])
    truth = _make_truth(dataset, full, is_kept, added.originals)
    noisy = full.take(is_there)
    return Noisy(noisy, truth, _count_changes(truth, len(eligible), before=len(dataset)))


def _eligible_rows(dataset: Dataset) -> Rows:
    """Return the rows of the annotations that may be disturbed."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    is_finite = np.isfinite(dataset.boxes).all(axis=1)
    return np.flatnonzero(is_known & is_finite & ~dataset.is_ignored)


def _relabel(
    dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings
) -> NDArray[np.int64]:
    """Return all labels after label noise; `inside` are places in `eligible`."""
    result = dataset.labels.copy()
    if settings.labels is None:
        return result
    kind, _, amount = settings.labels.partition(":")
    rows = eligible[inside]
    labels, num_labels = dataset.labels[rows], len(dataset.label_names)
    keys = uniforms(settings.seed, Stream.LABEL_CHOICE, len(eligible))[inside]
    if kind == "symmetric":
        draws = uniforms(settings.seed, Stream.LABEL_TARGET, len(eligible))[inside]
        result[rows] = relabel_symmetric(labels, keys, draws, float(amount), num_labels)
    elif kind == "pair":
        result[rows] = relabel_pairs(labels, keys, float(amount), num_labels)
    else:
        confusion = read_confusion(Path(amount), dataset.label_names)
        result[rows] = relabel_by_matrix(labels, keys, confusion, num_labels)
    return result


def _move_boxes(
    dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings
) -> NDArray[np.float64]:
    """Return all boxes after box noise; `inside` are places in `eligible`."""
    result = dataset.boxes.copy()
    if settings.boxes is None:
        return result
    kind, _, text = settings.boxes.partition(":")
    moves, amount, seed = BOX_NOISES[kind], float(text), settings.seed
    if amount == 0:  # no noise: boxes that reach over the border stay as they are
        return result
    rows = eligible[inside]
    result[rows] = disturb_boxes(
        dataset.boxes[rows],
        image_sizes(dataset, rows, settings.clip),
        lambda pending, attempt: uniform_rows(seed, Stream.BOXES, inside[pending], 4, attempt),
        lambda draws: moves(draws, amount),
    )
    return result


def _make_truth(
    clean: Dataset, full: Dataset, is_kept: NDArray[np.bool_], added_originals: Rows
) -> Truth:
    """Return the truth of `full`: all clean annotations, removed ones too, then the added ones."""
    original = np.concatenate([np.arange(len(clean)), added_originals])
    origins = np.full(len(full), Origin.KEPT, np.int8)
    origins[: len(clean)][~is_kept] = Origin.MISSING
    origins[len(clean) :] = np.where(added_originals < 0, Origin.SPURIOUS, Origin.DUPLICATE)
    labels = np.append(clean.labels, UNKNOWN)[original]  # -1 picks the last
    boxes = np.concatenate([clean.boxes, np.full((1, 4), np.nan)])[original]
    is_comparable = (origins == Origin.KEPT) | (origins == Origin.DUPLICATE)
    differs = (full.boxes != boxes) & ~(np.isnan(full.boxes) & np.isnan(boxes))
    return Truth(
        label_names=clean.label_names,
        annotation_ids=full.annotation_ids,
        source_ids=np.append(clean.annotation_ids, 0)[original],
        labels=labels,
        boxes=boxes,
        label_changed=is_comparable & (full.labels != labels),
        box_changed=is_comparable & differs.any(axis=1),
        origins=origins,
    )


def _count_changes(truth: Truth, eligible: int, *, before: int) -> dict[str, int]:
    is_kept = truth.origins == Origin.KEPT
    by_origin = np.bincount(truth.origins, minlength=len(Origin)).tolist()
    return {
        "annotations_before": before,
        "annotations_after": len(truth) - by_origin[Origin.MISSING],
        "eligible": eligible,
        "labels_changed": int((truth.label_changed & is_kept).sum()),
        "boxes_changed": int((truth.box_changed & is_kept).sum()),
        "missing": by_origin[Origin.MISSING],
        "spurious": by_origin[Origin.SPURIOUS],
        "duplicate": by_origin[Origin.DUPLICATE],
    }
