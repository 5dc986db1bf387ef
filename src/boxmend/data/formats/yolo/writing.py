"""Writing YOLO datasets: the files they were read from with a few values replaced, or new ones.

The output is laid out as `data.yaml`, `images/SPLIT/NAME` and `labels/SPLIT/NAME.txt`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import ADDED, UNKNOWN, Dataset, make_position_ids, sort_by_document
from boxmend.data.formats.documents import Document
from boxmend.data.formats.yolo.data_yaml import SPLITS, composed_yaml, patched_yaml
from boxmend.data.formats.yolo.labels import Change, Size, line_of, patch_labels
from boxmend.data.formats.yolo.layout import distinct_name, plain_name, stem
from boxmend.data.formats.yolo.source import YoloSource
from boxmend.data.types import Box, Ids
from boxmend.errors import DataError

YAML_NAME = "data.yaml"


def list_losses(dataset: Dataset) -> list[str]:
    """What YOLO cannot hold: flags, attributes, and whatever other formats have beyond them."""
    flags = {
        "crowd flags (iscrowd)": int(dataset.is_crowd.sum()),
        "difficult flags": int(dataset.is_difficult.sum()),
    }
    phrases = [f"{count:,} {what}" for what, count in flags.items() if count]
    for index, source in enumerate(dataset.sources):
        if isinstance(source, YoloSource):
            continue
        is_own = (dataset.source_of == index) & (dataset.source_rows != ADDED)
        said = Counter(key for one in source.attributes(dataset.source_rows[is_own]) for key in one)
        phrases += [f"{said[key]:,} x {key} ({source.path.name})" for key in said]
        phrases += [
            f"{count:,} x {what} ({source.path.name})" for what, count in source.extras().items()
        ]
    return phrases


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """The data.yaml and label files, patched where the dataset was read from one, else new.

    `segmentation` says nothing here: a polygon whose box moved becomes a box.
    """
    source = _only_source(dataset)
    return _composed(dataset) if source is None else _patched(dataset, source)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """`images/SPLIT/NAME`; images whose label files would share a name get a number."""
    images = dataset.images
    used: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    places = []
    for name, split, index in zip(
        images.file_names, images.splits, images.sources.tolist(), strict=True
    ):
        source = dataset.sources[index] if dataset.sources else None
        split = _split(split)
        name = plain_name(name, split)
        if not isinstance(source, YoloSource):  # those are distinct since they were read
            group = source.group if source else 0
            name = distinct_name([name], used[group, split])
        places.append(f"images/{split}/{name}")
    return places


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """The ids of the annotations by position; images are called by split and name."""
    images = dataset.images
    ids = np.empty(len(images), object)
    taken: dict[str, int] = {}  # id -> group of addresses
    for row, place in enumerate(assign_image_paths(dataset)):
        index = int(images.sources[row])
        source = dataset.sources[index] if dataset.sources else None
        if isinstance(source, YoloSource):
            ids[row] = images.ids[row]
            continue
        identity = stem(place.removeprefix("images/"))
        group = source.group if source else 0
        if source is not None and taken.setdefault(identity, group) != group:
            identity = f"{source.name}/{identity}"  # as joining the folders keeps them apart
        ids[row] = identity
    return make_position_ids(replace(dataset, images=replace(images, ids=ids)))


def _only_source(dataset: Dataset) -> YoloSource | None:
    """The YOLO dataset that all images come from, if there is one."""
    used = set(dataset.images.sources.tolist()) or set(range(len(dataset.sources)))
    sources = [dataset.sources[index] for index in used] if dataset.sources else []
    if len(sources) == 1 and isinstance(sources[0], YoloSource):
        return sources[0]
    return None


def _split(split: str) -> str:
    """The key of a data.yaml that a split goes under: `val2017` is val, `trainval` is train."""
    return next((key for key in SPLITS if split.startswith(key)), "train")


def _folders(splits: Iterable[str], read_as: Mapping[str, str]) -> dict[str, str]:
    """The folder of each split; trainers want train and val, so either stands in for the other."""
    present = set(map(_split, splits)) or {"train"}
    stand_in = next(split for split in SPLITS if split in present)
    folders = {}
    for key in SPLITS:
        if (own := read_as.get(key, key)) in present:
            folders[key] = f"images/{own}"
        elif key != "test":
            folders[key] = f"images/{stand_in}"
    return folders


def _label_place(image_place: str) -> str:
    return f"labels/{stem(image_place.removeprefix('images/'))}.txt"


def _require_writable(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    """Raise where one of these annotations cannot be a line of a label file."""
    images = dataset.images
    of_image = dataset.image_rows[rows]
    is_sized = (images.widths > 0) & (images.heights > 0)
    is_sized = np.append(is_sized, True)[of_image]  # a missing image is told as such
    reasons = (
        (of_image == UNKNOWN, "its image is not declared"),
        (dataset.labels[rows] == UNKNOWN, "its label is not declared"),
        (~np.isfinite(dataset.boxes[rows]).all(1), "its box is not finite"),
        (~is_sized, "the size of its image is unknown, so YOLO's shares of it are, too"),
    )
    for mask, reason in reasons:
        for row in rows[mask]:
            image = dataset.image_rows[row]
            name = images.file_names[image] if image != UNKNOWN else "no image"
            raise DataError(
                f"{dataset.document(int(row))}, annotation {dataset.annotation_ids[row]} ({name}): "
                f"{reason}; correct or remove it"
            )


def _size(dataset: Dataset, image: int) -> Size:
    return int(dataset.images.widths[image]), int(dataset.images.heights[image])


def _box(dataset: Dataset, row: int) -> Box:
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    return x1, y1, x2, y2


# New files


def _composed(dataset: Dataset) -> Iterator[Document]:
    order = sort_by_document(dataset)
    _require_writable(dataset, order)
    places = assign_image_paths(dataset)
    folders = _folders(dataset.images.splits, {})
    yield Document(YAML_NAME, [composed_yaml(folders, dataset.label_names)])
    ends = np.searchsorted(dataset.image_rows[order], np.arange(len(places) + 1))
    for image, place in enumerate(places):
        size = _size(dataset, image)
        lines = [
            line_of(int(dataset.labels[row]), _box(dataset, row), size) + b"\n"
            for row in order[ends[image] : ends[image + 1]].tolist()
        ]
        yield Document(_label_place(place), lines)


# Patched files


def _patched(dataset: Dataset, source: YoloSource) -> Iterator[Document]:
    numbering = _numbering(dataset, source)
    work = _work(dataset, source, numbering)
    folders = _folders(dataset.images.splits, source.read_as)
    yield Document(YAML_NAME, [patched_yaml(source.document_yaml, folders, numbering.names)])
    written = set[str]()
    for image, place in enumerate(assign_image_paths(dataset)):
        row = int(dataset.images.rows[image])
        content, path = source.contents[row], _label_place(place)
        changes, added = work.changes.get(image, {}), work.added.get(image, [])
        if changes or added:
            content = patch_labels(content or b"", _size(dataset, image), changes, added)
        if content is None:
            continue
        if row in source.sharing or path in written:
            name = dataset.images.file_names[image]
            raise DataError(f"{source.document(row)}: belongs to another image than {name}, too")
        written.add(path)
        yield Document(path, [content])


@dataclass(frozen=True)
class _Numbering:
    """How the labels of a dataset are numbered in a data.yaml."""

    names: tuple[str, ...]  # the source's own, then those that are used and new
    numbers: NDArray[np.int64]  # [labels + 1] by label; the last is that of UNKNOWN
    same: NDArray[np.int64]  # [own + 1] the number that stands for each of the source's own


def _numbering(dataset: Dataset, source: YoloSource) -> _Numbering:
    own = source.label_names
    first: dict[str, int] = {}  # joining merges equal names
    for number, name in enumerate(own):
        first.setdefault(name, number)
    if dataset.label_names[: len(own)] == own:
        same, numbers = list(range(len(own))), list(range(len(own)))
    else:
        same, numbers = [first[name] for name in own], []
    names = list(own)
    used = set(dataset.labels.tolist())
    for label in range(len(numbers), len(dataset.label_names)):
        name = dataset.label_names[label]
        if name not in first and label in used:
            first[name] = len(names)
            names.append(name)
        numbers.append(first.get(name, UNKNOWN))
    return _Numbering(
        tuple(names), np.array([*numbers, UNKNOWN], np.int64), np.array([*same, UNKNOWN], np.int64)
    )


@dataclass(frozen=True)
class _Work:
    """What is to be done to label files, by image of the dataset."""

    changes: Mapping[int, dict[int, Change | None]]  # by position in the file
    added: Mapping[int, list[tuple[int, Box]]]


def _work(dataset: Dataset, source: YoloSource, numbering: _Numbering) -> _Work:
    changes: dict[int, dict[int, Change | None]] = defaultdict(dict)
    added: dict[int, list[tuple[int, Box]]] = defaultdict(list)
    is_added = dataset.source_rows == ADDED
    kept, new = np.flatnonzero(~is_added), np.flatnonzero(is_added)
    numbers = numbering.numbers[dataset.labels]  # [n]
    old_rows = dataset.source_rows[kept]
    _require_in_place(dataset, source, kept)
    old, now = source.boxes[old_rows], dataset.boxes[kept]
    is_moved = ~((old == now) | (np.isnan(old) & np.isnan(now))).all(1)
    is_relabelled = numbers[kept] != numbering.same[source.labels[old_rows]]
    _require_labelled(dataset, kept[is_relabelled])
    _require_writable(dataset, np.concatenate([kept[is_moved], new]))
    positions = source.positions(old_rows)
    for k in np.flatnonzero(is_moved | is_relabelled).tolist():
        row = int(kept[k])
        changes[int(dataset.image_rows[row])][int(positions[k])] = Change(
            int(numbers[row]) if is_relabelled[k] else None,
            _box(dataset, row) if is_moved[k] else None,
        )
    for image, position in _removed(dataset, source, old_rows):
        changes[image][position] = None
    for row in new.tolist():
        added[int(dataset.image_rows[row])].append((int(numbers[row]), _box(dataset, row)))
    return _Work(changes, added)


def _removed(
    dataset: Dataset, source: YoloSource, kept: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """What the dataset's images have no more: (image, position)."""
    image_of = {row: image for image, row in enumerate(dataset.images.rows.tolist())}
    is_gone = np.ones(len(source.labels), np.bool_)
    is_gone[kept] = False
    gone = np.flatnonzero(is_gone)
    places = zip(source.image_of(gone).tolist(), source.positions(gone).tolist(), strict=True)
    for row, position in places:
        if row in image_of:
            yield image_of[row], position


def _require_labelled(dataset: Dataset, rows: NDArray[np.int64]) -> None:
    for row in rows[dataset.labels[rows] == UNKNOWN]:
        raise DataError(
            f"{dataset.document(int(row))}, annotation {dataset.annotation_ids[row]}: has lost its "
            "label; give it one, or remove it"
        )


def _require_in_place(dataset: Dataset, source: YoloSource, rows: NDArray[np.int64]) -> None:
    """Raise where an annotation is there twice, or was given to another image."""
    old_rows, of_image = dataset.source_rows[rows], dataset.image_rows[rows]
    is_elsewhere = dataset.images.rows[of_image] != source.image_of(old_rows)
    is_again = np.ones(len(rows), np.bool_)
    is_again[np.unique(old_rows, return_index=True)[1]] = False
    for row in rows[is_elsewhere | is_again]:
        raise DataError(
            f"{source.path}, annotation {dataset.annotation_ids[row]}: is there twice, or in "
            "another image than it was; add a new annotation instead"
        )
