"""The truth about the annotations of a dataset, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.diff.images import pair_images
from boxmend.data.files.text import escape_surrogates
from boxmend.data.formats import load, split_address
from boxmend.data.noise import TRUTH_FILE, Truth, read_truth
from boxmend.data.types import Floats, Ids, Mask, Rows
from boxmend.errors import DataError

CLEAN = "the clean dataset"  # in messages about a dataset without an address
NONE = -1  # the row of an object that does not exist
POSITIONED = {"voc", "yolo"}  # formats that know an annotation by its place in the image only
MIN_OVERLAPPING_SHARE = 0.5  # of boxes with their truth; below, it is the truth of other data


@dataclass(frozen=True, eq=False)
class TrueObjects:
    """All true objects of a dataset's images but crowds, and the object of each annotation."""

    image_rows: Rows  # [m]
    labels: Rows  # [m] UNKNOWN where the dataset does not know the label
    boxes: Floats  # [m, 4]
    object_rows: Rows  # [n] the object of each annotation; NONE for spurious ones and crowds
    are_all_known: bool
    """Whether objects without an annotation are complete, too."""

    @property
    def is_missing(self) -> Mask:
        """[m] Marks objects without an annotation."""
        is_missing = np.ones(len(self.labels), np.bool_)
        is_missing[self.object_rows[self.object_rows != NONE]] = False
        return is_missing


class UnpairedError(DataError):
    """The annotations of a dataset and of its clean version do not pair up by their ids."""


@dataclass(frozen=True, eq=False)
class IgnoredObjects:
    """Difficult and crowd objects that a corrected dataset adds; nothing on them counts."""

    image_rows: Rows  # [k]
    boxes: Floats  # [k, 4]
    is_crowd: Mask  # [k]


@dataclass(frozen=True, eq=False)
class KnownTruth:
    """The true annotations of a dataset, in its order and by its label names."""

    labels: Rows  # [n] UNKNOWN without an object, and for labels that the dataset lacks
    boxes: Floats  # [n, 4] NaN without an object
    is_spurious: Mask  # [n] annotations that show no object
    image_rows: Rows  # [m] of all true boxes, missing objects included, without crowds
    image_boxes: Floats  # [m, 4]
    objects: TrueObjects | None = None  # the same with labels; None if unknown
    is_neutral: Mask | None = None  # [n] annotations that count neither as right nor as wrong
    ignored: IgnoredObjects | None = None  # besides those of the dataset itself
    neutral_margin_px: float | None = None
    """Proposals this close to the image border count only if they are right; None: all count."""

    @property
    def is_counted(self) -> Mask:
        """[n] Marks the annotations that count as right or wrong."""
        if self.is_neutral is None:
            return np.ones(len(self.labels), np.bool_)
        return ~self.is_neutral

    def is_wrong(self, labels: Rows) -> Mask:
        """[n] Mark the labels, one for each annotation, that differ from the true ones."""
        is_wrong: Mask = labels != self.labels
        return is_wrong


def known_truth(source: str | Path | Dataset, dataset: Dataset) -> KnownTruth:
    """Return the truth of a dataset, from `truth.parquet` or from the clean dataset.

    `source` is such a file, a folder with one, a clean dataset, or its address. Annotations pair up
    by their ids, labels by their names. The file may have more annotations than the dataset, for
    instance those of all splits. A DataError names what does not match.
    """
    if isinstance(source, Dataset):
        return _ensure_overlapping(CLEAN, dataset, _from_dataset(CLEAN, source, dataset))
    path, _ = split_address(str(source))
    if path.is_dir() and (path / TRUTH_FILE).is_file():
        path = path / TRUTH_FILE  # also for FOLDER:SPLIT: that dataset is noisy
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
            "the file that `boxmend noise` wrote next to this one"
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
    is_lacking = ~is_spurious & ~np.isfinite(boxes).all(axis=1)
    if is_lacking.any():
        raise DataError(
            f"{path}: has no finite true box of annotation "
            f"{_id_at(dataset, int(is_lacking.argmax()))}; give a file as `boxmend noise` wrote "
            "it, or the clean dataset"
        )


