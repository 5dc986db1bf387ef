"""Handmade datasets for the tests of checks; boxes are xyxy in pixels."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from boxmend.data.checks import check
from boxmend.data.dataset import Dataset, Images, Source, as_ids
from boxmend.data.findings import Finding

NAN, INF = math.nan, math.inf
LABELS = ("cat", "dog")
BOX_ERRORS = {"box-not-finite", "box-flipped", "box-empty", "box-outside"}
INSIDE = (10.0, 20.0, 30.0, 50.0)


class Folder(Source):
    """A source with one document per image, named by the row."""

    def document(self, row: int) -> Path:
        return self.path / f"{row}.doc"


def dataset_of(
    boxes: Sequence[Sequence[float]] = (),
    labels: Sequence[int] | None = None,
    image_rows: Sequence[int] | None = None,
    *,
    sizes: Sequence[tuple[int, int]] = ((100, 80),),
    format: str = "coco",
    label_names: tuple[str, ...] = LABELS,
) -> Dataset:
    """Return a dataset of annotations 101, 102, ... in images 0.jpg, 1.jpg, ..."""
    n, m = len(boxes), len(sizes)
    columns = np.array(boxes, np.float64).reshape(n, 4)
    marks = np.zeros(n, np.int64) if labels is None else np.array(labels, np.int64)
    return Dataset(
        images=Images(
            ids=as_ids(list(range(m))),
            file_names=[f"{k}.jpg" for k in range(m)],
            paths=[""] * m,
            splits=["train"] * m,
            widths=np.array([w for w, _ in sizes], np.int64),
            heights=np.array([h for _, h in sizes], np.int64),
            sources=np.zeros(m, np.int64),
            rows=np.arange(m),
        ),
        label_names=label_names,
        annotation_ids=as_ids([101 + k for k in range(n)]),
        image_rows=np.array([0] * n if image_rows is None else image_rows, np.int64),
        labels=marks,
        boxes=columns,
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(Folder(format, Path("data"), label_names, columns.copy(), marks.copy()),),
    )


def find_findings(dataset: Dataset, *kinds: str, open_images: bool = False) -> list[Finding]:
    findings = check(dataset, open_images=open_images)
    return [finding for finding in findings if finding.kind in kinds]
