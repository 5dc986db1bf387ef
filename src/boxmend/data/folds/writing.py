"""Writing folds: a pair of datasets for each, the manifest, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged, fingerprint
from boxmend.data.folds.guide import guide
from boxmend.data.folds.manifest import FOLDS_FILE, described, fold_folder
from boxmend.data.folds.splitting import FoldSettings, frames_advice, split
from boxmend.data.formats.writing import WriteOptions, native_format, write_into
from boxmend.data.progress import Progress
from boxmend.data.types import Rows

TRAIN, TEST = "train", "test"
GUIDE_FILE = "README.md"


@dataclass(frozen=True)
class Folds:
    """What was written."""

    out: Path
    format: str
    train: list[int]  # images of each fold's training part
    test: list[int]
    images_missing: int  # images that were not there to be linked or copied
    notes: list[str]


def write_folds(
    dataset: Dataset,
    out: Path,
    settings: FoldSettings,
    options: WriteOptions | None = None,
    progress: Progress = lambda done, total: None,
    addresses: Sequence[str] = (),
) -> Folds:
    """Write `out/fold-K/train` and `out/fold-K/test`, whole or not at all.

    `addresses` are those of the dataset, for the page that says how to go on.
    """
    options = options or WriteOptions()
    folds = split(dataset, settings)
    format = native_format(dataset)
    missing = np.zeros(settings.k, np.int64)
    with stage_folder(out, sync=options.sync) as folder:
        for fold in range(settings.k):
            for part, is_in in ((TRAIN, folds != fold), (TEST, folds == fold)):
                place = fold_folder(folder, fold) / part
                place.mkdir(parents=True)
                taken = _one_split(dataset.take_images(np.flatnonzero(is_in)), part, format)
                saved = write_into(place, taken, format, options, out=out)
                missing[fold] += saved.images_missing if part == TEST else 0
                progress(2 * fold + (part == TEST) + 1, 2 * settings.k)
        names = dict(zip(dataset.images.file_names, folds.tolist(), strict=True))
        manifest = described(
            names, settings.k, settings.seed, settings.group_by, fingerprint(dataset)
        )
        (folder / FOLDS_FILE).write_bytes(manifest)
        (folder / GUIDE_FILE).write_text(guide(settings.k, format, addresses), "utf-8")
        ensure_unchanged(dataset)
    test = np.bincount(folds, minlength=settings.k)
    return Folds(
        out=out,
        format=format,
        train=(len(folds) - test).tolist(),
        test=test.tolist(),
        images_missing=int(missing.sum()),
        notes=[*frames_advice(dataset, settings), *_unlearnt(dataset, folds)],
    )


def _one_split(part: Dataset, name: str, format: str) -> Dataset:
    """The images of a YOLO dataset under one split, so that a trainer sees all of them.

    Trainers use `train` alone, and score `val` alone. Where images of several splits have the same
    name, they stay apart.
    """
    if format != "yolo" or len(set(part.images.file_names)) < len(part.images):
        return part
    split = "train" if name == TRAIN else "val"
    return replace(part, images=replace(part.images, splits=[split] * len(part.images)))


def _unlearnt(dataset: Dataset, folds: Rows) -> list[str]:
    """What is said of classes that a training part does not have."""
    is_known = (dataset.labels != UNKNOWN) & (dataset.image_rows != UNKNOWN)
    pairs = np.unique(
        np.stack([dataset.labels[is_known], folds[dataset.image_rows[is_known]]], axis=1), axis=0
    )
    labels, counts = np.unique(pairs[:, 0], return_counts=True)
    alone = [dataset.label_names[label] for label in labels[counts == 1].tolist()]
    if not alone:
        return []
    more = f" and {len(alone) - 5} more" if len(alone) > 5 else ""
    return [
        f"in a single fold only, so that its detector learns them from nothing: "
        f"{', '.join(alone[:5])}{more}"
    ]
