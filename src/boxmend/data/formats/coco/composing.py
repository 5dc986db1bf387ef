"""COCO documents made anew, for datasets that were drawn or read from another format."""

from collections.abc import Iterator, Mapping
from posixpath import normpath
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, Dataset
from boxmend.data.formats.documents import Document, format_number
from boxmend.data.types import Ids
from boxmend.errors import DataError

NOTE_KEY = "boxmend"  # of what boxmend says of an annotation
LARGEST = 1e150  # of a coordinate: the area must be finite, too


def build_documents(dataset: Dataset) -> Iterator[Document]:
    """One file for each split; one for all where the dataset comes from several addresses."""
    if is_one_file(dataset):
        yield Document(joined_name(dataset), _document(dataset, np.arange(len(dataset.images))))
        return
    for split in dict.fromkeys(dataset.images.splits):
        rows = np.flatnonzero([one == split for one in dataset.images.splits])
        yield Document(f"instances_{split}.json", _document(dataset, rows))


def is_one_file(dataset: Dataset) -> bool:
    """Whether a dataset becomes a single COCO file."""
    groups = {source.group for source in dataset.sources}
    return len(groups) > 1 or len(set(dataset.images.splits)) <= 1


def joined_name(dataset: Dataset) -> str:
    """The file name of a dataset in one file: named after its splits."""
    splits = dict.fromkeys(dataset.images.splits) or {"all": None}
    return f"instances_{'+'.join(splits)}.json"


def file_names(dataset: Dataset) -> list[str]:
    """File names as the documents give them, relative to the folder of their images.

    Documents that are patched keep theirs. Where a document is new, or several become one, images
    that would share a name with another file are told apart by the name of their source.
    """
    images = dataset.images
    if _all_coco(dataset) and len({source.group for source in dataset.sources}) == 1:
        return images.file_names
    folders = [""] * len(images) if is_one_file(dataset) else images.splits
    keys = [
        (folder, normpath(name)) for folder, name in zip(folders, images.file_names, strict=True)
    ]
    if len(set(keys)) == len(keys):
        return images.file_names
    files = [normpath(path) if path else f"image {row}" for row, path in enumerate(images.paths)]
    holder = dict(zip(reversed(keys), reversed(files), strict=True))  # the first one keeps its name
    names = []
    for row, (folder, name) in enumerate(keys):
        source = dataset.sources[images.sources[row]].name if dataset.sources else "image"
        new, count = images.file_names[row], 1
        while holder.setdefault((folder, normpath(new)), files[row]) != files[row]:
            new = f"{source if count == 1 else f'{source}-{count}'}/{name}"
            count += 1
        names.append(new)
    return names


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """The ids to write: the dataset's own where they are integers, else numbers from one."""
    if dataset.annotation_ids.dtype != object or _all_coco(dataset):
        return dataset.annotation_ids
    return np.arange(1, len(dataset) + 1)


def _all_coco(dataset: Dataset) -> bool:
    return bool(dataset.sources) and all(source.format == "coco" for source in dataset.sources)


def _image_ids(dataset: Dataset) -> Ids:
    if dataset.images.ids.dtype != object:
        return dataset.images.ids
    return np.arange(1, len(dataset.images) + 1)


def _document(dataset: Dataset, images: NDArray[np.int64]) -> Iterator[bytes]:
    image_ids, names = _image_ids(dataset), file_names(dataset)
    is_here = np.zeros(len(dataset.images) + 1, np.bool_)  # the last for UNKNOWN: never here
    is_here[images] = True
    rows = np.flatnonzero(is_here[dataset.image_rows]).tolist()
    ensure_finite(dataset, np.array(rows, np.int64))
    yield b'{"images": [\n'
    yield b",\n".join(_image_entry(dataset, row, image_ids[row], names[row]) for row in images)
    yield b'\n], "annotations": [\n'
    attributes = _attributes(dataset, rows)
    ids = assign_annotation_ids(dataset)
    yield b",\n".join(
        annotation_entry(
            dataset,
            row,
            image_ids[dataset.image_rows[row]],
            int(dataset.labels[row]) + 1,
            {"id": plain_id(ids[row]), **more},
        )
        for row, more in zip(rows, attributes, strict=True)
    )
    yield b'\n], "categories": [\n'
    labels = enumerate(dataset.label_names, 1)
    yield b",\n".join(category_entry(identity, name) for identity, name in labels)
    yield b"\n]}\n"


