"""The truth about the annotations of a dataset, row by row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset, Images
from boxmend.data.diff.images import pair_images
from boxmend.data.files.text import escape_surrogates
from boxmend.data.formats import load, split_address
from boxmend.data.noise import TRUTH_FILE, Truth, read_truth
from boxmend.data.types import Floats, Ids, Mask, Rows
from boxmend.errors import DataError

CLEAN = "the clean dataset"  # in messages about a dataset without an address
NONE = -1  # row of an object that does not exist
POSITIONED = {"voc", "yolo"}  # formats without ids, where an annotation has only a position
MIN_OVERLAPPING_SHARE = 0.5  # of boxes with their true box; with less, the truth is of other data


@dataclass(frozen=True, eq=False)
class TrueObjects:
    """All true objects of a dataset's images except crowds, and the object of each annotation."""

    image_rows: Rows  # [m]
    labels: Rows  # [m] UNKNOWN for labels that the dataset does not have
    boxes: Floats  # [m, 4]
    object_rows: Rows  # [n] the object of each annotation; NONE for spurious ones and crowds
    are_all_known: bool
    """Whether all objects without an annotation are included."""

    @property
    def is_missing(self) -> Mask:
        """A mask [m] of objects without an annotation."""
        is_missing = np.ones(len(self.labels), np.bool_)
        is_missing[self.object_rows[self.object_rows != NONE]] = False
        return is_missing


class UnpairedError(DataError):
    """The annotations of a dataset and of its clean version do not pair up by their ids."""


@dataclass(frozen=True, eq=False)
class IgnoredObjects:
    """Difficult and crowd objects of a corrected dataset; annotations on them do not count."""

    image_rows: Rows  # [k]
    boxes: Floats  # [k, 4]
    is_crowd: Mask  # [k]


@dataclass(frozen=True, eq=False)
class KnownTruth:
    """The true annotations of a dataset, in its order and by its label names."""

    labels: Rows  # [n] UNKNOWN without an object, and for labels that the dataset does not have
    boxes: Floats  # [n, 4] NaN without an object
    is_spurious: Mask  # [n] annotations that show no object
    image_rows: Rows  # [m] of all true boxes, including missing objects, but no crowds
    image_boxes: Floats  # [m, 4]
    objects: TrueObjects | None = None  # the same objects with labels; None if unknown
    is_neutral: Mask | None = None  # [n] annotations that count neither as right nor as wrong
    ignored: IgnoredObjects | None = None  # in addition to those of the dataset
    neutral_margin_px: float | None = None
    """Proposals this close to the image border count only if they are right; None: all count."""

    @property
    def is_counted(self) -> Mask:
        """A mask [n] of annotations that count as right or wrong."""
        if self.is_neutral is None:
            return np.ones(len(self.labels), np.bool_)
        return ~self.is_neutral

    def is_wrong(self, labels: Rows) -> Mask:
        """Return a mask [n] of labels, one for each annotation, that differ from the true ones."""
        is_wrong: Mask = labels != self.labels
        return is_wrong


def known_truth(source: str | Path | Dataset, dataset: Dataset) -> KnownTruth:
    """Return the truth of a dataset, from `truth.parquet` or from the clean dataset.

    `source` is such a file, a folder with one, a clean dataset, or its address. Annotations are
    paired by id, labels by name. The file may have more annotations than the dataset, for instance
    those of all splits. A DataError names the annotation or label that does not match.
    """
    if isinstance(source, Dataset):
        return _ensure_overlapping(CLEAN, dataset, _from_dataset(CLEAN, source, dataset))
    path, _ = split_address(str(source))
    if path.is_dir() and (path / TRUTH_FILE).is_file():
        path = path / TRUTH_FILE  # also for FOLDER:SPLIT, since its dataset is noisy
    if path.suffix == ".parquet":
        truth = _from_file(path, read_truth(path), dataset)
    else:
        truth = _from_dataset(str(source), load(str(source)), dataset)
    return _ensure_overlapping(str(source), dataset, truth)


def _from_file(path: Path, truth: Truth, dataset: Dataset) -> KnownTruth:
    present = np.flatnonzero(~truth.is_missing)
    rows = _match_ids(str(path), truth.annotation_ids[present], dataset)
    if (rows == NONE).any():
        foreign = _id_at(dataset, int((rows == NONE).argmax()))
        raise DataError(
            f"{path}: has no annotation {foreign}, so it is the truth of another dataset; give "
            "the file that `boxmend noise` wrote together with this dataset"
        )
    rows = present[rows]
    is_spurious = truth.is_spurious[rows]
    _ensure_finite(path, truth.boxes[rows], is_spurious, dataset)
    known = _translate_labels(str(path), truth.label_names, dataset)
    objects = _list_objects(truth, rows, known, dataset)
    return KnownTruth(
        labels=np.where(is_spurious, UNKNOWN, known[truth.labels[rows]]),
        boxes=np.where(is_spurious[:, None], np.nan, truth.boxes[rows]),
        is_spurious=is_spurious,
        image_rows=objects.image_rows,
        image_boxes=objects.boxes,
        objects=objects,
    )


