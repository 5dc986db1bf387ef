"""Detection scores: a run's own detections, or those of any detector, against a dataset.

`evaluate` gives an `Evaluation` with COCO's and VOC's figures, for all classes and for each. Only
the detections of a run need torch.
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
from boxmend.data.detections import Detections, SizedDetections
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.data.formats.coco.sizes import measure_annotations
from boxmend.data.progress import Progress
from boxmend.errors import OutputError, UsageError
from boxmend.runs.folder import EVALUATION_FILE, Run
from boxmend.scoring.coco import CocoTruth, coco_scores, detection_sizes
from boxmend.scoring.voc import TrueBoxes, average_precision

if TYPE_CHECKING:
    from boxmend.training.prediction import ModelPredictions

SHOWN = 5  # classes that a note lists
FAR_BEYOND = 1.1  # times the image's side: an end that no detector means
MANY = 0.2  # share of boxes with such ends that is asked about

Data = Dataset | str | Path | Sequence[str | Path]


@dataclass(frozen=True)
class Evaluation:
    """How good detections are. Figures are fractions, None where nothing was to be found."""

    figures: dict[str, float | None]
    """COCO's AP, AP50, .., AR_large, then voc_ap50_11point and voc_ap50_area."""
    by_label: dict[str, dict[str, float | int | None]]
    """By label name: AP, AP50, both VOC figures, annotations and detections."""
    num_images: int
    num_detections: int
    num_annotations: int
    notes: list[str] = field(default_factory=list)
    """What a reader of the figures should know."""
    saved: Path | None = None
    """The file in the run's folder that holds them, too."""

    def to_json(self) -> dict[str, Any]:
        """Give figures, counts and classes as JSON has them."""
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

    Give either `run`, the folder of a finished run, or `predictions`. `data` is a dataset, or the
    address of one (PATH or PATH:SPLIT), or several. Classes of a run are matched by name. Its
    scores are also written to RUN/evaluation.json, which is replaced, and its detections to
    `detections_out`, a new file, as COCO results.
    """
    if (run is None) == (predictions is None):
        raise UsageError("give either a run or --predictions, the detections to be scored")
    if predictions is not None:
        if detections_out is not None:
            raise UsageError("--detections-out writes the detections of a run; give a run")
        dataset, _ = _loaded(data)
        detections = read_coco_results(predictions, dataset)
        return replace(score(detections, dataset), notes=_odd_boxes(detections, dataset))
    assert run is not None
    dataset, addresses = _loaded(data)
    found = detections_of_run(run, dataset, progress=progress, out=detections_out)
    result = _scored_by_name(found, dataset)
    return _saved(result, Path(run), dataset, addresses) if os.path.isdir(run) else result


def score(
    detections: Detections, dataset: Dataset, *, label_names: Sequence[str] | None = None
) -> Evaluation:
    """Score detections whose rows and labels are those of a dataset, by the rules of COCO and VOC.

    What is difficult or a crowd is neither asked for nor held against a detection. Of other
    classes than `label_names`, where they are given, nothing is asked for either.
    """
    names, n = dataset.label_names, len(dataset.label_names)
    truth = dataset.take(_is_asked(dataset, names if label_names is None else label_names))
    voc = average_precision(
        detections,
        TrueBoxes(truth.image_rows, truth.labels, truth.boxes, truth.is_ignored),
        num_labels=n,
    )
    coco = coco_scores(*_in_order_of_ids(detections, truth), num_labels=n)
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
        figures={key: _defined(value) for key, value in (coco.figures | means).items()},
        by_label={
            name: {key: _defined(column[label].item()) for key, column in columns.items()}
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
    """Have the model of a run look at the images of a dataset, as training does to score itself.

    Labels are those of the model; `out`, which must not be there, gets them as COCO results.
    """
    try:
        from boxmend.training.prediction import ensure_new  # imports torch, which takes its time
        from boxmend.training.prediction.annotated import detect_in
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the detections of a run need {error.name}, which is not installed: "
            "pip install 'boxmend[train]'"
        ) from error
    if out is not None:
        ensure_new(Path(out))
    found = detect_in(Path(run), dataset, progress)
    if out is not None:
        found.save(out)
    return found


def _odd_boxes(detections: Detections, dataset: Dataset) -> list[str]:
    """Ask about boxes that look as if they were given otherwise than as x, y, width, height."""
    ends = detections.boxes[:, 2:]
    sides = np.stack([dataset.images.widths, dataset.images.heights], axis=1)
    sides = sides[detections.image_rows]
    is_beyond = ((ends > FAR_BEYOND * sides) & (sides > 0)).any(axis=1)
    expected = "bbox is x, y, width and height in pixels"
    if is_beyond.sum() > MANY * len(ends):
        return [
            f"{is_beyond.sum():,} of {len(ends):,} boxes end far outside their images: {expected}, "
            "not two corners, and of the image as stored"
        ]
    if len(ends) and ends.max() <= 1 and sides.max() > 1:
        return [f"all boxes lie within the first pixel: {expected}, not in fractions of the image"]
    return []


def _loaded(data: Data) -> tuple[Dataset, list[str]]:
    """The data to score on, and where they lie."""
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    addresses = [data] if isinstance(data, str | Path) else list(data)
    if not addresses:
        raise UsageError("no data to score on; name them by --data")
    return load(*addresses), [str(one) for one in addresses]


def _scored_by_name(found: ModelPredictions, dataset: Dataset) -> Evaluation:
    """Score what a model found; classes that one side does not know are left out, and said."""
    names = found.card.label_names
    label_of = {name: label for label, name in enumerate(dataset.label_names)}
    new = np.array([label_of.get(name, UNKNOWN) for name in names], np.int64)
    columns = found.found
    labels = new[columns.labels]
    kept = labels != UNKNOWN
    detections = Detections(
        columns.image_rows[kept], labels[kept], columns.scores[kept], columns.boxes[kept]
    )
    result = score(detections, dataset, label_names=names)
    return replace(result, notes=_notes(found, dataset.label_names, int((~kept).sum())))


def _notes(found: ModelPredictions, label_names: Sequence[str], num_lost: int) -> list[str]:
    """What was left out of the scores of a run, and why."""
    notes = []
    known = found.card.label_names
    if unknown := [name for name in label_names if name not in known]:
        notes.append(f"the run does not know {_listed(unknown)}: left out of all figures")
    if num_lost:
        foreign = [name for name in known if name not in label_names]
        notes.append(f"{num_lost:,} detections of what the data do not have: {_listed(foreign)}")
    if found.skipped:
        notes.append(
            f"in {len(found.skipped):,} images nothing could be found, as they cannot be read; "
            f"the first: {found.skipped[0]}"
        )
    return notes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" * (len(names) > SHOWN))


def _is_asked(dataset: Dataset, label_names: Sequence[str]) -> NDArray[np.bool_]:
    """Which annotations are there to be found: of these classes, in an image that is known."""
    asked = set(label_names)
    label_is_asked = np.array([*(name in asked for name in dataset.label_names), False])
    is_asked: NDArray[np.bool_] = label_is_asked[dataset.labels] & (dataset.image_rows != UNKNOWN)
    return is_asked


def _in_order_of_ids(detections: Detections, truth: Dataset) -> tuple[Detections, CocoTruth]:
    """Number images by their ids, since COCO takes detections of equal score in that order."""
    ids = truth.images.ids
    rank = np.arange(len(ids))
    if ids.dtype != object:
        rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    areas, sizes = measure_annotations(truth)
    found = SizedDetections(
        rank[detections.image_rows],
        detections.labels,
        detections.scores,
        detections.boxes,
        sizes=detection_sizes(detections),
    )
    asked = CocoTruth(
        rank[truth.image_rows],
        truth.labels,
        truth.boxes,
        truth.is_difficult,
        truth.is_crowd,
        areas,
        sizes,
    )
    return found, asked


def _saved(result: Evaluation, run: Path, dataset: Dataset, addresses: Sequence[str]) -> Evaluation:
    """Write what the report of a run reads, in the place of what was there.

    A folder that cannot be written to is told as a note: the figures may have taken hours.
    """
    told = {
        **result.to_json(),
        "notes": result.notes,
        "addresses": [str(Path(one).absolute()) for one in addresses],
        "sha256": fingerprint(dataset),
    }
    try:
        Run(run).write_json(EVALUATION_FILE, told)
    except OutputError as error:
        return replace(result, notes=[*result.notes, f"{error}; the figures are given here alone"])
    return replace(result, saved=run / EVALUATION_FILE)


def _defined(value: float) -> float | None:
    """The value, or None for NaN."""
    return None if math.isnan(value) else value


__all__ = [
    "EVALUATION_FILE",
    "Evaluation",
    "detections_of_run",
    "evaluate",
    "score",
]
