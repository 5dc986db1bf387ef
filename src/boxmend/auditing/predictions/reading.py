"""The reader of prediction files: for an audit, and for an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boxmend.auditing.predictions.catalogue import catalogue_of
from boxmend.auditing.predictions.exact import read_exactly
from boxmend.auditing.predictions.inference import infer_meaning
from boxmend.auditing.predictions.locating import files_of, places_of, read_place
from boxmend.auditing.predictions.overlap import annotated
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections, joined
from boxmend.auditing.predictions.resolved import (
    Predictions,
    in_own_order,
    joined_predictions,
    notes_on_images,
    notes_on_scores,
)
from boxmend.data.dataset import Dataset
from boxmend.data.detections import SizedDetections
from boxmend.data.files.change_detection import read_states
from boxmend.errors import DataError


def read_coco_results(path: str | Path, dataset: Dataset) -> SizedDetections:
    """Read COCO results of any detector; rows and labels are those of the dataset.

    Categories are numbered as the dataset's COCO documents do it, else from 1 in the order of its
    label names, as `boxmend predict` writes them; names of classes go before numbers. Scores may be
    any finite numbers. Rows keep the order of the file.
    """
    return read_exactly(Path(path), catalogue_of(dataset))


def read_predictions(paths: Sequence[str | Path], dataset: Dataset) -> Predictions:
    """Read files, label folders and folders of folds into one table, in an order of its own.

    What a file means by its images, classes and boxes is found out by their overlap with the
    annotations; what was found out, and what was passed over, stands in `notes`. A DataError names
    what cannot be used.
    """
    places, manifest = places_of(paths, dataset)
    states = read_states(files_of(places))
    parts: dict[tuple[str, BoxFormat], list[RawDetections]] = {}
    for place in places:
        found = read_place(place)
        parts.setdefault((found.kind, found.format), []).append(found)
    known, catalogue = annotated(dataset), catalogue_of(dataset)
    notes: list[str] = []
    if empty := [one.files for group in parts.values() for one in group if not len(one)]:
        notes.append(f"no detection at all in {', '.join(file for one in empty for file in one)}")
    resolved = [
        infer_meaning(joined(group), dataset, catalogue, known)
        for _, group in sorted(parts.items(), key=lambda item: str(item[0]))
        if any(map(len, group))
    ]
    if not resolved:
        told = ", ".join(str(one.path) for one in places[:3])
        raise DataError(f"{told}: no detection at all; an audit needs what a detector found")
    result = in_own_order(joined_predictions(resolved, notes))
    result = replace(result, manifest=manifest, states=states)
    return replace(
        result, notes=result.notes + notes_on_scores(result) + notes_on_images(result, dataset)
    )
