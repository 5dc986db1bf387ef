"""Locate predictions: files, folders of label files, and folders of folds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.label_folders import list_label_files, read_label_folder
from boxmend.auditing.predictions.raw import RawDetections
from boxmend.auditing.predictions.results import read_results
from boxmend.auditing.predictions.tables import read_table
from boxmend.data.dataset import Dataset
from boxmend.data.files.reading import open_file
from boxmend.data.folds import FOLDS_FILE, FoldManifest, fold_folder, read_manifest
from boxmend.errors import DataError, UsageError

JSON_ENDINGS = (".json",)
TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".pq")
PREDICTION_FOLDERS = ("labels", "predictions")
FOLD_NAME = re.compile(r"fold-(\d{1,4})")
EXPECTED = (
    "expected COCO results (.json), a table (.csv or .parquet), a folder of label files, or a "
    "folder that `boxmend folds` has written"
)


@dataclass(frozen=True)
class PredictionFile:
    """A file or a folder of label files, and its fold if it belongs to one."""

    path: Path
    fold: int | None = None


def locate_predictions(
    paths: Sequence[str | Path], dataset: Dataset
) -> tuple[list[PredictionFile], FoldManifest | None]:
    """Return the files to read, and the manifest of the folds if there is one."""
    if not paths:
        raise UsageError(f"no predictions given; {EXPECTED}")
    places: list[PredictionFile] = []
    manifests: dict[Path, FoldManifest] = {}
    for path in map(Path, paths):
        if not os.path.exists(path):
            raise UsageError(f"{path}: no such file or folder; check the path")
        folder, fold = _find_fold(path)
        if folder is not None and folder not in manifests:
            manifests[folder] = read_manifest(folder, dataset)
        if folder is not None and fold is None:
            places += _locate_folds(folder, manifests[folder])
        else:
            places += [PredictionFile(path, fold) for path in _locate_in(path)]
    seen: set[Path] = set()
    for place in places:
        if (real := Path(os.path.realpath(place.path))) in seen:
            raise UsageError(f"{place.path}: is given twice; name every file once")
        seen.add(real)
    if len(manifests) > 1:
        raise UsageError("the predictions are of several folders of folds; audit them one by one")
    return places, next(iter(manifests.values()), None)


def list_files(places: Sequence[PredictionFile]) -> Iterator[Path]:
    """Yield all files that reading these places opens."""
    for place in places:
        if place.path.is_dir():
            yield from (place.path / name for name in list_label_files(place.path))
        else:
            yield place.path


def read_located(place: PredictionFile) -> RawDetections:
    """Read one place without interpretation; all of it belongs to the fold of the place."""
    raw = _read(place.path)
    if place.fold is None:
        return raw
    return replace(raw, folds=np.full(len(raw), place.fold, np.int64))


def _read(path: Path) -> RawDetections:
    if path.is_dir():
        return read_label_folder(path)
    if not path.is_file():
        raise DataError(f"{path}: is not a regular file; {EXPECTED}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty; {EXPECTED}")
    if path.suffix.lower() in JSON_ENDINGS or _first_character(path) in (b"[", b"{"):
        return read_results(path)
    return read_table(path)


def _first_character(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _find_fold(path: Path) -> tuple[Path | None, int | None]:
    """Return the folder of folds that a path is, or that contains it, and the fold of the path."""
    if (path / FOLDS_FILE).is_file():
        return path, None
    around = Path(os.path.abspath(path))
    for folder in (around, *list(around.parents)[:2]):
        match = FOLD_NAME.fullmatch(folder.name)
        if match and (folder.parent / FOLDS_FILE).is_file():
            return folder.parent, int(match[1])
    return None, None


def _locate_folds(folder: Path, manifest: FoldManifest) -> list[PredictionFile]:
    """Return the predictions of all folds; raise a DataError if some are missing."""
    places = [
        PredictionFile(path, fold)
        for fold in range(manifest.k)
        for path in _list_predictions(fold_folder(folder, fold), named_only=True)
    ]
    missing_folds = sorted(
        set(range(manifest.k)) - {path.fold for path in places if path.fold is not None}
    )
    if missing_folds:
        missing = ", ".join(
            str(fold_folder(folder, path) / "predictions.json") for path in missing_folds[:3]
        )
        more = f" and {len(missing_folds) - 3} more" if len(missing_folds) > 3 else ""
        raise DataError(
            f"{folder}: {len(missing_folds)} of {manifest.k} folds have no predictions; expected "
            f"{missing}{more} (or .csv, .parquet, a folder labels/). README.md in that folder "
            "explains how to make them"
        )
    return places


def _locate_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if paths := list(_list_predictions(path, named_only=False)):
        return paths
    raise DataError(f"{path}: there are no predictions in this folder; {EXPECTED}")


def _list_predictions(folder: Path, *, named_only: bool) -> Iterator[Path]:
    """Yield the predictions in a folder: files called predictions*, else a folder of label files.

    With `named_only`, label files have to be in a subfolder `labels` or `predictions`.
    """
    endings = (*JSON_ENDINGS, *TABLE_ENDINGS)
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    files = [
        folder / name
        for name in names
        if name.startswith("predictions") and name.lower().endswith(endings)
    ]
    if files:
        yield from files
        return
    inside = [folder / name for name in PREDICTION_FOLDERS if (folder / name).is_dir()]
    for name in inside if named_only else [*inside, folder]:
        if any(True for _ in list_label_files(name)):
            yield name
            return
