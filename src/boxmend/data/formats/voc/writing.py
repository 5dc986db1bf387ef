"""Writing VOC: a folder that was VOC is patched; anything else becomes new documents."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, Note, make_position_ids, sort_by_document
from boxmend.data.formats.documents import Document, format_number
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.formats.voc.edits import TABS, ObjectChanges, Values, edits, object_text
from boxmend.data.formats.voc.scanning import (
    DIFFICULT,
    NAME,
    OCCLUDED,
    POSE,
    SPACE,
    TRUNCATED,
    XMIN,
    VocXml,
    escape_xml,
    is_writable,
)
from boxmend.data.formats.voc.source import VocSource, entries
from boxmend.data.types import Ids
from boxmend.errors import DataError

_OFFSETS = (1, 1, 0, 0)  # what VOC adds to x1, y1, x2, y2


def list_losses(dataset: Dataset) -> list[str]:
    """What VOC cannot hold of a dataset: crowd flags, and extras of documents written anew."""
    counts: Counter[str] = Counter()
    for images, source in _folders(dataset):
        if source is None and dataset.sources:
            for used in np.unique(dataset.images.sources[images]).tolist():
                counts.update(dataset.sources[used].extras())
    phrases = [f"{count:,} x {what}" for what, count in counts.items() if count]
    if crowds := int(dataset.is_crowd.sum()):
        phrases.insert(0, f"{crowds:,} crowd flags (iscrowd)")
    if padded := [name for name in dataset.label_names if name != name.strip(SPACE)]:
        phrases.append(f"white space around {len(padded):,} label names, such as {padded[0]!r}")
    return phrases


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """The files of a dataset: its XML documents, then its lists; VOC knows no segmentation."""
    folders = _folders(dataset)
    source = folders[0][1] if len(folders) == 1 else None
    if source is not None:
        return _patched(dataset, source)
    return _composed(dataset)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """Where each image goes: into JPEGImages, under its own name."""
    return [f"JPEGImages/{name}" for name in dataset.images.file_names]


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """Ids by position in the document; a document written anew is named after its image."""
    ids = dataset.images.ids.astype(object)
    for images, source in _folders(dataset):
        if source is None:
            ids[images] = _stems([dataset.images.file_names[row] for row in images])
    return make_position_ids(replace(dataset, images=replace(dataset.images, ids=ids)))


def _folders(dataset: Dataset) -> list[tuple[NDArray[np.int64], VocSource | None]]:
    """The images that go into one folder, with the VOC source they all come from, if so."""
    groups = np.array([source.group for source in dataset.sources], np.int64)
    if not len(groups):
        return [(np.arange(len(dataset.images)), None)]
    if not len(dataset.images):
        only = dataset.sources[0] if len(groups) == 1 else None
        return [(np.arange(0), only if isinstance(only, VocSource) else None)]
    of_image = groups[dataset.images.sources]
    folders = []
    for group in np.unique(of_image).tolist():
        images = np.flatnonzero(of_image == group)
        used = set(dataset.images.sources[images].tolist())
        source = dataset.sources[used.pop()] if len(used) == 1 else None
        folders.append((images, source if isinstance(source, VocSource) else None))
    return folders


# Patching


def _patched(dataset: Dataset, source: VocSource) -> Iterator[Document]:
    """The source's documents and lists, with only that changed which the dataset has changed."""
    changes = _changes(dataset, source)
    for row in dataset.images.rows.tolist():
        file = source.files[row]
        path = f"Annotations/{source.ids[row]}.xml"
        if isinstance(file, VocXml):
            made = edits(file, changes[row]) if row in changes else []
            yield Document(path, file.patched(made))
        elif file is None:
            raise DataError(f"{source.document(row)}: was not read, so it cannot be written")
        elif row in changes:
            raise DataError(f"{source.document(row)}: is no VOC document; nothing can be added")
        else:
            yield Document(path, [file])
    yield from _lists(dataset, source)


