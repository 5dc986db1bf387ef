"""Files of detections, and a catalogue to read them by."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.predictions.catalogue import Catalogue
from boxmend.data.dataset import Images, as_ids

GOOD: dict[str, Any] = {"image_id": 7, "category_id": 18, "bbox": [1, 2, 30, 40], "score": 0.5}


def images(names: Mapping[str, int | str]) -> Images:
    """Images by file name, with their ids."""
    n = len(names)
    return Images(
        ids=as_ids(list(names.values())),
        file_names=list(names),
        paths=[""] * n,
        splits=["all"] * n,
        widths=np.full(n, 100),
        heights=np.full(n, 100),
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )


def catalogue(
    names: Mapping[str, int | str] | None = None,
    labels: Mapping[int | str, int] | None = None,
    label_names: Sequence[str] = ("cat", "dog"),
) -> Catalogue:
    """Two images with ids 7 and 3, and classes cat (18) and dog (1), unless given."""
    return Catalogue(
        images({"a.jpg": 7, "b.jpg": 3} if names is None else names),
        label_names,
        {18: 0, 1: 1} if labels is None else labels,
    )


def written(folder: Path, content: Any) -> Path:
    """A file with this content: text and bytes as they are, anything else as JSON."""
    path = folder / "found.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path
