"""A hash by which a run knows its annotations again, and whether source files changed meanwhile."""

import hashlib
import os
from typing import Any

import numpy as np

from boxmend.data.dataset import Dataset
from boxmend.data.files import change_detection


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """What the folder of a run says of its data, and by which it knows them again."""
    return {
        "images": len(dataset.images),
        "annotations": len(dataset),
        "label_names": list(dataset.label_names),
        "sha256": fingerprint(dataset),
    }


def fingerprint(dataset: Dataset) -> str:
    """A hash of what training sees of the annotations: images, ids, labels, boxes and flags."""
    digest = hashlib.sha256()
    for text in (dataset.images.file_names, dataset.annotation_ids.tolist(), dataset.label_names):
        digest.update("\n".join(map(str, text)).encode("utf-8", "surrogatepass") + b"\0")
    for column in (dataset.image_rows, dataset.labels, dataset.boxes, dataset.is_ignored):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def ensure_unchanged(dataset: Dataset) -> None:
    """Raise a DataError where a file that the dataset was read from has other bytes by now.

    Call it before the last step of whatever is written about the dataset. A source whose files are
    all gone is not compared: it was moved or removed, not edited, and may exist in memory alone.
    """
    for source in dataset.sources:
        if any(os.path.exists(file.path) for file in source.read_files):
            change_detection.ensure_unchanged(source.read_files)