def _changes(dataset: Dataset, source: VocSource) -> dict[int, ObjectChanges]:
    """What differs from the source, by the row of the image in there."""
    changes: dict[int, ObjectChanges] = defaultdict(lambda: ObjectChanges({}, set(), []))
    kept = np.flatnonzero(dataset.source_rows != ADDED)
    rows = dataset.source_rows[kept]
    files, positions = source.places(rows)
    image_rows = dataset.images.rows
    if len(np.unique(rows)) != len(rows) or (image_rows[dataset.image_rows[kept]] != files).any():
        raise ValueError("a row of a source can stand once, in its own image; add what is new")

    for k, column, text in _new_values(dataset, source, kept):
        changes[int(files[k])].changed.setdefault(int(positions[k]), {})[column] = text
    if dataset.notes:
        for k, row in enumerate(kept.tolist()):
            if note := _note(dataset, row):
                changes[int(files[k])].notes[int(positions[k])] = note

    is_gone = np.ones(len(source.labels), np.bool_)
    is_gone[rows] = False
    gone_files, gone_positions = source.places(np.flatnonzero(is_gone))
    for file, position in zip(gone_files.tolist(), gone_positions.tolist(), strict=True):
        changes[file].removed.add(position)

    for row in np.flatnonzero(dataset.source_rows == ADDED).tolist():
        file = int(image_rows[int(dataset.image_rows[row])])
        if note := _note(dataset, row):
            old = int(source.first_rows[file + 1] - source.first_rows[file])
            changes[file].notes[old + len(changes[file].added)] = note
        changes[file].added.append(_values(dataset, row, {}))
    return changes


def _new_values(
    dataset: Dataset, source: VocSource, kept: NDArray[np.int64]
) -> Iterator[tuple[int, int, str]]:
    """What the kept annotations say now and did not before: (index into kept, column, text)."""
    rows = dataset.source_rows[kept]
    names = np.array([*dataset.label_names, None], object)[dataset.labels[kept]]
    old_names = np.array([*source.label_names, None], object)[source.labels[rows]]
    for k in np.flatnonzero(names != old_names).tolist():
        yield k, NAME, _name(dataset, int(kept[k]))

    is_difficult = dataset.is_difficult[kept]
    for k in np.flatnonzero(is_difficult != source.is_difficult[rows]).tolist():
        yield k, DIFFICULT, str(int(is_difficult[k]))

    boxes, old_boxes = dataset.boxes[kept], source.boxes[rows]
    differs = (boxes != old_boxes) & ~(np.isnan(boxes) & np.isnan(old_boxes))
    for k, side in np.argwhere(differs).tolist():
        text = _coordinate(dataset, int(kept[k]), side)
        old = float(old_boxes[k, side])
        # a difference that rounding swallows is none
        if math.isnan(old) or text != format_number(old + _OFFSETS[side]):
            yield k, XMIN + side, text


def _lists(dataset: Dataset, source: VocSource) -> Iterator[Document]:
    """The source's lists less the images that were taken away; new ones where it had none."""
    if not source.lists:
        ids = [source.ids[row] for row in dataset.images.rows.tolist()]
        yield from _split_lists(ids, dataset.images.splits)
        return
    known = set(source.ids)
    gone = known - {source.ids[row] for row in dataset.images.rows.tolist()}
    for name, content in source.lists.items():
        if gone:
            named = (next(entries(line, known), None) for line in content.splitlines(True))
            lines = zip(content.splitlines(True), named, strict=True)
            content = b"".join(line for line, entry in lines if not entry or entry[1] not in gone)
        yield Document(f"ImageSets/Main/{name}.txt", [content])


# Composing


def _composed(dataset: Dataset) -> Iterator[Document]:
    """New documents and lists from the columns alone."""
    if (dataset.image_rows == UNKNOWN).any():
        row = int(np.flatnonzero(dataset.image_rows == UNKNOWN)[0])
        raise DataError(f"{_named(dataset, row)} belongs to no image; take it out first")
    attributes = _attributes(dataset)
    order = sort_by_document(dataset)
    ends = np.searchsorted(dataset.image_rows[order], np.arange(len(dataset.images) + 1))
    stems = _stems(dataset.images.file_names)
    for image, stem in enumerate(stems):
        objects = [
            object_text(_values(dataset, row, attributes.get(row, {})), TABS, _note(dataset, row))
            for row in order[ends[image] : ends[image + 1]].tolist()
        ]
        yield Document(f"Annotations/{stem}.xml", [_document(dataset, image, objects).encode()])
    yield from _split_lists(stems, dataset.images.splits)


