"""Read the dataset that an Ultralytics training trains on."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ultralytics.data.utils import check_det_dataset

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.yolo.data_yaml import read_yaml
from boxmend.errors import DataError


def read_training_split(data: str | Path, resolved: Mapping[str, Any] | None = None) -> Dataset:
    """Return the training split of a data.yaml.

    `resolved` is what Ultralytics reads from it, by default after asking. Ultralytics resolves a
    relative `path` from the working folder or from its folder of datasets, boxmend from the
    data.yaml. Raise a DataError that says what to write if only Ultralytics finds the images.
    """
    try:
        return load(f"{data}:train")
    except DataError as error:
        resolved = _resolve(data) if resolved is None else resolved
        if not _is_elsewhere(data, resolved):
            raise
        raise DataError(
            f"{data}: Ultralytics reads the training images from {resolved['train']}, but boxmend "
            "does not find them, since it resolves `path` from the folder of the data.yaml. Write "
            f"the whole path into the data.yaml: `path: {resolved['path']}`"
        ) from error


def _resolve(data: str | Path) -> Mapping[str, Any]:
    """Return the paths that Ultralytics reads from a data.yaml; empty if it cannot read it."""
    try:
        resolved: Mapping[str, Any] = check_det_dataset(str(data), autodownload=False)
    except Exception:  # boxmend's own error says more
        return {}
    return resolved


def _is_elsewhere(data: str | Path, resolved: Mapping[str, Any]) -> bool:
    """Return whether Ultralytics reads existing images outside the folder that boxmend looks in."""
    places = resolved.get("train") or ()
    places = [places] if isinstance(places, str) else list(places)
    if not places or not all(os.path.exists(place) for place in places):
        return False
    written = read_yaml(Path(data)).root
    return Path(resolved["path"]).resolve() != (Path(data).parent / (written or "")).resolve()
