"""Write YOLO datasets: patch the files they were read from, or write new files.

The output keeps the folders of its source; a conversion has `data.yaml`, `images/SPLIT/NAME` and
`labels/SPLIT/NAME.txt`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, assign_position_ids, sort_by_document
from boxmend.data.formats.documents import Document
from boxmend.data.formats.yolo.class_lists import build_class_documents
from boxmend.data.formats.yolo.data_yaml import DataYaml, compose_yaml, patch_yaml
from boxmend.data.formats.yolo.image_lists import patch_image_list
from boxmend.data.formats.yolo.labels import Change, Size, format_line, patch_labels
from boxmend.data.formats.yolo.layout import stem
from boxmend.data.formats.yolo.output_layout import OutputLayout, choose_layout, find_single_source
from boxmend.data.formats.yolo.source import YoloSource
from boxmend.data.types import Box, Ids
from boxmend.errors import DataError

YAML_NAME = "data.yaml"


def list_losses(dataset: Dataset) -> list[str]:
    """Return a phrase for each part that YOLO cannot hold: flags, attributes and extras."""
    flags = {
        "crowd flags (iscrowd)": int(dataset.is_crowd.sum()),
        "difficult flags": int(dataset.is_difficult.sum()),
    }
    phrases = [f"{count:,} {name}" for name, count in flags.items() if count]
    for index, source in enumerate(dataset.sources):
        if isinstance(source, YoloSource):
            continue
        is_from_source = (dataset.source_of == index) & (dataset.source_rows != ADDED)
        attributes = source.attributes(dataset.source_rows[is_from_source])
        counts = Counter(key for values in attributes for key in values)
        phrases += [f"{counts[key]:,} x {key} ({source.path.name})" for key in counts]
        phrases += [
            f"{count:,} x {name} ({source.path.name})" for name, count in source.extras().items()
        ]
    return phrases


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """Yield data.yaml and label files: patched if the dataset was read from YOLO, else new.

    `segmentation` has no effect here: a polygon whose box moved becomes a box.
    """
    source = find_single_source(dataset)
    return _build_new(dataset) if source is None else _build_patched(dataset, source)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """Return the path of each image: that in its source, or `images/SPLIT/NAME`."""
    return choose_layout(dataset).images


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """Return the annotation ids by position; ids of images are split and name."""
    images = dataset.images
    ids = np.empty(len(images), object)
    groups: dict[str, int] = {}  # id -> group of addresses
    for row, image_path in enumerate(assign_image_paths(dataset)):
        index = int(images.sources[row])
        source = dataset.sources[index] if dataset.sources else None
        if isinstance(source, YoloSource):
            ids[row] = images.ids[row]
            continue
        identity = stem(image_path.removeprefix("images/"))
        group = source.group if source else 0
        if source is not None and groups.setdefault(identity, group) != group:
            identity = f"{source.name}/{identity}"  # as joining the folders does
        ids[row] = identity
    return assign_position_ids(replace(dataset, images=replace(images, ids=ids)))


def _require_writable(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    """Raise a DataError if one of these annotations cannot be a line of a label file."""
    images = dataset.images
    image_rows = dataset.image_rows[rows]
    is_sized = (images.widths > 0) & (images.heights > 0)
    is_sized = np.append(is_sized, True)[image_rows]  # a missing image has its own message
    reasons = (
        (image_rows == UNKNOWN, "its image is not declared"),
        (dataset.labels[rows] == UNKNOWN, "its label is not declared"),
        (~np.isfinite(dataset.boxes[rows]).all(1), "its box is not finite"),
        (~is_sized, "the size of its image is unknown, but YOLO needs it for the box"),
    )
    for mask, reason in reasons:
        for row in rows[mask]:
            image = dataset.image_rows[row]
            name = images.file_names[image] if image != UNKNOWN else "no image"
            raise DataError(
                f"{dataset.document(int(row))}, annotation {dataset.annotation_ids[row]} ({name}): "
                f"{reason}; correct or remove the annotation"
            )


def _get_size(dataset: Dataset, image: int) -> Size:
    return int(dataset.images.widths[image]), int(dataset.images.heights[image])


def _get_box(dataset: Dataset, row: int) -> Box:
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    return x1, y1, x2, y2


# New files.


def _build_new(dataset: Dataset) -> Iterator[Document]:
    order = sort_by_document(dataset)
    _require_writable(dataset, order)
    layout = choose_layout(dataset)
    yield Document(YAML_NAME, [compose_yaml(layout.paths, dataset.label_names)])
    ends = np.searchsorted(dataset.image_rows[order], np.arange(len(layout.labels) + 1))
    for image, path in enumerate(layout.labels):
        size = _get_size(dataset, image)
        lines = [
            format_line(int(dataset.labels[row]), _get_box(dataset, row), size) + b"\n"
            for row in order[ends[image] : ends[image + 1]].tolist()
        ]
        yield Document(path, lines)


# Patched files.


def _build_patched(dataset: Dataset, source: YoloSource) -> Iterator[Document]:
    numbering = _number_labels(dataset, source)
    label_changes = _collect_changes(dataset, source, numbering)
    layout = choose_layout(dataset)
    yield from _build_index(dataset, source, layout, numbering.names)
    written = set[str]()
    for image, path in enumerate(layout.labels):
        row = int(dataset.images.rows[image])
        content = source.contents[row]
        changes, added = label_changes.changes.get(image, {}), label_changes.added.get(image, [])
        if changes or added:
            content = patch_labels(content or b"", _get_size(dataset, image), changes, added)
        if content is None:
            continue
        if row in source.sharing or path in written:
            name = dataset.images.file_names[image]
            raise DataError(
                f"{source.document(row)}: belongs to {name} and to another image, so it cannot be "
                "written; rename one of the images"
            )
        written.add(path)
        yield Document(path, [content])


def _build_index(
    dataset: Dataset, source: YoloSource, layout: OutputLayout, names: tuple[str, ...]
) -> Iterator[Document]:
    """Yield the data.yaml, or the files in its place, and the lists of images."""
    index = source.index
    if isinstance(index, DataYaml):
        yield Document(YAML_NAME, [patch_yaml(index, layout.paths, names)])
    elif layout.source is None or source.layout is None:
        yield Document(YAML_NAME, [compose_yaml(layout.paths, names)])
    else:
        yield from build_class_documents(index, source.layout.base, names, layout.paths.splits)
    if source.layout is None:
        return
    base = source.layout.base
    images = {f"{base}/{path}" for path in layout.images}
    for listed in layout.lists:
        content = patch_image_list(listed, images)
        yield Document(listed.path.removeprefix(f"{base}/"), [content])


@dataclass(frozen=True)
class _LabelNumbers:
    """The numbers of a dataset's labels in a data.yaml."""

    names: tuple[str, ...]  # the source's names, then the new names in use
    numbers: NDArray[np.int64]  # [labels + 1] number of each label; the last is for UNKNOWN
    source_numbers: NDArray[np.int64]  # [source labels + 1] number of each label of the source


