"""Write VOC: patch a dataset that was read from VOC, or write new documents."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import (
    ADDED,
    UNKNOWN,
    Dataset,
    Note,
    assign_position_ids,
    sort_by_document,
)
from boxmend.data.formats.documents import Document, format_number
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.formats.voc.edits import TABS, ObjectChanges, Values, format_object, make_edits
from boxmend.data.formats.voc.images import USUAL_FOLDER
from boxmend.data.formats.voc.scanning import (
    DIFFICULT,
    NAME,
    OCCLUDED,
    POSE,
    TRUNCATED,
    WHITE_SPACE,
    XMIN,
    VocXml,
    escape_xml,
    is_writable,
)
from boxmend.data.formats.voc.source import ANNOTATIONS, VocSource, read_list_entries
from boxmend.data.types import Ids
from boxmend.errors import DataError

_OFFSETS = (1, 1, 0, 0)  # VOC adds these to x1, y1, x2, y2


def list_losses(dataset: Dataset) -> list[str]:
    """Return a phrase for each part that VOC cannot hold: crowd flags, extras of other formats."""
    counts: Counter[str] = Counter()
    for images, source in _group_by_folder(dataset):
        if source is None and dataset.sources:
            for index in np.unique(dataset.images.sources[images]).tolist():
                counts.update(dataset.sources[index].extras())
    phrases = [f"{count:,} x {name}" for name, count in counts.items() if count]
    if crowds := int(dataset.is_crowd.sum()):
        phrases.insert(0, f"{crowds:,} crowd flags (iscrowd)")
    if padded := [name for name in dataset.label_names if name != name.strip(WHITE_SPACE)]:
        phrases.append(f"white space around {len(padded):,} label names, such as {padded[0]!r}")
    return phrases


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """Yield the XML documents and then the lists; `segmentation` has no effect in VOC."""
    folders = _group_by_folder(dataset)
    source = folders[0][1] if len(folders) == 1 else None
    if source is not None:
        return _build_patched(dataset, source)
    return _build_new(dataset)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """Return the path of each image: the folder that its source keeps images in, and its name."""
    paths = [""] * len(dataset.images)
    for images, source in _group_by_folder(dataset):
        folder = USUAL_FOLDER if source is None else source.image_folder
        for row in images.tolist():
            paths[row] = f"{folder}/{dataset.images.file_names[row]}".lstrip("/")
    return paths


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """Return the annotation ids by position; a new document has the name of its image."""
    ids = dataset.images.ids.astype(object)
    for images, source in _group_by_folder(dataset):
        if source is None:
            ids[images] = _make_stems([dataset.images.file_names[row] for row in images])
    return assign_position_ids(replace(dataset, images=replace(dataset.images, ids=ids)))


def _group_by_folder(dataset: Dataset) -> list[tuple[NDArray[np.int64], VocSource | None]]:
    """Return for each folder its images and their VOC source, if they have a single one."""
    groups = np.array([source.group for source in dataset.sources], np.int64)
    if not len(groups):
        return [(np.arange(len(dataset.images)), None)]
    if not len(dataset.images):
        source = dataset.sources[0] if len(groups) == 1 else None
        return [(np.arange(0), source if isinstance(source, VocSource) else None)]
    image_groups = groups[dataset.images.sources]
    folders = []
    for group in np.unique(image_groups).tolist():
        images = np.flatnonzero(image_groups == group)
        indices = set(dataset.images.sources[images].tolist())
        source = dataset.sources[indices.pop()] if len(indices) == 1 else None
        folders.append((images, source if isinstance(source, VocSource) else None))
    return folders


# Patching.


def _build_patched(dataset: Dataset, source: VocSource) -> Iterator[Document]:
    """Yield the source's documents and lists with the changes of the dataset."""
    changes = _collect_changes(dataset, source)
    for row in dataset.images.rows.tolist():
        file = source.files[row]
        path = f"{source.annotations_folder}/{source.ids[row]}.xml".lstrip("/")
        if isinstance(file, VocXml):
            edits = make_edits(file, changes[row]) if row in changes else []
            yield Document(path, file.apply(edits))
        elif file is None:
            raise DataError(
                f"{source.document(row)}: could not be read, so it cannot be written; run "
                "`boxmend check` for the reason"
            )
        elif row in changes:
            raise DataError(
                f"{source.document(row)}: is not a VOC document, so nothing can be added to it; "
                "correct the file"
            )
        else:
            yield Document(path, [file])
    yield from _build_patched_lists(dataset, source)


