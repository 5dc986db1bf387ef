"""The images and annotations of an export, independent of the target format."""

import math
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.data.formats import FORMATS
from boxmend.data.formats.documents import DECIMALS
from boxmend.data.images.reading import read_header_size
from boxmend.data.types import Box, Floats, Mask, Rows
from boxmend.errors import DataError
from boxmend.repair.export.naming import shorten
from boxmend.repair.export.selecting import suspicions
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun

Status = Literal["suspect", "other", "ignored"]
STATUSES: tuple[Status, ...] = ("suspect", "other", "ignored")
_SHARE_DECIMALS = 6  # the highest suspicions differ in late digits
IMAGES = "images/"  # the folder of copies or links


@dataclass(frozen=True)
class Item:
    """One annotation with its original and, for a suspect, suggested values; boxes are xyxy."""

    row: int
    """Row of the dataset; UNKNOWN for a missing annotation."""
    annotation_id: int | str | None
    status: Status
    """"suspect" if it was selected, else "other", or "ignored" for crowd and difficult objects."""
    old_label: int
    old_box: Box
    label: int
    box: Box
    score: float | None = None
    """Confidence in the suggested label; None if the method has none."""
    doubt: float | None = None
    """Doubt in the annotated label, 0 to 1."""
    suspicion: float | None = None
    """Score that ranks suspects; see `selecting.suspicions`."""
    reason: str = ""
    fixes: tuple[str, ...] = ()
    """Ids of the fixes of an audit for this annotation; verdicts refer to them."""
    kinds: tuple[str, ...] = ()
    """The kinds of these fixes, as in the table of fixes."""
    region: str = ""
    """Id of the annotation in the tool."""


@dataclass(frozen=True)
class Task:
    """One image to review."""

    row: int
    """Row of the dataset's images."""
    place: str
    """Path of a copy, relative to the output: `images/` and a unique name."""
    path: str
    """Path of the image file, which may not exist; empty if it is unknown."""
    width: int
    height: int
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        """Return the name of the image in the tool: relative, in valid Unicode."""
        return escape_surrogates(self.place.removeprefix(IMAGES))

    @property
    def suspicion(self) -> float:
        """Return the highest suspicion of its annotations."""
        return max((item.suspicion or 0.0 for item in self.items), default=0.0)


@dataclass(frozen=True)
class ImageLocations:
    """Where the tool finds the images."""

    out: Path
    """The folder of the export."""
    images_as: str = "none"
    """How images are put there: "none", "link" or "copy"."""
    image_prefix: str | None = None
    """URL before the file names of the images, for tools that fetch images."""

    def file(self, task: Task) -> str:
        """Return the path of an image file, or only its name if the path is unknown."""
        if self.images_as != "none":
            return str(self.out.absolute() / task.place)
        return os.path.abspath(task.path) if task.path else task.place


@dataclass(frozen=True, eq=False)
class Bundle:
    """All images of an export in the order of the dataset, each with at least one suspect.

    `label_names` are valid Unicode. `left_out` are the images of unknown size.
    """

    dataset: Dataset
    label_names: list[str]
    tasks: list[Task]
    left_out: list[str]
    data_sha256: str | None = None
    num_improbable: int = 0
    """Fixes of an audit that are left for review, but too improbable to export."""

    def count(self, status: Status) -> int:
        """Return the number of annotations with this status."""
        return sum(item.status == status for task in self.tasks for item in task.items)


def run_bundle(opened: OpenRun, selected: Rows, *, whole_images: bool) -> Bundle:
    """Return the selected annotations by image, with the images' other annotations if wanted.

    Leaves out images whose size neither the dataset nor the file header has. Raises a DataError if
    no image remains.
    """
    is_suspect = np.zeros(len(opened.dataset), np.bool_)
    is_suspect[selected] = True
    return make_bundle(opened.dataset, _items(opened, is_suspect, whole_images=whole_images))


def make_bundle(dataset: Dataset, items: Mapping[int, Sequence[Item]]) -> Bundle:
    """Return a bundle of items by row of their image; see `run_bundle`."""
    images = dataset.images
    places = FORMATS["coco"].assign_image_paths(dataset)
    tasks, left_out = [], []
    for row in sorted(items):
        size = _size(dataset, row)
        if size is None:
            left_out.append(images.paths[row] or images.file_names[row])
            continue
        tasks.append(Task(row, places[row], images.paths[row], *size, tuple(items[row])))
    if not tasks:
        raise DataError(
            f"{left_out[0]}: the dataset does not have the size of this image and its file cannot "
            f"be read, like those of all {len(left_out):,} images to export. Restore the images, "
            "or name the place of the dataset with images by --data"
        )
    return Bundle(
        dataset, [escape_surrogates(name) for name in dataset.label_names], tasks, left_out
    )


