"""A hash by which a run knows its annotations again."""

import hashlib
from typing import Any

import numpy as np

from boxmend.dataset import Dataset


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