def _collect_changes(dataset: Dataset, source: VocSource) -> dict[int, ObjectChanges]:
    """Return the changes to the source, by the row of the image in the source."""
    changes: dict[int, ObjectChanges] = defaultdict(lambda: ObjectChanges({}, set(), []))
    kept = np.flatnonzero(dataset.source_rows != ADDED)
    rows = dataset.source_rows[kept]
    files, positions = source.find_positions(rows)
    image_rows = dataset.images.rows
    if len(np.unique(rows)) != len(rows) or (image_rows[dataset.image_rows[kept]] != files).any():
        raise ValueError(
            "a source row can occur only once and in its own image; use add for new annotations"
        )

    for k, column, text in _find_new_values(dataset, source, kept):
        changes[int(files[k])].changed.setdefault(int(positions[k]), {})[column] = text
    if dataset.notes:
        for k, row in enumerate(kept.tolist()):
            if note := _get_note(dataset, row):
                changes[int(files[k])].notes[int(positions[k])] = note

    is_removed = np.ones(len(source.labels), np.bool_)
    is_removed[rows] = False
    removed_files, removed_positions = source.find_positions(np.flatnonzero(is_removed))
    for file, position in zip(removed_files.tolist(), removed_positions.tolist(), strict=True):
        changes[file].removed.add(position)

    for row in np.flatnonzero(dataset.source_rows == ADDED).tolist():
        file = int(image_rows[int(dataset.image_rows[row])])
        if note := _get_note(dataset, row):
            num_old = int(source.first_rows[file + 1] - source.first_rows[file])
            changes[file].notes[num_old + len(changes[file].added)] = note
        changes[file].added.append(_format_values(dataset, row, {}))
    return changes


def _find_new_values(
    dataset: Dataset, source: VocSource, kept: NDArray[np.int64]
) -> Iterator[tuple[int, int, str]]:
    """Yield the changed values of the kept annotations: (index into kept, column, text)."""
    rows = dataset.source_rows[kept]
    names = np.array([*dataset.label_names, None], object)[dataset.labels[kept]]
    old_names = np.array([*source.label_names, None], object)[source.labels[rows]]
    for k in np.flatnonzero(names != old_names).tolist():
        yield k, NAME, _format_name(dataset, int(kept[k]))

    is_difficult = dataset.is_difficult[kept]
    for k in np.flatnonzero(is_difficult != source.is_difficult[rows]).tolist():
        yield k, DIFFICULT, str(int(is_difficult[k]))

    boxes, old_boxes = dataset.boxes[kept], source.boxes[rows]
    differs = (boxes != old_boxes) & ~(np.isnan(boxes) & np.isnan(old_boxes))
    for k, side in np.argwhere(differs).tolist():
        text = _format_coordinate(dataset, int(kept[k]), side)
        old = float(old_boxes[k, side])
        # a difference that disappears in rounding does not count
        if math.isnan(old) or text != format_number(old + _OFFSETS[side]):
            yield k, XMIN + side, text


def _build_patched_lists(dataset: Dataset, source: VocSource) -> Iterator[Document]:
    """Yield the source's lists without removed images, or new lists if it has none."""
    if not source.lists and source.annotations_folder != ANNOTATIONS:
        return  # another layout has no lists
    if not source.lists:
        ids = [source.ids[row] for row in dataset.images.rows.tolist()]
        yield from _build_new_lists(ids, dataset.images.splits)
        return
    known = set(source.ids)
    removed = known - {source.ids[row] for row in dataset.images.rows.tolist()}
    for name, content in source.lists.items():
        if removed:
            lines = content.splitlines(True)
            entries = [next(read_list_entries(line, known), None) for line in lines]
            content = b"".join(
                line
                for line, entry in zip(lines, entries, strict=True)
                if not entry or entry[1] not in removed
            )
        yield Document(f"ImageSets/Main/{name}.txt", [content])


# New documents.