def _ensure_finite(path: Path, boxes: Floats, is_spurious: Mask, dataset: Dataset) -> None:
    """Raise a DataError if a true box is not finite."""
    is_undefined = ~is_spurious & ~np.isfinite(boxes).all(axis=1)
    if is_undefined.any():
        raise DataError(
            f"{path}: the true box of annotation "
            f"{_id_at(dataset, int(is_undefined.argmax()))} is not finite; give an unchanged file "
            "of `boxmend noise`, or the clean dataset"
        )


def _list_objects(truth: Truth, rows: Rows, known: Rows, dataset: Dataset) -> TrueObjects:
    """Return the true objects of the dataset's images, and missing ones as far as known.

    The file only has the image of a missing annotation if ids are positions in images, like
    "0001:3". `known` maps the file's labels to those of the dataset.
    """
    is_box = ~truth.is_spurious[rows] & ~dataset.is_crowd & (dataset.image_rows != UNKNOWN)
    number: dict[str, int] = {}
    first_rows: list[int] = []  # of each object in the dataset
    object_rows = np.full(len(rows), NONE, np.int64)
    for row in np.flatnonzero(is_box).tolist():
        source = escape_surrogates(truth.source_ids[rows[row]])
        if source not in number:
            number[source] = len(first_rows)
            first_rows.append(row)
        object_rows[row] = number[source]  # a duplicate shows the object of its original

    row_of_image = {
        escape_surrogates(id): row for row, id in enumerate(dataset.images.ids.tolist())
    }
    missing = np.flatnonzero(truth.is_missing)
    names = [escape_surrogates(id).rpartition(":")[0] for id in truth.source_ids[missing].tolist()]
    images = np.array([row_of_image.get(name, UNKNOWN) for name in names], np.int64)
    is_known = images != UNKNOWN
    places = np.concatenate([rows[first_rows], missing[is_known]]).astype(np.int64)
    return TrueObjects(
        image_rows=np.concatenate([dataset.image_rows[first_rows], images[is_known]]).astype(
            np.int64
        ),
        labels=known[truth.labels[places]],
        boxes=truth.boxes[places],
        object_rows=object_rows,
        are_all_known=bool(is_known.all()) or _are_positioned(dataset),
    )


def _are_positioned(dataset: Dataset) -> bool:
    """Return whether every id contains its image, so that an unknown id is of another split."""
    formats = {source.format for source in dataset.sources}
    return bool(formats) and formats <= POSITIONED


def _from_dataset(where: str, clean: Dataset, dataset: Dataset) -> KnownTruth:
    image_of = _pair_images(where, clean, dataset)  # [images of clean]
    _ensure_countable(where, clean, dataset, image_of)
    rows = _match_ids(where, clean.annotation_ids, dataset)
    is_spurious = rows == NONE
    if len(rows) and is_spurious.all():
        raise UnpairedError(
            f"{where}: has none of the annotation ids of the dataset (the first is "
            f"{_id_at(dataset, 0)}); give the dataset that this one was made from, in the same "
            f"format, or the {TRUTH_FILE} that `boxmend noise` wrote"
        )
    images = np.append(image_of, UNKNOWN)[clean.image_rows]  # of each clean annotation
    is_elsewhere = ~is_spurious & (images[rows] != dataset.image_rows)
    if is_elsewhere.any():
        foreign = _id_at(dataset, int(is_elsewhere.argmax()))
        raise UnpairedError(
            f"{where}: annotation {foreign} is in another image than in the dataset, so the ids "
            "were renumbered; give a version with the same ids"
        )
    labels = _translate_labels(where, clean.label_names, dataset)[clean.labels]
    is_box = (images != UNKNOWN) & ~clean.is_crowd
    number = np.append(np.where(is_box, np.cumsum(is_box) - 1, NONE), NONE)
    objects = TrueObjects(
        image_rows=images[is_box],
        labels=labels[is_box],
        boxes=clean.boxes[is_box],
        object_rows=number[rows],  # NONE selects the last entry
        are_all_known=True,
    )
    return KnownTruth(
        labels=np.append(labels, UNKNOWN)[rows],  # NONE selects the last entry
        boxes=np.concatenate([clean.boxes, np.full((1, 4), np.nan)])[rows],
        is_spurious=is_spurious,
        image_rows=objects.image_rows,
        image_boxes=objects.boxes,
        objects=objects,
    )


def pair_with_clean(where: str, clean: Dataset, dataset: Dataset) -> tuple[Rows, Rows]:
    """Return the dataset's image row and label of every clean annotation, or UNKNOWN."""
    images = np.append(_pair_images(where, clean, dataset), UNKNOWN)[clean.image_rows]
    labels = _translate_labels(where, clean.label_names, dataset)[clean.labels]
    return images, labels