def describe_item(item: Item, label_names: list[str]) -> dict[str, Any]:
    """Return an annotation as plain data with label names, without values that do not apply."""
    is_missing = item.row == UNKNOWN
    description: dict[str, Any] = {
        "annotation_id": item.annotation_id,
        "status": item.status,
        "old_label": None if is_missing else label_names[item.old_label],
        "old_box": None if is_missing else list(item.old_box),
    }
    if item.status != "suspect":
        return description
    if item.fixes:
        description |= {"fixes": list(item.fixes), "kinds": list(item.kinds)}
    suggestion = {
        "label": label_names[item.label],
        "box": list(item.box),
        "score": item.score,
        "doubt": item.doubt,
        "suspicion": item.suspicion,
        "reason": item.reason,
    }
    return description | {key: value for key, value in suggestion.items() if value is not None}


def _items(opened: OpenRun, is_suspect: Mask, *, whole_images: bool) -> dict[int, list[Item]]:
    """Return the annotations to export by row of their image, in the order of the dataset."""
    dataset = opened.dataset
    is_wanted = is_suspect
    if whole_images:
        has_suspect = np.zeros(len(dataset.images) + 1, np.bool_)
        has_suspect[dataset.image_rows[is_suspect]] = True
        has_suspect[UNKNOWN] = False
        is_wanted = is_suspect | has_suspect[dataset.image_rows]
    ensure_writable(dataset, np.flatnonzero(is_wanted))
    suspicion = suspicions(opened)
    items = defaultdict(list)
    for row in np.flatnonzero(is_wanted).tolist():
        item = (
            _suspect(opened, row, float(suspicion[row]))
            if is_suspect[row]
            else other_item(dataset, row)
        )
        items[int(dataset.image_rows[row])].append(item)
    return items


def ensure_writable(dataset: Dataset, rows: Rows) -> None:
    """Raise a DataError for annotations that cannot be exported."""
    is_valid = np.isfinite(dataset.boxes[rows]).all(axis=1)
    is_valid &= (dataset.labels[rows] != UNKNOWN) & (dataset.image_rows[rows] != UNKNOWN)
    if not is_valid.all():
        annotation_id = dataset.annotation_ids[rows[~is_valid][0]]
        raise DataError(
            f"annotation {annotation_id}: has no valid label, image or box; see `boxmend check`"
        )


def other_item(dataset: Dataset, row: int) -> Item:
    """Return the item of an annotation that is not a suspect."""
    label, box = int(dataset.labels[row]), round_box(dataset.boxes[row])
    is_ignored = dataset.is_crowd[row] or dataset.is_difficult[row]
    status: Status = "ignored" if is_ignored else "other"
    region = region_id(row)
    return Item(row, annotation_id_of(dataset, row), status, label, box, label, box, region=region)


def _suspect(opened: OpenRun, row: int, suspicion: float) -> Item:
    dataset, settlement = opened.dataset, opened.settlement
    return Item(
        row=row,
        annotation_id=annotation_id_of(dataset, row),
        status="suspect",
        old_label=int(dataset.labels[row]),
        old_box=round_box(dataset.boxes[row]),
        label=int(settlement.labels[row]),
        box=round_box(settlement.boxes[row]),
        score=round_share(opened.settlement.confidences[row]),
        doubt=round_share(opened.settlement.doubts[row]),
        suspicion=round_share(suspicion),
        reason=_reason(opened, row),
        region=region_id(row),
    )


def _reason(opened: OpenRun, row: int) -> str:
    """Return the reason for suspecting an annotation; long label names are shortened."""
    settlement, names = opened.settlement, opened.dataset.label_names
    old = shorten(names[opened.dataset.labels[row]])
    votes = settlement.votes(row)
    parts = []
    match Judgement(int(opened.settlement.verdicts[row])):
        case Judgement.RELABELLED:
            new = shorten(names[settlement.labels[row]])
            parts.append(f"label: {new} instead of {old} {votes}")
        case Judgement.DISCARDED:
            parts.append(f"label: unsure of {old} {votes}")
        case Judgement.KEPT:
            doubt = opened.settlement.doubts[row]
            ending = f", doubt {doubt:.2f}" if math.isfinite(doubt) else ""
            parts.append(f"label: {old} kept {votes}{ending}")
    if opened.settlement.is_moved[row]:
        parts.append(f"box: moved, IoU {opened.settlement.iou[row]:.2f} with the annotated one")
    return "; ".join(parts)


def annotation_id_of(dataset: Dataset, row: int) -> int | str:
    """Return the id of an annotation, with the escapes of the ledger."""
    annotation_id = dataset.annotation_ids[row]
    if isinstance(annotation_id, str):
        return escape_surrogates(annotation_id)
    return int(annotation_id)


def _size(dataset: Dataset, row: int) -> tuple[int, int] | None:
    images = dataset.images
    width, height = int(images.widths[row]), int(images.heights[row])
    if width > 0 and height > 0:
        return width, height
    return read_header_size(images.paths[row])


def round_box(sides: Floats) -> Box:
    """Return a box with the decimals of the formats."""
    x1, y1, x2, y2 = sides.round(DECIMALS).tolist()
    return x1, y1, x2, y2


def region_id(row: int) -> str:
    """Return the id of an annotation in the tool."""
    return f"annotation-{row}"


def round_share(value: float) -> float | None:
    """Round a share; None if it is not finite."""
    return round(float(value), _SHARE_DECIMALS) if math.isfinite(value) else None