def _list_objects(truth: Truth, rows: Rows, known: Rows, dataset: Dataset) -> TrueObjects:
    """Return the true objects of the dataset's images, and missing ones as far as known.

    The file does not have the image of a missing annotation, except in ids that are a place in an
    image, like "0001:3". `known` are the dataset's numbers of the file's labels.
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
    """Return whether every id names its image, so that an unknown id is of another split."""
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
            f"{_id_at(dataset, 0)}); name the dataset it was made from, in its format, or "
            f"the {TRUTH_FILE} that `boxmend noise` wrote"
        )
    images = np.append(image_of, UNKNOWN)[clean.image_rows]  # of each clean annotation
    is_elsewhere = ~is_spurious & (images[rows] != dataset.image_rows)
    if is_elsewhere.any():
        foreign = _id_at(dataset, int(is_elsewhere.argmax()))
        raise UnpairedError(
            f"{where}: annotation {foreign} lies in another image than in the dataset, so its ids "
            "were renumbered; give a version with the same ids"
        )
    labels = _translate_labels(where, clean.label_names, dataset)[clean.labels]
    is_box = (images != UNKNOWN) & ~clean.is_crowd
    number = np.append(np.where(is_box, np.cumsum(is_box) - 1, NONE), NONE)
    objects = TrueObjects(
        image_rows=images[is_box],
        labels=labels[is_box],
        boxes=clean.boxes[is_box],
        object_rows=number[rows],  # NONE picks the last
        are_all_known=True,
    )
    return KnownTruth(
        labels=np.append(labels, UNKNOWN)[rows],  # NONE picks the last
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
    """Return the dataset's row of every clean image, or UNKNOWN; refuse missing images."""
    ours, theirs = pair_images(dataset.images, clean.images)
    if len(ours) < len(dataset.images):
        row = int(np.setdiff1d(np.arange(len(dataset.images)), ours)[0])
        raise DataError(
            f"{where}: lacks {dataset.images.file_names[row]} and is not the clean version of the "
            "dataset; name that, with its split"
        )
    image_of = np.full(len(clean.images), UNKNOWN, np.int64)
    image_of[theirs] = ours
    return image_of


def _ensure_countable(where: str, clean: Dataset, dataset: Dataset, image_of: Rows) -> None:
    """Refuse ids that are places in an image with another number of annotations: they shift."""
    if not any(source.format in POSITIONED for one in (clean, dataset) for source in one.sources):
        return
    images = np.append(image_of, UNKNOWN)[clean.image_rows]
    num_images = len(dataset.images)
    there = np.bincount(images[images != UNKNOWN], minlength=num_images)
    here = np.bincount(dataset.image_rows[dataset.image_rows != UNKNOWN], minlength=num_images)
    if (there != here).any():
        row = int((there != here).argmax())
        raise UnpairedError(
            f"{where}: has {there[row]} annotations of {dataset.images.file_names[row]}, where the "
            f"dataset has {here[row]}; in this format annotations are known by their place in the "
            f"image only, so they cannot be paired; give the {TRUTH_FILE} of `boxmend noise`"
        )


def _match_ids(where: str, ids: Ids, dataset: Dataset) -> Rows:
    """[n] Return the row of each of the dataset's ids among `ids`, or NONE."""
    row_of: dict[str, int] = {}
    for row, id in enumerate(ids.tolist()):
        if row_of.setdefault(escape_surrogates(id), row) != row:
            raise DataError(f"{where}: annotation {id!r} appears twice; see `boxmend check`")
    return np.array(
        [row_of.get(escape_surrogates(id), NONE) for id in _list_ids(dataset)], np.int64
    )


def _id_at(dataset: Dataset, row: int) -> str:
    """Return an id as a message shows it."""
    return repr(dataset.annotation_ids[[row]].tolist()[0])  # as Python has it, not NumPy


def _list_ids(dataset: Dataset) -> list[Any]:
    """Return the ids of the annotations; refuse ids that are not unique."""
    ids: list[Any] = dataset.annotation_ids.tolist()
    if len(set(map(escape_surrogates, ids))) < len(ids):
        raise DataError("the dataset has annotations that share an id; see `boxmend check`")
    return ids


def _translate_labels(where: str, names: Sequence[str], dataset: Dataset) -> Rows:
    """Return the dataset's number of each label name, and UNKNOWN last, for the index UNKNOWN."""
    number = {name: label for label, name in enumerate(dataset.label_names)}
    labels = [number.get(name, UNKNOWN) for name in names]
    if names and number and set(labels) == {UNKNOWN}:
        raise DataError(
            f"{where}: has other label names ({names[0]!r}, ..) than the dataset "
            f"({dataset.label_names[0]!r}, ..)"
        )
    return np.array([*labels, UNKNOWN], np.int64)


def _ensure_overlapping(where: str, dataset: Dataset, truth: KnownTruth) -> KnownTruth:
    """Refuse a truth whose boxes mostly lie elsewhere: ids that are numbers agree by chance."""
    objects = np.flatnonzero(~truth.is_spurious & ~dataset.is_ignored)
    do_meet = compute_iou(dataset.boxes[objects], truth.boxes[objects]) > 0
    if len(objects) and do_meet.mean() < MIN_OVERLAPPING_SHARE:
        foreign = _id_at(dataset, int(objects[(~do_meet).argmax()]))
        raise UnpairedError(
            f"{where}: most of its boxes do not overlap those of the dataset, for instance that "
            f"of annotation {foreign}; it is the truth of another dataset"
        )
    return truth
