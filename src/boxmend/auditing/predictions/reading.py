"""Read prediction files for an audit or for an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from boxmend.auditing.predictions.catalogue import make_catalogue
from boxmend.auditing.predictions.exact import read_exactly
from boxmend.auditing.predictions.inference import infer_meaning
from boxmend.auditing.predictions.locating import list_files, locate_predictions, read_located
from boxmend.auditing.predictions.overlap import usable_annotations
from boxmend.auditing.predictions.raw import BoxFormat, RawDetections, join_detections
from boxmend.auditing.predictions.resolved import (
    ResolvedPredictions,
    join_predictions,
    notes_on_images,
    notes_on_scores,
    sort_predictions,
)
from boxmend.data.dataset import Dataset
from boxmend.data.detections import SizedDetections
from boxmend.data.files.change_detection import read_states
from boxmend.errors import DataError


def read_coco_results(path: str | Path, dataset: Dataset) -> SizedDetections:
    """Read COCO results of any detector; rows and labels are those of the dataset.

    Category ids are those of the dataset's COCO files. For a dataset without COCO files they are
    numbers from 1 in the order of its label names, as `boxmend predict` writes them. Class names
    count more than numbers. Scores may be any finite numbers. Rows keep the order of the file.
    """
    return read_exactly(Path(path), make_catalogue(dataset))


def read_predictions(paths: Sequence[str | Path], dataset: Dataset) -> ResolvedPredictions:
    """Read files, label folders and folders of folds into one sorted table.

    The meaning of images, classes and boxes is inferred from their overlap with the annotations.
    `notes` of the result list what was inferred and what was skipped. A DataError names the values
    that cannot be used.
    """
    places, manifest = locate_predictions(paths, dataset)
    states = read_states(list_files(places))
    groups: dict[tuple[str, BoxFormat], list[RawDetections]] = {}
    for place in places:
        raw = read_located(place)
        groups.setdefault((raw.kind, raw.format), []).append(raw)
    known, catalogue = usable_annotations(dataset), make_catalogue(dataset)
    notes: list[str] = []
    if empty := [raw.files for group in groups.values() for raw in group if not len(raw)]:
        notes.append(f"there is no detection in {', '.join(file for raw in empty for file in raw)}")
    resolved = [
        infer_meaning(join_detections(group), dataset, catalogue, known)
        for _, group in sorted(groups.items(), key=lambda item: str(item[0]))
        if any(map(len, group))
    ]
    if not resolved:
        paths_text = ", ".join(str(raw.path) for raw in places[:3])
        raise DataError(
            f"{paths_text}: there is no detection; predict again with a lower score limit"
        )
    result = sort_predictions(join_predictions(resolved, notes))
    result = replace(result, manifest=manifest, states=states)
    return replace(
        result, notes=result.notes + notes_on_scores(result) + notes_on_images(result, dataset)
    )
