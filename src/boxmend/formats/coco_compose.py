"""COCO documents made anew, for datasets that were drawn or read from another format."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.dataset import ADDED, Dataset, Ids, document_order
from boxmend.formats.documents import Document, number


def documents(dataset: Dataset) -> Iterator[Document]:
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


def unique_file_names(dataset: Dataset) -> list[str]:
    """File names of the images, told apart by split or source where several have the same."""
    images = dataset.images
    names = images.file_names
    if len({source.group for source in dataset.sources}) <= 1 and len(set(images.splits)) > 1:
        return [f"{split}/{name}" for split, name in zip(images.splits, names, strict=True)]
    if len(set(names)) == len(names):
        return names
    seen: set[str] = set()
    unique = []
    for row, name in enumerate(names):
        source = dataset.sources[images.sources[row]].name if dataset.sources else "image"
        count = 1
        new = name
        while new in seen:
            folder = source if count == 1 else f"{source}-{count}"
            new, count = f"{folder}/{name}", count + 1
        seen.add(new)
        unique.append(new)
    return unique


def annotation_ids(dataset: Dataset) -> Ids:
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
    image_ids, names = _image_ids(dataset), _relative_names(dataset)
    yield b'{"images": [\n'
    yield b",\n".join(_image_entry(dataset, row, image_ids[row], names[row]) for row in images)
    yield b'\n], "annotations": [\n'
    is_here = np.zeros(len(dataset.images) + 1, np.bool_)
    is_here[images] = True
    rows = [row for row in document_order(dataset).tolist() if is_here[dataset.image_rows[row]]]
    rows.sort()
    attributes = _attributes(dataset, rows)
    ids = annotation_ids(dataset)
    yield b",\n".join(
        annotation_entry(
            dataset,
            row,
            image_ids[dataset.image_rows[row]],
            int(dataset.labels[row]) + 1,
            {"id": ids[row].item(), **more},
        )
        for row, more in zip(rows, attributes, strict=True)
    )
    yield b'\n], "categories": [\n'
    labels = enumerate(dataset.label_names, 1)
    yield b",\n".join(category_entry(identity, name) for identity, name in labels)
    yield b"\n]}\n"


def _relative_names(dataset: Dataset) -> list[str]:
    """What `file_name` says: without the folder of the split, which a reader finds by itself."""
    one_file = is_one_file(dataset)
    return unique_file_names(dataset) if one_file else dataset.images.file_names


def _attributes(dataset: Dataset, rows: list[int]) -> list[dict[str, Any]]:
    """Difficult flags and what the sources tell of these annotations beyond the columns."""
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
    return found


def _image_entry(dataset: Dataset, row: int, identity: Any, name: str) -> bytes:
    entry = {
        "id": identity.item(),
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
    box = ", ".join(map(number, (x1, y1, x2 - x1, y2 - y1)))
    entry = {
        "id": _plain(dataset.annotation_ids[row]),
        "image_id": _plain(image_id),
        "category_id": category_id,
        "bbox": msgspec.Raw(f"[{box}]".encode()),
        "area": msgspec.Raw(number((x2 - x1) * (y2 - y1)).encode()),
        "iscrowd": int(dataset.is_crowd[row]),
    }
    return spaced({**entry, **(more or {})})


def category_entry(identity: int | str, name: str) -> bytes:
    """The entry of a category."""
    return spaced({"id": identity, "name": name})


def spaced(entry: dict[str, Any]) -> bytes:
    """An object on one line, with a space behind colons and commas, as `json.dump` writes it."""
    texts = [msgspec.json.encode(k) + b": " + msgspec.json.encode(v) for k, v in entry.items()]
    return b"{" + b", ".join(texts) + b"}"


def _plain(identity: Any) -> int | str:
    plain: int | str = identity.item() if isinstance(identity, np.generic) else identity
    return plain
