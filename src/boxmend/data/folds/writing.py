"""Write folds: a pair of datasets per fold, the manifest, and a guide to the next steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged, fingerprint
from boxmend.data.folds.guide import compose_guide
from boxmend.data.folds.manifest import FOLDS_FILE, encode_manifest, fold_folder
from boxmend.data.folds.splitting import FoldSettings, advise_grouping, assign_folds
from boxmend.data.formats.writing import WriteOptions, native_format, write_into
from boxmend.data.progress import Progress
from boxmend.data.types import Rows

TRAIN, TEST = "train", "test"
GUIDE_FILE = "README.md"


@dataclass(frozen=True)
class Folds:
    """The folds that `write_folds` wrote."""

    out: Path
    format: str
    train: list[int]  # number of images in each fold's training part
    test: list[int]
    images_missing: int  # image files that could not be linked or copied because they are missing
    notes: list[str]


def write_folds(
    dataset: Dataset,
    out: Path,
    settings: FoldSettings,
    options: WriteOptions | None = None,
    progress: Progress = lambda done, total: None,
    addresses: Sequence[str] = (),
) -> Folds:
    """Write `out/fold-K/train` and `out/fold-K/test`, completely or not at all.

    `addresses` are those of the dataset; the guide quotes them.
    """
    options = options or WriteOptions()
    folds = assign_folds(dataset, settings)
    format = native_format(dataset)
    missing = np.zeros(settings.k, np.int64)
    with stage_folder(out, sync=options.sync) as folder:
        for fold in range(settings.k):
            for part, is_in in ((TRAIN, folds != fold), (TEST, folds == fold)):
                part_folder = fold_folder(folder, fold) / part
                part_folder.mkdir(parents=True)
                part_images = dataset.take_images(np.flatnonzero(is_in))
                part_dataset = _merge_splits(part_images, part, format)
                saved = write_into(part_folder, part_dataset, format, options, out=out)
                missing[fold] += saved.images_missing if part == TEST else 0
                progress(2 * fold + (part == TEST) + 1, 2 * settings.k)
        names = dict(zip(dataset.images.file_names, folds.tolist(), strict=True))
        manifest = encode_manifest(
            names, settings.k, settings.seed, settings.group_by, fingerprint(dataset)
        )
        (folder / FOLDS_FILE).write_bytes(manifest)
        (folder / GUIDE_FILE).write_text(compose_guide(settings.k, format, addresses), "utf-8")
        ensure_unchanged(dataset)
    test = np.bincount(folds, minlength=settings.k)
    return Folds(
        out=out,
        format=format,
        train=(len(folds) - test).tolist(),
        test=test.tolist(),
        images_missing=int(missing.sum()),
        notes=[*advise_grouping(dataset, settings), *_warn_about_single_folds(dataset, folds)],
    )


def _merge_splits(part: Dataset, name: str, format: str) -> Dataset:
    """Return a part of a YOLO dataset with all images in one split, so that a trainer sees them.

    Trainers use only `train` and score only `val`. If images of several splits share a name, the
    part stays as it is.
    """
    if format != "yolo" or len(set(part.images.file_names)) < len(part.images):
        return part
    split = "train" if name == TRAIN else "val"
    return replace(part, images=replace(part.images, splits=[split] * len(part.images)))


def _warn_about_single_folds(dataset: Dataset, folds: Rows) -> list[str]:
    """Return a warning if a training part lacks a class of its test part."""
    is_known = (dataset.labels != UNKNOWN) & (dataset.image_rows != UNKNOWN)
    pairs = np.unique(
        np.stack([dataset.labels[is_known], folds[dataset.image_rows[is_known]]], axis=1), axis=0
    )
    labels, counts = np.unique(pairs[:, 0], return_counts=True)
    names = [dataset.label_names[label] for label in labels[counts == 1].tolist()]
    if not names:
        return []
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [
        f"classes in a single fold, which the detector of that fold never sees in training: "
        f"{', '.join(names[:5])}{more}"
    ]
