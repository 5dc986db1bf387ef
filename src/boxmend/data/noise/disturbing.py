"""Disturb the annotations of a dataset."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import compute_areas
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.detections import Detections
from boxmend.data.noise.boxes import BOX_NOISES, disturb_boxes, image_sizes
from boxmend.data.noise.counts import choose_missing, duplicate_annotations, join_added
from boxmend.data.noise.labels import (
    read_confusion,
    relabel_any,
    relabel_by_matrix,
    relabel_pairs,
    relabel_symmetric,
)
from boxmend.data.noise.look_alikes import (
    relabel_look_alikes,
    weigh_confusions,
    weigh_pairs,
)
from boxmend.data.noise.settings import NoiseSettings
from boxmend.data.noise.spurious import invent_annotations
from boxmend.data.noise.streams import (
    Stream,
    choose_smallest,
    count_of_rate,
    uniform_rows,
    uniforms,
)
from boxmend.data.noise.truth import Origin, Truth
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError


@dataclass(frozen=True, repr=False)
class Noisy:
    """A disturbed dataset, its truth, and the counts of what was disturbed.

    Changed labels and boxes are counted among the kept annotations only, so no annotation counts
    both as missing or duplicate and as changed.
    """

    __repr__ = describe

    dataset: Dataset
    truth: Truth
    counts: dict[str, int]
    detections_sha256: str | None = None
    """Hash of the columns of the detections that the noise uses."""


def disturb(
    dataset: Dataset,
    settings: NoiseSettings,
    detections: Detections | None = None,
    eligible: Rows | None = None,
) -> Noisy:
    """Disturb a copy of a dataset; the dataset itself stays as it is.

    `eligible` are the rows of annotations that may be disturbed; by default all except crowd and
    difficult objects and incomplete annotations. Look-alikes without pairs and spurious annotations
    on clutter need the detections of a detector on the images of the dataset.
    """
    if not settings.needs_detections:
        detections = None
    elif detections is None:
        raise UsageError(
            "look-alikes without pairs and spurious annotations on clutter come from the "
            "detections of a detector; give them by --predictions"
        )
    eligible = find_eligible_rows(dataset) if eligible is None else eligible
    seed = settings.seed
    keys = uniforms(seed, Stream.SUBSET, len(eligible))
    inside = choose_smallest(keys, count_of_rate(settings.subset, len(eligible)))  # in `eligible`
    changed = replace(
        dataset,
        labels=_relabel(dataset, eligible, inside, settings, detections),
        boxes=_move_boxes(dataset, eligible, inside, settings),
    )
    is_kept = np.ones(len(dataset), np.bool_)
    areas = compute_areas(dataset.boxes[eligible]) if settings.missing_order == "small" else None
    is_kept[choose_missing(eligible, settings.missing, seed, areas)] = False
    num_invented = count_of_rate(settings.spurious, len(eligible))
    invented = invent_annotations(
        dataset, eligible, num_invented, settings.spurious_places, detections, seed
    )
    repeated = duplicate_annotations(
        changed, eligible, is_kept, rate=settings.duplicate, seed=seed, clip=settings.clip
    )
    added = join_added(invented, repeated)
    # Add before removing, so that no new annotation gets the id of a removed one.
    full = changed.add(added.image_rows, added.labels, added.boxes) if len(added) else changed
    is_there = np.concatenate([is_kept, np.ones(len(added), np.bool_)])
    truth = _make_truth(dataset, full, is_kept, added.originals)
    noisy = full.take(is_there)
    counts = _count_changes(truth, len(eligible), before=len(dataset))
    return Noisy(noisy, truth, counts, _digest_columns(detections))


def _digest_columns(detections: Detections | None) -> str | None:
    """Return the SHA-256 of detections, or None without any."""
    if detections is None:
        return None
    digest = hashlib.sha256()
    for column in (detections.image_rows, detections.labels, detections.scores, detections.boxes):
        digest.update(np.ascontiguousarray(column, np.float64).astype("<f8").tobytes())
    return digest.hexdigest()


def find_eligible_rows(dataset: Dataset) -> Rows:
    """Return the rows of the annotations that may be disturbed."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    is_finite = np.isfinite(dataset.boxes).all(axis=1)
    return np.flatnonzero(is_known & is_finite & ~dataset.is_ignored)