def _build_new(dataset: Dataset) -> Iterator[Document]:
    """Yield new documents and lists, from the columns alone."""
    if (dataset.image_rows == UNKNOWN).any():
        row = int(np.flatnonzero(dataset.image_rows == UNKNOWN)[0])
        raise DataError(f"{_describe(dataset, row)} belongs to no image; remove the annotation")
    attributes = _collect_attributes(dataset)
    order = sort_by_document(dataset)
    ends = np.searchsorted(dataset.image_rows[order], np.arange(len(dataset.images) + 1))
    stems = _make_stems(dataset.images.file_names)
    for image, stem in enumerate(stems):
        objects = []
        for row in order[ends[image] : ends[image + 1]].tolist():
            values = _format_values(dataset, row, attributes.get(row, {}))
            objects.append(format_object(values, TABS, _get_note(dataset, row)))
        content = _format_document(dataset, image, objects).encode()
        yield Document(f"Annotations/{stem}.xml", [content])
    yield from _build_new_lists(stems, dataset.images.splits)


def _format_document(dataset: Dataset, image: int, objects: list[str]) -> str:
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


def _collect_attributes(dataset: Dataset) -> dict[int, dict[str, Any]]:
    """Return the attributes of the annotations that have any, by row."""
    attributes: dict[int, dict[str, Any]] = {}
    for index, source in enumerate(dataset.sources):
        rows = np.flatnonzero((dataset.source_of == index) & (dataset.source_rows != ADDED))
        source_values = source.attributes(dataset.source_rows[rows])
        pairs = zip(rows.tolist(), source_values, strict=True)
        attributes.update((row, values) for row, values in pairs if values)
    return attributes


def _make_stems(file_names: list[str]) -> list[str]:
    """Return unique names of documents: those of the images, without extension if possible."""
    stems = [_get_stem(name) for name in file_names]
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


def _get_stem(file_name: str) -> str:
    path = PurePosixPath(file_name)
    if not path.name:
        raise DataError(f"image {file_name!r}: is not a file name, which VOC needs; rename it")
    return str(path.with_suffix(""))


def _build_new_lists(ids: list[str], splits: list[str]) -> Iterator[Document]:
    """Yield one list per split, in the order of the images."""
    lists: dict[str, list[str]] = defaultdict(list)
    for id, split in zip(ids, splits, strict=True):
        if id != id.strip(WHITE_SPACE) or "\n" in id or "\r" in id:
            raise DataError(f"image {id!r}: a list cannot hold this name; rename the file")
        lists[split].append(id)
    for split, members in lists.items():
        if not is_safe_name(split) or "/" in split:
            raise DataError(f"split {split!r}: is not a valid name of a list; rename the split")
        text = "".join(f"{id}\n" for id in members)
        yield Document(f"ImageSets/Main/{split}.txt", [text.encode()])


# Values of one annotation.


def _get_note(dataset: Dataset, row: int) -> Note | None:
    return dataset.notes.get(dataset.annotation_ids[row])


def _format_values(dataset: Dataset, row: int, attributes: dict[str, Any]) -> Values:
    """Return the texts of a new object's elements, in VOC's order."""
    values = {
        NAME: _format_name(dataset, row),
        POSE: _format_attribute(dataset, row, attributes.get("pose") or "Unspecified"),
        TRUNCATED: _format_attribute(dataset, row, attributes.get("truncated") or 0),
    }
    if occluded := attributes.get("occluded"):
        values[OCCLUDED] = _format_attribute(dataset, row, occluded)
    values[DIFFICULT] = str(int(dataset.is_difficult[row]))
    for side in range(4):
        values[XMIN + side] = _format_coordinate(dataset, row, side)
    return values


def _format_attribute(dataset: Dataset, row: int, value: object) -> str:
    text = str(int(value) if isinstance(value, bool) else value)
    if not is_writable(text):
        raise DataError(
            f"{_describe(dataset, row)}: XML cannot hold its attribute {text!r}; change it"
        )
    return text


def _format_name(dataset: Dataset, row: int) -> str:
    label = int(dataset.labels[row])
    name = dataset.label_names[label] if label != UNKNOWN else ""
    if not name.strip(WHITE_SPACE):
        raise DataError(f"{_describe(dataset, row)} has no label, which VOC needs; assign one")
    if not is_writable(name):
        raise DataError(f"label {name!r}: XML cannot hold this name; rename the label")
    return name


def _format_coordinate(dataset: Dataset, row: int, side: int) -> str:
    value = float(dataset.boxes[row, side])
    if not math.isfinite(value):
        raise DataError(
            f"{_describe(dataset, row)} has a box that is not finite: {dataset.boxes[row]}; "
            "correct or remove the annotation"
        )
    return format_number(value + _OFFSETS[side])


def _describe(dataset: Dataset, row: int) -> str:
    return f"annotation {dataset.annotation_ids[row]} of image {dataset.image_ids[row]}"
