"""Recognise a dataset by a hash of its annotations, and detect changes of its source files."""

import hashlib
import os
from typing import Any

import numpy as np

from boxmend.data.dataset import Dataset
from boxmend.data.files import change_detection


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """Return the facts about a dataset that a run's folder records."""
    return {
        "images": len(dataset.images),
        "annotations": len(dataset),
        "label_names": list(dataset.label_names),
        "sha256": fingerprint(dataset),
    }


def fingerprint(dataset: Dataset) -> str:
    """Return a hash of what training uses: images, ids, labels, boxes and flags."""
    digest = hashlib.sha256()
    for values in (dataset.images.file_names, dataset.annotation_ids.tolist(), dataset.label_names):
        digest.update("\n".join(map(str, values)).encode("utf-8", "surrogatepass") + b"\0")
    for column in (dataset.image_rows, dataset.labels, dataset.boxes, dataset.is_ignored):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def ensure_unchanged(dataset: Dataset) -> None:
    """Raise a DataError if a file that the dataset was read from has other bytes now.

    Call it before the last step of writing results about the dataset. A source whose files are all
    gone is skipped: it was moved, removed, or never on disk, but not edited.
    """
    for source in dataset.sources:
        if any(os.path.exists(file.path) for file in source.read_files):
            change_detection.ensure_unchanged(source.read_files)
