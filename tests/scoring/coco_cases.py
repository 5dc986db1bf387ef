"""Truth and detections for the tests of COCO's rule, and pycocotools as the one to agree with."""

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from boxmend.data.detections import SizedDetections
from boxmend.scoring.coco import CocoScores, CocoTruth, score_by_coco

Box = tuple[float, float, float, float]  # x, y, width, height
Detection = tuple[int, int, float, Box]  # image, label, score, box
TrueBox = tuple[int, int, Box, str]  # image, label, box, "" or "crowd" or "difficult"
Columns = tuple[SizedDetections, CocoTruth]


def score(
    detections: Sequence[Detection], truth: Sequence[TrueBox], num_labels: int = 1
) -> CocoScores:
    return score_by_coco(*columns(detections, truth), num_labels=num_labels)


def columns(detections: Sequence[Detection], truth: Sequence[TrueBox]) -> Columns:
    """Columns of rows; areas are width times height."""
    result = np.array([detection[3] for detection in detections], np.float64).reshape(-1, 4)
    annotated = np.array([one[2] for one in truth], np.float64).reshape(-1, 4)
    return (
        SizedDetections(
            np.array([detection[0] for detection in detections], np.int64),
            np.array([detection[1] for detection in detections], np.int64),
            np.array([detection[2] for detection in detections], np.float64),
            corners(result),
            sizes=result[:, 2:],
        ),
        CocoTruth(
            np.array([one[0] for one in truth], np.int64),
            np.array([one[1] for one in truth], np.int64),
            corners(annotated),
            is_difficult=np.array([one[3] == "difficult" for one in truth], np.bool_),
            is_crowd=np.array([one[3] == "crowd" for one in truth], np.bool_),
            areas=annotated[:, 2] * annotated[:, 3],
            sizes=annotated[:, 2:],
        ),
    )


def corners(xywh: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)


class EvalWithIgnored(COCOeval):  # type: ignore[misc]  # pycocotools has no types
    """pycocotools with its key `ignore` heeded, which it reads and then forgets."""

    def _prepare(self) -> None:
        ignored = {
            annotation["id"]: annotation["ignore"]
            for annotation in self.cocoGt.dataset["annotations"]
        }
        super()._prepare()
        for entries in self._gts.values():
            for entry in entries:
                entry["ignore"] = bool(entry["ignore"] or ignored[entry["id"]])


def by_pycocotools(detections: SizedDetections, truth: CocoTruth, num_labels: int) -> Any:
    """What pycocotools makes of the same columns; its `stats` and `eval` tell."""
    rows = [*detections.image_rows.tolist(), *truth.image_rows.tolist()]
    annotated, result = COCO(), COCO()
    listed = {
        "images": [{"id": row + 1} for row in range(max(rows, default=0) + 1)],
        "categories": [{"id": label + 1, "name": str(label)} for label in range(num_labels)],
    }
    annotated.dataset = {**listed, "annotations": list(_annotations(truth))}
    result.dataset = {**listed, "annotations": list(_results(detections))}
    with contextlib.redirect_stdout(io.StringIO()):
        annotated.createIndex()
        result.createIndex()
        evaluated = EvalWithIgnored(annotated, result, "bbox")
        evaluated.evaluate()
        evaluated.accumulate()
        evaluated.summarize()
    return evaluated


def _annotations(truth: CocoTruth) -> Any:
    for k in range(len(truth.labels)):
        yield {
            "id": k + 1,
            "image_id": int(truth.image_rows[k]) + 1,
            "category_id": int(truth.labels[k]) + 1,
            "bbox": [*truth.boxes[k, :2].tolist(), *truth.sizes[k].tolist()],
            "area": float(truth.areas[k]),
            "iscrowd": int(truth.is_crowd[k]),
            "ignore": int(truth.is_difficult[k]),
        }


def _results(detections: SizedDetections) -> Any:
    """Results as `loadRes` completes them."""
    for k in range(len(detections.labels)):
        yield {
            "id": k + 1,
            "image_id": int(detections.image_rows[k]) + 1,
            "category_id": int(detections.labels[k]) + 1,
            "bbox": [*detections.boxes[k, :2].tolist(), *detections.sizes[k].tolist()],
            "area": float(detections.sizes[k].prod()),
            "score": float(detections.scores[k]),
            "iscrowd": 0,
        }


def random_columns(seed: int) -> tuple[SizedDetections, CocoTruth, int]:
    """A scene with crowds, difficult boxes, ties, duplicates, boxes without area and empty images.

    One class in three scenes has detections and no truth. Most detections lie near a true box,
    on a grid, so that many IoUs are exactly those that COCO asks for.
    """
    rng = np.random.default_rng(seed)
    num_images, num_labels = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    n, m = int(rng.choice([0, 20, 60, 350])), int(rng.choice([0, 3, 25]))
    annotated = rng.integers(0, 9, (m, 4)) * rng.choice([1.0, 0.1, 13.7, 40.0])
    image_rows = rng.integers(0, num_images, m)
    labels = rng.integers(0, max(1, num_labels - int(rng.integers(0, 2))), m)
    result = rng.integers(0, 9, (n, 4)) * rng.choice([1.0, 0.1, 13.7, 40.0])
    own_images, own_labels = rng.integers(0, num_images, n), rng.integers(0, num_labels, n)
    if m:
        near = np.flatnonzero(rng.random(n) < 0.7)
        like = rng.integers(0, m, len(near))
        result[near] = annotated[like] * rng.choice([1.0, 1.0, 1.0, 0.9, 0.5], (len(near), 4))
        own_images[near], own_labels[near] = image_rows[like], labels[like]
    scores = rng.random(n) if rng.random() < 0.5 else rng.integers(-2, 3, n) / 2
    areas = np.where(
        rng.random(m) < 0.5, annotated[:, 2] * annotated[:, 3], rng.integers(0, 20_000, m)
    )
    detections = SizedDetections(
        own_images, own_labels, scores, corners(result), sizes=result[:, 2:]
    )
    truth = CocoTruth(
        image_rows,
        labels,
        corners(annotated),
        is_difficult=rng.random(m) < 0.2,
        is_crowd=rng.random(m) < 0.2,
        areas=areas,
        sizes=annotated[:, 2:],
    )
    return detections, truth, num_labels
