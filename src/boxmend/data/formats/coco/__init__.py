"""COCO: `instances_*.json`; untouched bytes survive.

Boxes are [x, y, width, height] in the file. Ids, order, segmentation, unknown keys and the way
numbers are written stay as they are: writing replaces the values that changed in the source's
own bytes. Crowd flags are `iscrowd`; a `difficult` key, as conversions from VOC leave it, is
understood.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset, Images, as_ids, join
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.findings import Finding
from boxmend.data.formats.coco import composing, joining, patching
from boxmend.data.formats.coco.document import MisjudgedError, parse
from boxmend.data.formats.coco.entries import NO_ID, CategoryEntry, ImageEntry, Reader, rows_of
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import Document, pause_garbage_collector
from boxmend.data.formats.reading import ReadOptions, image_size, read_file
from boxmend.data.types import Ids
from boxmend.errors import UsageError

SPLIT_NAMES = ("train", "val", "valid", "test", "trainval")


def looks_like(path: Path) -> bool:
    """A .json file, or a folder that holds instances_*.json itself or under annotations/."""
    return bool(_files(path))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" else []
    for folder in (path, path / "annotations"):
        if found := sorted(folder.glob("instances_*.json"), key=_in_order_of_splits):
            return found
    return []


def _in_order_of_splits(path: Path) -> tuple[int, str]:
    split = _split(path)
    known = [rank for rank, name in enumerate(SPLIT_NAMES) if split.startswith(name)]
    return (known[0] if known else len(SPLIT_NAMES), path.name)


def _split(path: Path) -> str:
    stem = path.stem
    if stem.startswith("instances_"):
        return stem.removeprefix("instances_")
    return stem if stem in SPLIT_NAMES else "all"


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read a file, or of a folder one split, or all of them."""
    files = _files(path)
    if split is not None:
        chosen = [file for file in files if _split(file) == split]
        if not chosen:
            known = ", ".join(_split(file) for file in files)
            raise UsageError(f"{path}: there is no split {split!r}; there is {known}")
        files = chosen
    with pause_garbage_collector():
        return join([_read_file(file, options) for file in files])


def _read_file(path: Path, options: ReadOptions) -> Dataset:
    file = read_file(path)
    data = file.content or b""
    try:
        reader = Reader(parse(data, path), path)
        images, categories, columns = reader.contents()
    except MisjudgedError:
        reader = Reader(parse(data, path, exact=True), path)
        images, categories, columns = reader.contents()
    category_ids = as_ids([category.id for category in categories])
    image_ids = as_ids([image.id for image in images])
    labels = rows_of(columns.category_ids, category_ids)
    image_rows = rows_of(columns.image_ids, image_ids)
    source = CocoSource(
        format="coco",
        path=path,
        label_names=_label_names(categories),
        boxes=columns.boxes,
        labels=labels,
        data=data,
        category_ids=[category.id for category in categories],
        category_names=[category.name for category in categories],
        image_ids=image_ids,
        annotation_ids=columns.ids,
        is_crowd=columns.is_crowd,
        is_difficult=columns.is_difficult,
        spans=reader.parsed.spans,
        read_files=(file,),
    )
    unknown = _unknown_references(path, columns.ids, labels, columns.category_ids, "category")
    unknown += _unknown_references(path, columns.ids, image_rows, columns.image_ids, "image")
    n = len(columns.ids)
    return Dataset(
        images=_image_columns(images, image_ids, path, options),
        label_names=source.label_names,
        annotation_ids=columns.ids,
        image_rows=image_rows,
        labels=labels.copy(),
        boxes=columns.boxes.copy(),
        is_crowd=columns.is_crowd.copy(),
        is_difficult=columns.is_difficult.copy(),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(source,),
        findings=tuple(reader.findings + unknown),
    )


def _label_names(categories: list[CategoryEntry]) -> tuple[str, ...]:
    """Names in the order of the file; a name that two categories share gets the id behind it."""
    names: dict[str, None] = {}
    for category in categories:
        name, count = category.name, 1
        while name in names:
            name = f"{category.name} (category {category.id}{', again' * (count - 1)})"
            count += 1
        names[name] = None
    return tuple(names)