def _pair_images(where: str, clean: Dataset, dataset: Dataset) -> Rows:
    """Return the dataset's row of every clean image, or UNKNOWN.

    Raise a DataError if the clean version lacks an image of the dataset.
    """
    ours, theirs = pair_images(dataset.images, clean.images)
    if len(ours) < len(dataset.images):
        row = int(np.setdiff1d(np.arange(len(dataset.images)), ours)[0])
        raise DataError(
            f"{where}: lacks {dataset.images.file_names[row]}, so it is not the clean version of "
            "the dataset; give the clean version, with its split"
        )
    _ensure_one_split(where, clean.images, dataset.images, (ours, theirs))
    image_of = np.full(len(clean.images), UNKNOWN, np.int64)
    image_of[theirs] = ours
    return image_of


def _ensure_one_split(where: str, clean: Images, images: Images, pairs: tuple[Rows, Rows]) -> None:
    """Refuse an image that the clean dataset has in several splits, none of them the dataset's."""
    counts = Counter(clean.file_names)
    for ours, theirs in zip(*(rows.tolist() for rows in pairs), strict=True):
        name = clean.file_names[theirs]
        if counts[name] > 1 and clean.splits[theirs] != images.splits[ours]:
            members = zip(clean.file_names, clean.splits, strict=True)
            splits = sorted({split for member, split in members if member == name})
            raise DataError(
                f"{where}: has {name} more than once, in {' and '.join(splits)}; name the split "
                f"with the truth, for instance {where}:{splits[-1]}"
            )


def _ensure_countable(where: str, clean: Dataset, dataset: Dataset, image_of: Rows) -> None:
    """Raise an UnpairedError if ids are positions and numbers of annotations differ."""
    if not any(source.format in POSITIONED for data in (clean, dataset) for source in data.sources):
        return
    images = np.append(image_of, UNKNOWN)[clean.image_rows]
    num_images = len(dataset.images)
    there = np.bincount(images[images != UNKNOWN], minlength=num_images)
    here = np.bincount(dataset.image_rows[dataset.image_rows != UNKNOWN], minlength=num_images)
    if (there != here).any():
        row = int((there != here).argmax())
        raise UnpairedError(
            f"{where}: has {there[row]} annotations of {dataset.images.file_names[row]}, where the "
            f"dataset has {here[row]}; in this format annotations have no ids and cannot be "
            f"paired; give the {TRUTH_FILE} of `boxmend noise`"
        )


def _match_ids(where: str, ids: Ids, dataset: Dataset) -> Rows:
    """Return the row [n] of each of the dataset's ids in `ids`, or NONE."""
    row_of: dict[str, int] = {}
    for row, id in enumerate(ids.tolist()):
        if row_of.setdefault(escape_surrogates(id), row) != row:
            raise DataError(f"{where}: annotation {id!r} appears twice; see `boxmend check`")
    return np.array(
        [row_of.get(escape_surrogates(id), NONE) for id in _list_ids(dataset)], np.int64
    )


def _id_at(dataset: Dataset, row: int) -> str:
    """Return the id of the annotation at this row, for a message."""
    return repr(dataset.annotation_ids[[row]].tolist()[0])  # a value of Python, not of NumPy


def _list_ids(dataset: Dataset) -> list[Any]:
    """Return the ids of the annotations; raise a DataError if they are not unique."""
    ids: list[Any] = dataset.annotation_ids.tolist()
    if len(set(map(escape_surrogates, ids))) < len(ids):
        raise DataError("several annotations of the dataset share an id; see `boxmend check`")
    return ids


def _translate_labels(where: str, names: Sequence[str], dataset: Dataset) -> Rows:
    """Return the dataset's label for each label name, and UNKNOWN as the last entry."""
    number = {name: label for label, name in enumerate(dataset.label_names)}
    labels = [number.get(name, UNKNOWN) for name in names]
    if names and number and set(labels) == {UNKNOWN}:
        raise DataError(
            f"{where}: has other label names ({names[0]!r}, ...) than the dataset "
            f"({dataset.label_names[0]!r}, ...); give the truth of this dataset"
        )
    return np.array([*labels, UNKNOWN], np.int64)


def _ensure_overlapping(where: str, dataset: Dataset, truth: KnownTruth) -> KnownTruth:
    """Raise an UnpairedError if most boxes do not overlap; ids can agree by chance."""
    objects = np.flatnonzero(~truth.is_spurious & ~dataset.is_ignored)
    overlaps = compute_iou(dataset.boxes[objects], truth.boxes[objects]) > 0
    if len(objects) and overlaps.mean() < MIN_OVERLAPPING_SHARE:
        foreign = _id_at(dataset, int(objects[(~overlaps).argmax()]))
        raise UnpairedError(
            f"{where}: most boxes do not overlap those of the dataset, for instance that of "
            f"annotation {foreign}, so it is the truth of another dataset; give that of this one"
        )
    return truth
