"""Score the detections of a run, or of any detector, on a dataset.

`evaluate` returns an `Evaluation` with the figures of COCO and VOC, over all classes and for each
class. torch is needed only to detect with the model of a run.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.predictions import read_coco_results
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.describing import describe
from boxmend.data.detections import Detections, SizedDetections
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.data.formats.coco.sizes import measure_annotations
from boxmend.data.progress import Progress
from boxmend.errors import OutputError, UsageError
from boxmend.runs.folder import EVALUATION_FILE, Run
from boxmend.scoring.coco import CocoTruth, compute_sizes, score_by_coco
from boxmend.scoring.voc import TrueBoxes, average_precision

if TYPE_CHECKING:
    from boxmend.training.prediction import ModelPredictions

MAX_LISTED_CLASSES = 5  # in a note
MAX_END = 1.1  # times the side of the image; a box that ends beyond is suspicious
MAX_SUSPICIOUS_SHARE = 0.2  # of boxes, above which a note asks about the format

Data = Dataset | str | Path | Sequence[str | Path]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores of detections. Figures are fractions, or None without an annotation to detect."""

    __repr__ = describe

    figures: dict[str, float | None]
    """COCO's AP, AP50, .., AR_large, then voc_ap50_11point and voc_ap50_area."""
    by_label: dict[str, dict[str, float | int | None]]
    """By label name: AP, AP50, both VOC figures, annotations and detections."""
    num_images: int
    num_detections: int
    num_annotations: int
    notes: list[str] = field(default_factory=list)
    """Notes for readers of the figures."""
    saved: Path | None = None
    """The file in the folder of the run that holds the same figures."""

    def to_json(self) -> dict[str, Any]:
        """Return figures, counts and classes as JSON values."""
        return {
            **self.figures,
            "images": self.num_images,
            "detections": self.num_detections,
            "annotations": self.num_annotations,
            "by_label": self.by_label,
        }


def evaluate(
    run: str | Path | None = None,
    *,
    data: Data,
    predictions: str | Path | None = None,
    detections_out: str | Path | None = None,
    progress: Progress = lambda done, total: None,
) -> Evaluation:
    """Score the detections of a run, or those in a file of COCO results, on annotated data.

    Give either `run`, the folder of a finished run, or `predictions`. `data` is a dataset, or one
    or more addresses (PATH or PATH:SPLIT). Classes of a run are matched by name. The scores of a
    run are also written to RUN/evaluation.json, which is replaced, and its detections to
    `detections_out`, a new file, as COCO results.
    """
    if (run is None) == (predictions is None):
        raise UsageError("give either a run or --predictions, the detections to score")
    if predictions is not None:
        if detections_out is not None:
            raise UsageError("--detections-out writes the detections of a run; give a run")
        dataset, _ = _load(data)
        detections = read_coco_results(predictions, dataset)
        return replace(score(detections, dataset), notes=_note_odd_boxes(detections, dataset))
    assert run is not None
    dataset, addresses = _load(data)
    predicted = detections_of_run(run, dataset, progress=progress, out=detections_out)
    result = _score_by_name(predicted, dataset)
    return _save(result, Path(run), dataset, addresses) if os.path.isdir(run) else result


def score(
    detections: Detections, dataset: Dataset, *, label_names: Sequence[str] | None = None
) -> Evaluation:
    """Score detections with the rows and labels of a dataset by the rules of COCO and VOC.

    Difficult objects and crowds count neither as missed nor as false positives. With `label_names`
    only annotations of these classes count.
    """
    names, n = dataset.label_names, len(dataset.label_names)
    truth = dataset.take(_is_scored(dataset, names if label_names is None else label_names))
    voc = average_precision(
        detections,
        TrueBoxes(truth.image_rows, truth.labels, truth.boxes, truth.is_ignored),
        num_labels=n,
    )
    coco = score_by_coco(*_order_by_ids(detections, truth), num_labels=n)
    columns = {
        "AP": coco.ap,
        "AP50": coco.ap50,
        "voc_ap50_11point": voc.ap_11_points,
        "voc_ap50_area": voc.ap_area,
        "annotations": np.bincount(dataset.labels[dataset.labels != UNKNOWN], minlength=n),
        "detections": voc.num_detections,
    }
    means = {"voc_ap50_11point": voc.mean_11_points, "voc_ap50_area": voc.mean_area}
    return Evaluation(
        figures={key: _none_if_nan(value) for key, value in (coco.figures | means).items()},
        by_label={
            name: {key: _none_if_nan(column[label].item()) for key, column in columns.items()}
            for label, name in enumerate(names)
        },
        num_images=len(dataset.images),
        num_detections=len(detections.labels),
        num_annotations=len(dataset),
    )


def detections_of_run(
    run: str | Path,
    dataset: Dataset,
    *,
    progress: Progress = lambda done, total: None,
    out: str | Path | None = None,
) -> ModelPredictions:
    """Detect objects in the images of a dataset with the model of a run.

    Labels are those of the model. The detections are written to `out`, a new file, as COCO
    results.
    """
    try:
        from boxmend.training.prediction import ensure_new  # imports torch, which takes long
        from boxmend.training.prediction.annotated import detect_on_dataset
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the detections of a run need {error.name}, which is not installed: "
            "pip install 'boxmend[train]'"
        ) from error
    if out is not None:
        ensure_new(Path(out))
    predicted = detect_on_dataset(Path(run), dataset, progress)
    if out is not None:
        predicted.save(out)
    return predicted