def _unknown_references(
    path: Path, ids: Ids, rows: NDArray[np.int64], references: Ids, what: str
) -> list[Finding]:
    unknown = np.flatnonzero(rows == UNKNOWN)
    ensure_within_limit("malformed_entries", len(unknown), path)
    pairs = zip(ids[unknown].tolist(), references[unknown].tolist(), strict=True)
    return [
        Finding(
            f"unknown-{what}",
            f"its {what}_id is {'missing or no id' if reference == NO_ID else repr(reference)}, "
            f"which is not among the {what} ids of the file",
            str(path),
            annotation_id=identity,
        )
        for identity, reference in pairs
    ]


def _image_columns(images: list[ImageEntry], ids: Ids, path: Path, options: ReadOptions) -> Images:
    n = len(images)
    folder = _image_folder(path, [image.file_name for image in images], options.images)
    names = [image.file_name or f"unsafe-{row}" for row, image in enumerate(images)]
    prefix = f"{folder}/"
    paths = [prefix + image.file_name if image.file_name else "" for image in images]
    sizes = np.zeros((n, 2), np.int64)
    sizes[:, 0] = _sane([image.width for image in images])
    sizes[:, 1] = _sane([image.height for image in images])
    for row in np.flatnonzero((sizes == 0).any(axis=1)).tolist():
        sizes[row] = (paths[row] and image_size(Path(paths[row]))) or (0, 0)
    return Images(
        ids=ids,
        file_names=names,
        paths=paths,
        splits=[_split(path)] * n,
        widths=sizes[:, 0],
        heights=sizes[:, 1],
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )


def _sane(sizes: list[int | None]) -> NDArray[np.int64]:
    """Recorded widths or heights, 0 where one is none that an image can have."""
    try:
        column = np.array(sizes, np.int64)
    except (TypeError, OverflowError):  # a null, or a number beyond all measure
        column = np.array([size if size and abs(size) < 2**31 else 0 for size in sizes], np.int64)
    return np.where((column > 0) & (column < 2**31), column, 0)


def _image_folder(path: Path, names: list[str], given: Path | None) -> Path:
    """The folder in which the images lie: the likeliest where none of them are found.

    Looked for around the COCO file, or in the folder that was given and its one for the split.
    """
    around, split = path.absolute().parent, _split(path)
    places = ("images", f"images/{split}", split, "")
    folders = [base / place for base in (around, around.parent) for place in places]
    if given is not None:
        folders = [given, given / split]
    sample = [name for name in names if name][:: len(names) // 8 + 1]
    for folder in folders:
        if any(os.path.isfile(folder / name) for name in sample):
            return folder
    return folders[0]


def list_losses(dataset: Dataset) -> list[str]:
    """What a COCO file cannot hold: what other formats have beyond columns and ATTRIBUTES."""
    if patching.is_coco(dataset):
        return joining.list_losses(dataset) if patching.is_joined(dataset) else []
    return [
        f"{count} x {what} ({source.path.name})"
        for source in dataset.sources
        for what, count in source.extras().items()
    ]


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """The sources patched, several addresses joined into one file; new files for other formats."""
    if not patching.is_coco(dataset):
        return composing.build_documents(dataset)
    if patching.is_joined(dataset):
        return joining.build_documents(dataset, segmentation)
    return patching.build_documents(dataset, segmentation)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """Under `images/`, by the file name that the document gives, and by split if there are any."""
    names = composing.file_names(dataset)
    if composing.is_one_file(dataset):
        return [f"images/{name}" for name in names]
    splits = dataset.images.splits
    return [f"images/{split}/{name}" for split, name in zip(splits, names, strict=True)]


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """The ids of the annotations: their own where they are COCO's, else numbers from one."""
    if patching.is_coco(dataset):
        return patching.assign_annotation_ids(dataset)
    return composing.assign_annotation_ids(dataset)