def _relabel(
    dataset: Dataset,
    eligible: Rows,
    inside: Rows,
    settings: NoiseSettings,
    detections: Detections | None,
) -> Rows:
    """Return all labels after label noise; `inside` are places in `eligible`."""
    result = dataset.labels.copy()
    rows = eligible[inside]
    result[rows] = _apply_label_setting(dataset, eligible, inside, settings)
    count = count_of_rate(settings.look_alikes, len(rows))
    if not count:
        return result
    if settings.look_alike_pairs:
        weights = weigh_pairs(settings.look_alike_pairs, dataset.label_names)
    else:
        assert detections is not None, "checked by disturb"
        weights = weigh_confusions(dataset, eligible, detections)
    is_free = result[rows] == dataset.labels[rows]  # not changed by the other label noise
    keys = uniforms(settings.seed, Stream.LOOK_ALIKE, len(eligible))[inside[is_free]]
    rows = rows[is_free]
    result[rows] = relabel_look_alikes(dataset.labels[rows], keys, weights, count)
    return result


def _apply_label_setting(
    dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings
) -> Rows:
    """Return the labels of these annotations after the noise of the setting `labels`."""
    labels, num_labels = dataset.labels[eligible[inside]], len(dataset.label_names)
    if settings.labels is None:
        return labels
    kind, _, amount = settings.labels.partition(":")
    keys = uniforms(settings.seed, Stream.LABEL_CHOICE, len(eligible))[inside]
    if kind in ("symmetric", "any"):
        draws = uniforms(settings.seed, Stream.LABEL_TARGET, len(eligible))[inside]
        relabel = relabel_symmetric if kind == "symmetric" else relabel_any
        return relabel(labels, keys, draws, float(amount), num_labels)
    if kind == "pair":
        return relabel_pairs(labels, keys, float(amount), num_labels)
    confusion = read_confusion(Path(amount), dataset.label_names)
    return relabel_by_matrix(labels, keys, confusion, num_labels)


def _move_boxes(dataset: Dataset, eligible: Rows, inside: Rows, settings: NoiseSettings) -> Floats:
    """Return all boxes after box noise; `inside` are places in `eligible`.

    Boxes that are grossly off start from the clean box, not from one with the other box noise.
    """
    result = dataset.boxes.copy()
    keys = uniforms(settings.seed, Stream.GROSS_CHOICE, len(eligible))[inside]
    gross = inside[choose_smallest(keys, count_of_rate(settings.gross_boxes, len(inside)))]
    noises = [(settings.boxes, inside, Stream.BOXES)]
    noises.append((settings.gross_noise, gross, Stream.GROSS_BOXES))
    for noise, places, stream in noises:
        if noise is not None and len(places):
            rows = eligible[places]
            result[rows] = _move_some(dataset, rows, places, noise, (settings, stream))
    return result


def _move_some(
    dataset: Dataset, rows: Rows, places: Rows, noise: str, source: tuple[NoiseSettings, Stream]
) -> Floats:
    """Return the clean boxes of these rows after one kind of noise; places index the draws."""
    settings, stream = source
    kind, _, text = noise.partition(":")
    moves, amount = BOX_NOISES[kind], float(text)
    boxes = dataset.boxes[rows]
    if amount == 0:  # no noise: boxes that reach over the border stay as they are
        return boxes
    return disturb_boxes(
        boxes,
        image_sizes(dataset, dataset.image_rows[rows], settings.clip),
        lambda pending, attempt: uniform_rows(settings.seed, stream, places[pending], 4, attempt),
        lambda draws: moves(draws, amount),
    )


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