def _note_odd_boxes(detections: Detections, dataset: Dataset) -> list[str]:
    """Return a note about boxes that do not seem to be x, y, width and height in pixels."""
    ends = detections.boxes[:, 2:]
    sides = np.stack([dataset.images.widths, dataset.images.heights], axis=1)
    sides = sides[detections.image_rows]
    is_outside = ((ends > MAX_END * sides) & (sides > 0)).any(axis=1)
    expected = "bbox must be x, y, width and height in pixels"
    if is_outside.sum() > MAX_SUSPICIOUS_SHARE * len(ends):
        return [
            f"{is_outside.sum():,} of {len(ends):,} boxes end far outside their images: {expected} "
            "of the stored image, not two corners"
        ]
    if len(ends) and ends.max() <= 1 and sides.max() > 1:
        return [f"all boxes are within the first pixel: {expected}, not fractions of the image"]
    return []


def _load(data: Data) -> tuple[Dataset, list[str]]:
    """Return the data to score on, and their addresses."""
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    addresses = [data] if isinstance(data, str | Path) else list(data)
    if not addresses:
        raise UsageError("no data to score on; name them by --data")
    return load(*addresses), [str(address) for address in addresses]


def _score_by_name(predicted: ModelPredictions, dataset: Dataset) -> Evaluation:
    """Score the detections of a model; classes that only one side has are left out and noted."""
    names = predicted.card.label_names
    label_of = {name: label for label, name in enumerate(dataset.label_names)}
    new = np.array([label_of.get(name, UNKNOWN) for name in names], np.int64)
    columns = predicted.detections
    labels = new[columns.labels]
    kept = labels != UNKNOWN
    detections = Detections(
        columns.image_rows[kept], labels[kept], columns.scores[kept], columns.boxes[kept]
    )
    result = score(detections, dataset, label_names=names)
    return replace(result, notes=_notes(predicted, dataset.label_names, int((~kept).sum())))


def _notes(predicted: ModelPredictions, label_names: Sequence[str], num_dropped: int) -> list[str]:
    """Return notes about what the scores of a run leave out."""
    notes = []
    known = predicted.card.label_names
    if unknown := [name for name in label_names if name not in known]:
        notes.append(f"the model has no class {_join_names(unknown)}: left out of all figures")
    if num_dropped:
        foreign = [name for name in known if name not in label_names]
        notes.append(
            f"{num_dropped:,} detections have classes that the data lack: {_join_names(foreign)}"
        )
    if predicted.skipped:
        notes.append(
            f"{len(predicted.skipped):,} images cannot be read and have no detections; the first: "
            f"{predicted.skipped[0]}"
        )
    return notes


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED_CLASSES
    return ", ".join(names[:MAX_LISTED_CLASSES]) + (f" and {more} more" if more > 0 else "")


def _is_scored(dataset: Dataset, label_names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which annotations count: those of these classes in a known image."""
    classes = set(label_names)
    label_counts = np.array([*(name in classes for name in dataset.label_names), False])
    is_scored: NDArray[np.bool_] = label_counts[dataset.labels] & (dataset.image_rows != UNKNOWN)
    return is_scored


def _order_by_ids(detections: Detections, truth: Dataset) -> tuple[Detections, CocoTruth]:
    """Number images by their ids, the order in which COCO takes detections of equal score."""
    ids = truth.images.ids
    rank = np.arange(len(ids))
    if ids.dtype != object:
        rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    areas, sizes = measure_annotations(truth)
    sized = SizedDetections(
        rank[detections.image_rows],
        detections.labels,
        detections.scores,
        detections.boxes,
        sizes=compute_sizes(detections),
    )
    coco_truth = CocoTruth(
        rank[truth.image_rows],
        truth.labels,
        truth.boxes,
        truth.is_difficult,
        truth.is_crowd,
        areas,
        sizes,
    )
    return sized, coco_truth


def _save(result: Evaluation, run: Path, dataset: Dataset, addresses: Sequence[str]) -> Evaluation:
    """Write the evaluation into the folder of the run, for its report; replaces the last one.

    If that fails, the result gets a note, since the figures may have taken hours.
    """
    content = {
        **result.to_json(),
        "notes": result.notes,
        "addresses": [str(Path(address).absolute()) for address in addresses],
        "sha256": fingerprint(dataset),
    }
    try:
        Run(run).write_json(EVALUATION_FILE, content)
    except OutputError as error:
        return replace(result, notes=[*result.notes, f"{error}; the figures were not saved"])
    return replace(result, saved=run / EVALUATION_FILE)


def _none_if_nan(value: float) -> float | None:
    """Return the value, or None for NaN."""
    return None if math.isnan(value) else value


__all__ = [
    "EVALUATION_FILE",
    "Evaluation",
    "detections_of_run",
    "evaluate",
    "score",
]