def _document(dataset: Dataset, image: int, objects: list[str]) -> str:
    images = dataset.images
    file_name = images.file_names[image]
    if not is_writable(file_name):
        raise DataError(f"image {file_name!r}: XML cannot hold this name; rename the file")
    return (
        "<annotation>\n\t<folder>JPEGImages</folder>\n"
        f"\t<filename>{escape_xml(file_name)}</filename>\n"
        f"\t<size>\n\t\t<width>{images.widths[image]}</width>\n"
        f"\t\t<height>{images.heights[image]}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        "\t<segmented>0</segmented>"
        f"{''.join(TABS.object + text for text in objects)}\n</annotation>\n"
    )


def _attributes(dataset: Dataset) -> dict[int, dict[str, Any]]:
    """Attributes of the annotations that have any, by row."""
    found: dict[int, dict[str, Any]] = {}
    for index, source in enumerate(dataset.sources):
        rows = np.flatnonzero((dataset.source_of == index) & (dataset.source_rows != ADDED))
        told = source.attributes(dataset.source_rows[rows])
        found.update((row, one) for row, one in zip(rows.tolist(), told, strict=True) if one)
    return found


def _stems(file_names: list[str]) -> list[str]:
    """Names for the documents of images: without their ending, unless another has the same."""
    stems = [_stem(name) for name in file_names]
    shared = Counter(stems)
    used: set[str] = set()
    unique = []
    for stem, file_name in zip(stems, file_names, strict=True):
        base = name = stem if shared[stem] == 1 else file_name
        count = 1
        while name in used:
            count += 1
            name = f"{base}-{count}"
        used.add(name)
        unique.append(name)
    return unique


def _stem(file_name: str) -> str:
    path = PurePosixPath(file_name)
    if not path.name:
        raise DataError(f"image {file_name!r}: is no name of a file, which VOC needs; rename it")
    return str(path.with_suffix(""))


def _split_lists(ids: list[str], splits: list[str]) -> Iterator[Document]:
    """One list per split, in the order of the images."""
    lists: dict[str, list[str]] = defaultdict(list)
    for id, split in zip(ids, splits, strict=True):
        if id != id.strip(SPACE) or "\n" in id or "\r" in id:
            raise DataError(f"image {id!r}: a list cannot hold this name; rename the file")
        lists[split].append(id)
    for split, members in lists.items():
        if not is_safe_name(split) or "/" in split:
            raise DataError(f"split {split!r}: no name for a list; rename the split")
        text = "".join(f"{id}\n" for id in members)
        yield Document(f"ImageSets/Main/{split}.txt", [text.encode()])


# Values of one annotation


def _note(dataset: Dataset, row: int) -> Note | None:
    return dataset.notes.get(dataset.annotation_ids[row])


def _values(dataset: Dataset, row: int, attributes: dict[str, Any]) -> Values:
    """What the elements of a new object say, in VOC's order."""
    values = {
        NAME: _name(dataset, row),
        POSE: _attribute(dataset, row, attributes.get("pose") or "Unspecified"),
        TRUNCATED: _attribute(dataset, row, attributes.get("truncated") or 0),
    }
    if occluded := attributes.get("occluded"):
        values[OCCLUDED] = _attribute(dataset, row, occluded)
    values[DIFFICULT] = str(int(dataset.is_difficult[row]))
    for side in range(4):
        values[XMIN + side] = _coordinate(dataset, row, side)
    return values


def _attribute(dataset: Dataset, row: int, said: object) -> str:
    text = str(int(said) if isinstance(said, bool) else said)
    if not is_writable(text):
        raise DataError(f"{_named(dataset, row)}: XML cannot hold its attribute {text!r}")
    return text


def _name(dataset: Dataset, row: int) -> str:
    label = int(dataset.labels[row])
    name = dataset.label_names[label] if label != UNKNOWN else ""
    if not name.strip(SPACE):
        raise DataError(f"{_named(dataset, row)} has no label; VOC needs one for each")
    if not is_writable(name):
        raise DataError(f"label {name!r}: XML cannot hold this name; rename the label")
    return name


def _coordinate(dataset: Dataset, row: int, side: int) -> str:
    value = float(dataset.boxes[row, side])
    if not math.isfinite(value):
        raise DataError(
            f"{_named(dataset, row)} has a box that is not finite: {dataset.boxes[row]}"
        )
    return format_number(value + _OFFSETS[side])


def _named(dataset: Dataset, row: int) -> str:
    return f"annotation {dataset.annotation_ids[row]} of image {dataset.image_ids[row]}"
