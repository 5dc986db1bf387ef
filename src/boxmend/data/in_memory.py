"""Make datasets from arrays, and choose parts of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.arguments import (
    Identity,
    refuse_rows,
    to_array,
    to_boxes,
    to_identities,
    to_identity,
    to_label_rows,
    to_labels,
    to_list,
    to_names,
)
from boxmend.data.dataset import ADDED, Dataset, Images, as_ids, list_first
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.images.reading import read_header_size
from boxmend.data.types import Mask, Rows
from boxmend.errors import DataError, UsageError


def build_dataset(
    image_ids: Any,
    boxes: Any,
    labels: Any,
    label_names: Sequence[str] | None,
    images: Mapping[Any, str | Path] | Sequence[str | Path] | None,
) -> Dataset:
    """Return a dataset of arrays; see `Dataset.from_arrays`."""
    box_column = to_boxes("boxes", boxes)
    number = len(box_column)
    identities = to_identities("image_ids", image_ids, number)
    label_column = to_labels("labels", labels, number)
    if label_names is None and not isinstance(label_column, list):
        raise UsageError("labels are indices, so label_names is needed; or give names as labels")
    names = to_names("label_names", label_column if label_names is None else label_names)
    paths = _list_images(identities, images)
    rows = {image_id: row for row, image_id in enumerate(paths)}
    image_rows = np.array([rows.get(identity, -1) for identity in identities], np.int64)
    refuse_rows("image_ids", image_rows < 0, identities, f"images has {_examples(list(paths))}")
    return Dataset(
        images=_build_images(paths),
        label_names=names,
        annotation_ids=np.arange(1, number + 1),
        image_rows=image_rows,
        labels=to_label_rows("labels", label_column, names),
        boxes=box_column,
        is_crowd=np.zeros(number, np.bool_),
        is_difficult=np.zeros(number, np.bool_),
        source_of=np.zeros(number, np.int64),
        source_rows=np.full(number, ADDED),
    )


def make_subset(
    dataset: Dataset,
    rows: Any,
    image_ids: Iterable[int | str] | None,
    label_names: Iterable[str] | None,
) -> Dataset:
    """Return a part of a dataset; see `Dataset.subset`."""
    is_kept = np.ones(len(dataset), np.bool_) if rows is None else _mark_rows(dataset, rows)
    if label_names is not None:
        names = to_list("label_names", label_names)
        labels = to_label_rows("label_names", [str(name) for name in names], dataset.label_names)
        is_kept &= np.isin(dataset.labels, labels)
    part = dataset.take(is_kept)
    if image_ids is None:
        return part
    return part.take_images(find_images(dataset, "image_ids", to_list("image_ids", image_ids)))


def find_images(dataset: Dataset, name: str, identities: Sequence[Any]) -> Rows:
    """Return the rows of images with these ids or file names; raise a DataError for others."""
    images = dataset.images
    by_name = {file_name: row for row, file_name in enumerate(images.file_names)}
    by_id = {identity: row for row, identity in enumerate(images.ids.tolist())}
    keys = [to_identity(identity) for identity in identities]
    found = [by_id.get(key, by_name.get(key, -1)) if _is_key(key) else -1 for key in keys]
    rows = np.array(found, np.int64)
    refuse_rows(name, rows < 0, keys, f"the dataset has {_examples(images.ids.tolist())}")
    return rows


def _mark_rows(dataset: Dataset, rows: Any) -> Mask:
    """Mark the annotations [n] that a mask or indices select."""
    selected = to_array("rows", rows)
    number = len(dataset)
    if selected.dtype == np.bool_ and selected.shape == (number,):
        return np.array(selected)
    if selected.ndim != 1 or (selected.size and selected.dtype.kind not in "iu"):
        raise UsageError(
            f"rows has type {selected.dtype} and shape {selected.shape}; expected indices, or a "
            f"mask of {number:,} annotations"
        )
    is_wrong = (selected < -number) | (selected >= number)
    refuse_rows("rows", is_wrong, selected, f"the dataset has {number:,} annotations")
    mask = np.zeros(number, np.bool_)
    mask[selected.astype(np.int64)] = True
    return mask


def _is_key(value: Any) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool)


def _list_images(
    identities: Sequence[Identity], images: Mapping[Any, str | Path] | Sequence[str | Path] | None
) -> dict[Identity, str]:
    """Return the path of each image by id; without a path of its own, an id is the path."""
    if images is None:
        return {identity: str(identity) for identity in dict.fromkeys(identities)}
    if isinstance(images, Mapping):
        keys = to_identities("images", list(images), len(images))
        return dict(zip(keys, (_to_path(images[key]) for key in images), strict=True))
    paths = [_to_path(path) for path in to_list("images", images)]
    return {path: path for path in paths}


def _to_path(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"images has {path!r}; expected the paths of image files")
    return os.fspath(path)


def _build_images(paths: Mapping[Identity, str]) -> Images:
    """Return images with file names relative to their common folder, and sizes from the files."""
    places = [os.path.abspath(path) for path in paths.values()]
    sizes = [read_header_size(place) or (0, 0) for place in places]
    number = len(places)
    widths, heights = np.array(sizes, np.int64).reshape(number, 2).T.copy()
    return Images(
        ids=as_ids(list(paths)),
        file_names=_relative_names(list(paths.values()), places),
        paths=places,
        splits=["all"] * number,
        widths=widths,
        heights=heights,
        sources=np.zeros(number, np.int64),
        rows=np.arange(number),
    )


def _relative_names(names: list[str], places: Sequence[str]) -> list[str]:
    """Return the given names if they are relative and distinct, else paths in a common folder."""
    if len(set(places)) < len(places):
        repeated = next(place for row, place in enumerate(places) if place in places[:row])
        raise DataError(f"images has {repeated} twice; name every file once")
    if all(is_safe_name(name) for name in names):
        return names
    folder = os.path.commonpath([os.path.dirname(place) for place in places])
    return [Path(os.path.relpath(place, folder)).as_posix() for place in places]


def _examples(identities: Sequence[Identity]) -> str:
    return f"{len(identities):,} images ({list_first([repr(each) for each in identities])})"
