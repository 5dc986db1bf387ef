"""Which images to look at: files, folders and datasets, with an id and a name for each."""

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


class _Found(NamedTuple):
    """The images of one argument."""

    ids: Ids | None  # None: they have none, and are numbered
    names: list[str]
    paths: list[str]


def gather(inputs: Sequence[str | Path]) -> Images:
    """List the images of files, folders and datasets, in the order given.

    Images of a dataset keep their ids and names. Others are numbered from 1, and named as they
    lie in the folder given, or by their path where that name is there twice.
    """
    if not inputs:
        raise UsageError("no images given; name image files, folders of them, or a dataset")
    found = [_found(str(one)) for one in inputs]
    names = [name for one in found for name in one.names]
    paths = [path for one in found for path in one.paths]
    if not paths:
        raise DataError(f"{inputs[0]}: holds no images ({', '.join(IMAGE_ENDINGS)})")
    counts = Counter(names)
    pairs = zip(names, paths, strict=True)
    n = len(paths)
    return Images(
        ids=_numbered(found),
        file_names=[Path(path).as_posix() if counts[name] > 1 else name for name, path in pairs],
        paths=paths,
        splits=["all"] * n,
        widths=np.zeros(n, np.int64),
        heights=np.zeros(n, np.int64),
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )


def _found(address: str) -> _Found:
    path, split = split_address(address)
    if split is not None or any(format.looks_like(path) for format in FORMATS.values()):
        images = read(address).images
        return _Found(images.ids, images.file_names, images.paths)
    if not os.path.isdir(path):
        return _Found(None, [path.name], [str(path)])
    paths = _files_in(path)
    return _Found(None, [one.relative_to(path).as_posix() for one in paths], [*map(str, paths)])


def _files_in(folder: Path) -> list[Path]:
    """Image files of a folder and of the folders in it, sorted; hidden ones are left out."""
    found = []
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(place, name)
            for name in sorted(names)
            if name.lower().endswith(IMAGE_ENDINGS) and not name.startswith(".")
        ]
    return found


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename}: cannot be searched ({error.strerror})") from error


def _numbered(found: Sequence[_Found]) -> Ids:
    """The ids of all images, numbers where there are none, without any twice."""
    columns, following = [], 1
    for one in found:
        ids = one.ids
        if ids is None:
            ids = as_ids(list(range(following, following + len(one.paths))))
            following += len(one.paths)
        columns.append(ids)
    apart = separate_ids(columns, [f"input-{k}" for k in range(1, len(found) + 1)])
    return as_ids([identity for column in apart for identity in column.tolist()])