def _attributes(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Difficult flags, notes, and what the sources tell of these annotations beyond the columns."""
    found: list[dict[str, Any]] = [{} for _ in rows]
    chosen = np.array(rows, np.int64)
    for index, source in enumerate(dataset.sources):
        mine = np.flatnonzero(
            (dataset.source_of[chosen] == index) & (dataset.source_rows[chosen] != ADDED)
        )
        told = source.attributes(dataset.source_rows[chosen[mine]])
        for k, values in zip(mine.tolist(), told, strict=True):
            found[k] = dict(values)
    for k, row in enumerate(rows):
        if dataset.is_difficult[row]:
            found[k]["difficult"] = 1
        found[k] |= noted(dataset, row)
    return found


def noted(dataset: Dataset, row: int) -> dict[str, Any]:
    """The note of an annotation by its key, or nothing where there is none."""
    note = dataset.notes.get(plain_id(dataset.annotation_ids[row]))
    return {NOTE_KEY: msgspec.Raw(spaced(note))} if note else {}


def _image_entry(dataset: Dataset, row: int, identity: Any, name: str) -> bytes:
    entry = {
        "id": plain_id(identity),
        "file_name": name,
        "width": int(dataset.images.widths[row]),
        "height": int(dataset.images.heights[row]),
    }
    return spaced(entry)


def annotation_entry(
    dataset: Dataset,
    row: int,
    image_id: Any,
    category_id: int | str,
    more: dict[str, Any] | None = None,
) -> bytes:
    """The entry of an annotation, from the columns."""
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    box = ", ".join(map(format_number, (x1, y1, x2 - x1, y2 - y1)))
    entry = {
        "id": plain_id(dataset.annotation_ids[row]),
        "image_id": plain_id(image_id),
        "category_id": category_id,
        "bbox": msgspec.Raw(f"[{box}]".encode()),
        "area": msgspec.Raw(format_number((x2 - x1) * (y2 - y1)).encode()),
        "iscrowd": int(dataset.is_crowd[row]),
    }
    return spaced({**entry, **(more or {})})


def category_entry(identity: int | str, name: str) -> bytes:
    """The entry of a category."""
    return spaced({"id": identity, "name": name})


def spaced(entry: Mapping[str, Any]) -> bytes:
    """An object on one line, with a space behind colons and commas, as `json.dump` writes it."""
    return b"{" + b", ".join(encoded(k) + b": " + encoded(v) for k, v in entry.items()) + b"}"


def encoded(value: object) -> bytes:
    """A value as JSON; raise a DataError where JSON has no way to write it."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{value!r} cannot be written: it is no valid Unicode; rename it"
        ) from error


def ensure_finite(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    """Raise a DataError where an annotation to be written has a box that is none."""
    is_box = (np.abs(dataset.boxes[rows]) < LARGEST).all(axis=1)  # not so for NaN
    if not is_box.all():
        row = int(rows[~is_box][0])
        raise DataError(
            f"{dataset.document(row) if dataset.sources else 'the dataset'}: annotation "
            f"{dataset.annotation_ids[row]}: its box {dataset.boxes[row].tolist()} is not four "
            "finite numbers; mend it or take it out first"
        )


def plain_id(identity: Any) -> int | str:
    """An id without numpy's type around it."""
    plain: int | str = identity.item() if isinstance(identity, np.generic) else identity
    return plain
