"""The manifest of a folder of folds: which image is in the test part of which fold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.digests import add_json_digest, verify_json
from boxmend.data.files.reading import read_record
from boxmend.errors import DataError, UsageError

FOLDS_FILE = "folds.json"
MAX_FOLDS = 1000


@dataclass(frozen=True, eq=False)
class FoldManifest:
    """The folds of a dataset's images."""

    path: Path  # the folder of folds
    k: int
    folds: NDArray[np.int64]  # [images] of the dataset; UNKNOWN for images in no fold
    data_sha256: str  # the fingerprint of the annotations that were split


def fold_folder(path: Path, fold: int) -> Path:
    """Return the folder of one fold."""
    return path / f"fold-{fold}"


def encode_manifest(
    folds: Mapping[str, int], k: int, seed: int, group_by: str | None, data_sha256: str
) -> bytes:
    """Return the content of a manifest; it does not depend on the time or the machine."""
    content = {
        "k": k,
        "seed": seed,
        "group_by": group_by,
        "data_sha256": data_sha256,
        "folds": dict(sorted(folds.items())),
    }
    return add_json_digest(json.dumps(content, indent=1).encode())


def read_manifest(path: str | Path, dataset: Dataset) -> FoldManifest:
    """Read the manifest of a folder of folds and match it to a dataset's images by file name.

    The annotations may have changed since the split: only the images count.
    """
    path = Path(path)
    content = _read_content(path / FOLDS_FILE)
    k, folds = content["k"], content["folds"]
    column = [folds.get(name, UNKNOWN) for name in dataset.images.file_names]
    if column and max(column) == UNKNOWN:
        example = next(iter(folds), "none")
        raise DataError(
            f"{path / FOLDS_FILE}: none of the {len(column):,} images of the data is in a fold; "
            f"the folds are of other images, such as {example}"
        )
    return FoldManifest(path, k, np.array(column, np.int64), content["data_sha256"])


def _read_content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(verify_json(file, read_record(file), "write the folds again"))
    except FileNotFoundError as error:
        raise UsageError(f"{file}: no such file; `boxmend folds` writes one") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read ({error}); write the folds again") from error
    if not isinstance(content, dict) or not _is_manifest(content):
        raise DataError(f"{file}: is no manifest of folds; write it again with `boxmend folds`")
    return content


def _is_manifest(content: dict[str, Any]) -> bool:
    k, folds = content.get("k"), content.get("folds")
    return (
        type(k) is int
        and 2 <= k <= MAX_FOLDS
        and isinstance(content.get("data_sha256"), str)
        and isinstance(folds, dict)
        and all(type(fold) is int and 0 <= fold < k for fold in folds.values())
    )