def _number_labels(dataset: Dataset, source: YoloSource) -> _LabelNumbers:
    source_names = source.label_names
    first: dict[str, int] = {}  # joining merges equal names
    for number, name in enumerate(source_names):
        first.setdefault(name, number)
    numbers: list[int] = []
    source_numbers = [first[name] for name in source_names]
    if dataset.label_names[: len(source_names)] == source_names:
        numbers = list(range(len(source_names)))
        source_numbers = list(numbers)
    names = list(source_names)
    used = set(dataset.labels.tolist())
    for label in range(len(numbers), len(dataset.label_names)):
        name = dataset.label_names[label]
        if name not in first and label in used:
            first[name] = len(names)
            names.append(name)
        numbers.append(first.get(name, UNKNOWN))
    return _LabelNumbers(
        tuple(names),
        np.array([*numbers, UNKNOWN], np.int64),
        np.array([*source_numbers, UNKNOWN], np.int64),
    )


@dataclass(frozen=True)
class _LabelChanges:
    """The changes of label files, by image of the dataset."""

    changes: Mapping[int, dict[int, Change | None]]  # by position in the file
    added: Mapping[int, list[tuple[int, Box]]]


def _collect_changes(
    dataset: Dataset, source: YoloSource, numbering: _LabelNumbers
) -> _LabelChanges:
    changes: dict[int, dict[int, Change | None]] = defaultdict(dict)
    added: dict[int, list[tuple[int, Box]]] = defaultdict(list)
    is_added = dataset.source_rows == ADDED
    kept, new = np.flatnonzero(~is_added), np.flatnonzero(is_added)
    numbers = numbering.numbers[dataset.labels]  # [n]
    old_rows = dataset.source_rows[kept]
    _require_in_place(dataset, source, kept)
    old_boxes, boxes = source.boxes[old_rows], dataset.boxes[kept]
    is_moved = ~((old_boxes == boxes) | (np.isnan(old_boxes) & np.isnan(boxes))).all(1)
    is_relabelled = numbers[kept] != numbering.source_numbers[source.labels[old_rows]]
    _require_labelled(dataset, kept[is_relabelled])
    _require_writable(dataset, np.concatenate([kept[is_moved], new]))
    positions = source.find_positions(old_rows)
    for k in np.flatnonzero(is_moved | is_relabelled).tolist():
        row = int(kept[k])
        changes[int(dataset.image_rows[row])][int(positions[k])] = Change(
            int(numbers[row]) if is_relabelled[k] else None,
            _get_box(dataset, row) if is_moved[k] else None,
        )
    for image, position in _find_removed(dataset, source, old_rows):
        changes[image][position] = None
    for row in new.tolist():
        added[int(dataset.image_rows[row])].append((int(numbers[row]), _get_box(dataset, row)))
    return _LabelChanges(changes, added)


def _find_removed(
    dataset: Dataset, source: YoloSource, kept: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Yield image and position of each annotation that the dataset no longer has."""
    images = {row: image for image, row in enumerate(dataset.images.rows.tolist())}
    is_removed = np.ones(len(source.labels), np.bool_)
    is_removed[kept] = False
    removed = np.flatnonzero(is_removed)
    source_images = source.find_images(removed).tolist()
    for row, position in zip(source_images, source.find_positions(removed).tolist(), strict=True):
        if row in images:
            yield images[row], position


def _require_labelled(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    for row in rows[dataset.labels[rows] == UNKNOWN]:
        raise DataError(
            f"{dataset.document(int(row))}, annotation {dataset.annotation_ids[row]}: has no label "
            "any more; assign one, or remove the annotation"
        )


def _require_in_place(dataset: Dataset, source: YoloSource, rows: NDArray[np.int64]) -> None:
    """Raise a DataError if an annotation is repeated or was moved to another image."""
    old_rows, images = dataset.source_rows[rows], dataset.image_rows[rows]
    is_elsewhere = dataset.images.rows[images] != source.find_images(old_rows)
    is_repeated = np.ones(len(rows), np.bool_)
    is_repeated[np.unique(old_rows, return_index=True)[1]] = False
    for row in rows[is_elsewhere | is_repeated]:
        raise DataError(
            f"{source.path}, annotation {dataset.annotation_ids[row]}: is repeated or was moved to "
            "another image; add a new annotation instead"
        )
