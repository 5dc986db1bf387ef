"""Join several datasets into one: labels by name, and ids made unique."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset, Images, as_ids
from boxmend.data.findings import Finding
from boxmend.data.types import Ids


def join(datasets: Sequence[Dataset]) -> Dataset:
    """Join datasets into one; equal label names become one label, and ids become unique.

    The first dataset keeps its ids. If ids of a later dataset collide with earlier ones, all its
    ids change: integers move by a power of ten, other ids get the name of their source as prefix.
    """
    if len(datasets) == 1:
        return datasets[0]
    label_names = tuple(dict.fromkeys(name for dataset in datasets for name in dataset.label_names))
    names = [dataset.sources[0].name if dataset.sources else "added" for dataset in datasets]
    annotation_ids = separate_ids([dataset.annotation_ids for dataset in datasets], names)
    first_image = np.cumsum([0] + [len(dataset.images) for dataset in datasets])
    first_source = np.cumsum([0] + [len(dataset.sources) for dataset in datasets])
    image_rows = [
        np.where(dataset.image_rows == UNKNOWN, UNKNOWN, dataset.image_rows + first)
        for dataset, first in zip(datasets, first_image, strict=False)
    ]
    source_of = [
        dataset.source_of + first for dataset, first in zip(datasets, first_source, strict=False)
    ]
    return Dataset(
        images=_join_images(datasets, names, first_source),
        label_names=label_names,
        annotation_ids=_concatenate_ids(annotation_ids),
        image_rows=np.concatenate(image_rows),
        labels=np.concatenate([_renumber_labels(dataset, label_names) for dataset in datasets]),
        boxes=np.concatenate([dataset.boxes for dataset in datasets]),
        is_crowd=np.concatenate([dataset.is_crowd for dataset in datasets]),
        is_difficult=np.concatenate([dataset.is_difficult for dataset in datasets]),
        source_of=np.concatenate(source_of),
        source_rows=np.concatenate([dataset.source_rows for dataset in datasets]),
        sources=tuple(source for dataset in datasets for source in dataset.sources),
        notes={
            new: dataset.notes[old]
            for dataset, ids in zip(datasets, annotation_ids, strict=True)
            for old, new in zip(dataset.annotation_ids.tolist(), ids.tolist(), strict=True)
            if old in dataset.notes
        },
        findings=tuple(
            finding
            for dataset, ids in zip(datasets, annotation_ids, strict=True)
            for finding in _renumber_findings(dataset, ids)
        ),
    )


def _join_images(
    datasets: Sequence[Dataset], names: Sequence[str], first_source: NDArray[np.int64]
) -> Images:
    tables = [dataset.images for dataset in datasets]
    sources = [images.sources + first for images, first in zip(tables, first_source, strict=False)]
    return Images(
        ids=_concatenate_ids(separate_ids([images.ids for images in tables], names)),
        file_names=[name for images in tables for name in images.file_names],
        paths=[path for images in tables for path in images.paths],
        splits=[split for images in tables for split in images.splits],
        widths=np.concatenate([images.widths for images in tables]),
        heights=np.concatenate([images.heights for images in tables]),
        sources=np.concatenate(sources),
        rows=np.concatenate([images.rows for images in tables]),
    )


def _renumber_findings(dataset: Dataset, ids: Ids) -> Iterator[Finding]:
    """Yield the findings of a dataset with the new ids of its annotations."""
    if not dataset.findings or ids is dataset.annotation_ids:
        yield from dataset.findings
        return
    new = dict(zip(dataset.annotation_ids.tolist(), ids.tolist(), strict=True))
    for finding in dataset.findings:
        yield replace(finding, annotation_id=new.get(finding.annotation_id, finding.annotation_id))


def _renumber_labels(dataset: Dataset, label_names: tuple[str, ...]) -> NDArray[np.int64]:
    label_of = {name: label for label, name in enumerate(label_names)}
    new = [label_of[name] for name in dataset.label_names]
    return np.array([*new, UNKNOWN], np.int64)[dataset.labels]  # UNKNOWN picks the last


def separate_ids(columns: Sequence[Ids], names: Sequence[str]) -> list[Ids]:
    """Return columns of ids without collisions: a colliding column is changed as a whole.

    `names` are the names of the sources, which become prefixes of ids that are not integers.
    """
    unique: list[Ids] = []
    for column, name in zip(columns, names, strict=True):
        before = _concatenate_ids(unique) if unique else as_ids([])
        changed, attempt = column, 0
        while _collide(before, changed):
            attempt += 1
            changed = _change_ids(column, before, name, attempt)
        unique.append(changed)
    return unique


def _collide(before: Ids, column: Ids) -> bool:
    if before.dtype != object and column.dtype != object:
        return len(np.intersect1d(before, column)) > 0
    return not set(before.tolist()).isdisjoint(column.tolist())


def _change_ids(column: Ids, before: Ids, name: str, attempt: int) -> Ids:
    """Return ids moved by a power of ten above all others, or prefixed with the source's name.

    Each attempt moves farther, because negative integers may collide after the first one.
    """
    largest = max(_find_largest(before), _find_largest(column))
    shift = 10 ** (len(str(largest)) + attempt - 1)
    if column.dtype != object and shift < 2**62:
        shifted: Ids = column + shift
        return shifted
    ids, prefix = column.tolist(), name if attempt == 1 else f"{name}-{attempt}"
    return as_ids(
        [
            identity + shift if isinstance(identity, int) else f"{prefix}/{identity}"
            for identity in ids
        ]
    )


def _find_largest(ids: Ids) -> int:
    """Return the largest absolute value among the integers of a column."""
    if ids.dtype != object:
        return max(int(ids.max(initial=0)), -int(ids.min(initial=0)))
    return max((abs(identity) for identity in ids if isinstance(identity, int)), default=0)


def _concatenate_ids(columns: Sequence[Ids]) -> Ids:
    return np.concatenate([column for column in columns if len(column)] or [columns[0]])
