"""The images to predict on: files, folders and datasets, with an id and a name for each."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from boxmend.data.dataset import Images, as_ids
from boxmend.data.formats import FORMATS, read, split_address
from boxmend.data.formats.reading import IMAGE_ENDINGS
from boxmend.data.joining import separate_ids
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError


class _InputImages(NamedTuple):
    """The images of one argument."""

    ids: Ids | None  # None: the images are numbered
    names: list[str]
    paths: list[str]


def gather_images(inputs: Sequence[str | Path]) -> Images:
    """List the images of files, folders and datasets, in the order of the arguments.

    Images of a dataset keep their ids and names. Others are numbered from 1, and their name is the
    path relative to the given folder, or the whole path if that name occurs twice.
    """
    if not inputs:
        raise UsageError("no images given; name image files, folders of images, or a dataset")
    groups = [_list_images(str(address)) for address in inputs]
    names = [name for group in groups for name in group.names]
    paths = [path for group in groups for path in group.paths]
    if not paths:
        raise DataError(f"{inputs[0]}: contains no images ({', '.join(IMAGE_ENDINGS)})")
    counts = Counter(names)
    pairs = zip(names, paths, strict=True)
    n = len(paths)
    return Images(
        ids=_assign_ids(groups),
        file_names=[Path(path).as_posix() if counts[name] > 1 else name for name, path in pairs],
        paths=paths,
        splits=["all"] * n,
        widths=np.zeros(n, np.int64),
        heights=np.zeros(n, np.int64),
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )


def _list_images(address: str) -> _InputImages:
    path, split = split_address(address)
    if split is not None or any(format.looks_like(path) for format in FORMATS.values()):
        images = read(address).images
        return _InputImages(images.ids, images.file_names, images.paths)
    if not os.path.isdir(path):
        return _InputImages(None, [path.name], [str(path)])
    paths = _list_files(path)
    names = [file.relative_to(path).as_posix() for file in paths]
    return _InputImages(None, names, [*map(str, paths)])


def _list_files(folder: Path) -> list[Path]:
    """List the image files in a folder and its subfolders, sorted, without hidden ones."""
    files = []
    for parent, folders, names in os.walk(folder, onerror=_raise_data_error):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            Path(parent, name)
            for name in sorted(names)
            if name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")
        ]
    return files


def _raise_data_error(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be searched ({error.strerror})") from error


def _assign_ids(groups: Sequence[_InputImages]) -> Ids:
    """Return a unique id for every image: its own, or a number."""
    columns, next_number = [], 1
    for group in groups:
        ids = group.ids
        if ids is None:
            ids = as_ids(list(range(next_number, next_number + len(group.paths))))
            next_number += len(group.paths)
        columns.append(ids)
    unique = separate_ids(columns, [f"input-{k}" for k in range(1, len(groups) + 1)])
    return as_ids([identity for column in unique for identity in column.tolist()])
