"""Write new COCO documents, for datasets that were drawn or read from another format."""

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

NOTE_KEY = "boxmend"  # of the note of an annotation
MAX_COORDINATE = 1e150  # the area must be finite, too


def build_documents(dataset: Dataset) -> Iterator[Document]:
    """Yield one file per split, or a single file if the dataset has several addresses."""
    if is_one_file(dataset):
        rows = np.arange(len(dataset.images))
        yield Document(joined_file_name(dataset), _encode_document(dataset, rows))
        return
    for split in dict.fromkeys(dataset.images.splits):
        rows = np.flatnonzero([image_split == split for image_split in dataset.images.splits])
        yield Document(f"instances_{split}.json", _encode_document(dataset, rows))


def is_one_file(dataset: Dataset) -> bool:
    """Return whether a dataset becomes a single COCO file."""
    groups = {source.group for source in dataset.sources}
    return len(groups) > 1 or len(set(dataset.images.splits)) <= 1


def joined_file_name(dataset: Dataset) -> str:
    """Return the name of the single file of a dataset, which lists its splits."""
    splits = dict.fromkeys(dataset.images.splits) or {"all": None}
    return f"instances_{'+'.join(splits)}.json"


def assign_file_names(dataset: Dataset) -> list[str]:
    """Return the file names to write, relative to the folder of the images.

    Patched documents keep their names. In a new or joined document, an image that would share its
    name with another file gets the name of its source as a prefix.
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
    holder = dict(
        zip(reversed(keys), reversed(files), strict=True)
    )  # the first image keeps its name
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
    """Return the ids to write: those of the dataset if they are integers, else numbers from 1."""
    if dataset.annotation_ids.dtype != object or _all_coco(dataset):
        return dataset.annotation_ids
    return np.arange(1, len(dataset) + 1)


def _all_coco(dataset: Dataset) -> bool:
    return bool(dataset.sources) and all(source.format == "coco" for source in dataset.sources)


def _assign_image_ids(dataset: Dataset) -> Ids:
    if dataset.images.ids.dtype != object:
        return dataset.images.ids
    return np.arange(1, len(dataset.images) + 1)


def _encode_document(dataset: Dataset, images: NDArray[np.int64]) -> Iterator[bytes]:
    image_ids, names = _assign_image_ids(dataset), assign_file_names(dataset)
    is_included = np.zeros(len(dataset.images) + 1, np.bool_)  # the last is for UNKNOWN
    is_included[images] = True
    rows = np.flatnonzero(is_included[dataset.image_rows]).tolist()
    ensure_finite(dataset, np.array(rows, np.int64))
    yield b'{"images": [\n'
    yield b",\n".join(_encode_image(dataset, row, image_ids[row], names[row]) for row in images)
    yield b'\n], "annotations": [\n'
    attributes = _collect_attributes(dataset, rows)
    ids = assign_annotation_ids(dataset)
    yield b",\n".join(
        encode_annotation(
            dataset,
            row,
            image_ids[dataset.image_rows[row]],
            int(dataset.labels[row]) + 1,
            {"id": to_plain_id(ids[row]), **more},
        )
        for row, more in zip(rows, attributes, strict=True)
    )
    yield b'\n], "categories": [\n'
    labels = enumerate(dataset.label_names, 1)
    yield b",\n".join(encode_category(identity, name) for identity, name in labels)
    yield b"\n]}\n"


def _collect_attributes(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Return difficult flags, notes and the sources' attributes of these annotations."""
    attributes: list[dict[str, Any]] = [{} for _ in rows]
    chosen = np.array(rows, np.int64)
    for index, source in enumerate(dataset.sources):
        is_from_source = dataset.source_of[chosen] == index
        positions = np.flatnonzero(is_from_source & (dataset.source_rows[chosen] != ADDED))
        source_values = source.attributes(dataset.source_rows[chosen[positions]])
        for k, values in zip(positions.tolist(), source_values, strict=True):
            attributes[k] = dict(values)
    for k, row in enumerate(rows):
        if dataset.is_difficult[row]:
            attributes[k]["difficult"] = 1
        attributes[k] |= make_note(dataset, row)
    return attributes


def make_note(dataset: Dataset, row: int) -> dict[str, Any]:
    """Return the note of an annotation under its key; an empty dict without a note."""
    note = dataset.notes.get(to_plain_id(dataset.annotation_ids[row]))
    return {NOTE_KEY: msgspec.Raw(encode_object(note))} if note else {}


def _encode_image(dataset: Dataset, row: int, identity: Any, name: str) -> bytes:
    entry = {
        "id": to_plain_id(identity),
        "file_name": name,
        "width": int(dataset.images.widths[row]),
        "height": int(dataset.images.heights[row]),
    }
    return encode_object(entry)


def encode_annotation(
    dataset: Dataset,
    row: int,
    image_id: Any,
    category_id: int | str,
    more: dict[str, Any] | None = None,
) -> bytes:
    """Return the entry of an annotation, from the columns."""
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    box = ", ".join(map(format_number, (x1, y1, x2 - x1, y2 - y1)))
    entry = {
        "id": to_plain_id(dataset.annotation_ids[row]),
        "image_id": to_plain_id(image_id),
        "category_id": category_id,
        "bbox": msgspec.Raw(f"[{box}]".encode()),
        "area": msgspec.Raw(format_number((x2 - x1) * (y2 - y1)).encode()),
        "iscrowd": int(dataset.is_crowd[row]),
    }
    return encode_object({**entry, **(more or {})})


def encode_category(identity: int | str, name: str) -> bytes:
    """Return the entry of a category."""
    return encode_object({"id": identity, "name": name})


def encode_object(entry: Mapping[str, Any]) -> bytes:
    """Return an object on one line, with spaces after colons and commas, as from `json.dump`."""
    return (
        b"{"
        + b", ".join(encode_value(k) + b": " + encode_value(v) for k, v in entry.items())
        + b"}"
    )


def encode_value(value: object) -> bytes:
    """Return a value as JSON; raise a DataError if it is not valid Unicode."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{value!r} cannot be written because it is not valid Unicode; rename it"
        ) from error


def ensure_finite(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    """Raise a DataError if the box of one of these annotations is not finite."""
    is_valid = (np.abs(dataset.boxes[rows]) < MAX_COORDINATE).all(axis=1)  # False for NaN
    if not is_valid.all():
        row = int(rows[~is_valid][0])
        raise DataError(
            f"{dataset.document(row) if dataset.sources else 'the dataset'}: annotation "
            f"{dataset.annotation_ids[row]}: its box {dataset.boxes[row].tolist()} is not four "
            "finite numbers; correct or remove the annotation"
        )


def to_plain_id(identity: Any) -> int | str:
    """Return an id as a plain Python value."""
    plain: int | str = identity.item() if isinstance(identity, np.generic) else identity
    return plain
