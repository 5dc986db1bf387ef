"""What a run was made of and on: versions, hardware, and a fingerprint of its annotations."""

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from boxmend import __version__
from boxmend.dataset import Dataset


def gather(addresses: Sequence[str], dataset: Dataset, device: torch.device) -> dict[str, Any]:
    """The facts to save with a run; those under "data" must be the same to resume it."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "versions": {
            "boxmend": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "torchvision", "numpy")},
        },
        "device": str(device),
        "hardware": name or platform.machine(),
        "data": {
            "images": len(dataset.images),
            "annotations": len(dataset),
            "label_names": list(dataset.label_names),
            "sha256": fingerprint(dataset),
        },
        "addresses": list(addresses),
    }


def fingerprint(dataset: Dataset) -> str:
    """A hash of what training sees of the annotations: images, ids, labels, boxes and flags."""
    digest = hashlib.sha256()
    for text in (dataset.images.file_names, dataset.annotation_ids.tolist(), dataset.label_names):
        digest.update("\n".join(map(str, text)).encode("utf-8", "surrogatepass") + b"\0")
    for column in (dataset.image_rows, dataset.labels, dataset.boxes, dataset.is_ignored):
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
