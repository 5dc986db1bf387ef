"""What is handed over, before it has a format: images, each with its annotations."""

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
from boxmend.repair.export.naming import shortened
from boxmend.repair.export.selecting import suspicions
from boxmend.runs.judgement import Judgement
from boxmend.runs.opening import OpenRun

Status = Literal["suspect", "other", "ignored"]
STATUSES: tuple[Status, ...] = ("suspect", "other", "ignored")
_SHARE_DECIMALS = 6  # the most suspicious differ late
IMAGES = "images/"  # the folder of copies or links


@dataclass(frozen=True)
class Item:
    """One annotation: as it is and, for a suspect, as the run suggests it. Boxes are xyxy."""

    row: int
    """Of the dataset; UNKNOWN for an annotation that is missing there."""
    annotation_id: int | str | None
    status: Status
    """"suspect" if it was selected; else "other", or "ignored" for crowd and difficult objects."""
    old_label: int
    old_box: Box
    label: int
    box: Box
    score: float | None = None
    """Confidence in the suggested label; None where the method has none."""
    doubt: float | None = None
    """In the annotated label."""
    suspicion: float | None = None
    """By which suspects are ranked; see `selecting.suspicions`."""
    reason: str = ""
    fixes: tuple[str, ...] = ()
    """Ids of the fixes of an audit that it is about; verdicts on them are read back."""
    kinds: tuple[str, ...] = ()
    """Their kinds, in words."""
    region: str = ""
    """By which it is known again."""


@dataclass(frozen=True)
class Task:
    """One image to look at."""

    row: int
    """Of the dataset's images."""
    place: str
    """Where a copy goes, relative to the output: `images/` and a name that no other file has."""
    path: str
    """Where the file lies, or would; empty where that is not known."""
    width: int
    height: int
    items: tuple[Item, ...]

    @property
    def name(self) -> str:
        """By which the image is known to people and tools: relative, and valid Unicode."""
        return escape_surrogates(self.place.removeprefix(IMAGES))

    @property
    def suspicion(self) -> float:
        """The highest among its annotations."""
        return max((item.suspicion or 0.0 for item in self.items), default=0.0)


@dataclass(frozen=True)
class ImageLocations:
    """Where the images will be found by whoever reads what is handed over."""

    out: Path
    """The folder that is handed over."""
    images_as: str = "none"
    """Whether the images go there, too: "none", "link" or "copy"."""
    image_prefix: str | None = None
    """What to put in front of an image's name to get its address, for tools that fetch images."""

    def file(self, task: Task) -> str:
        """The path of an image's file; only its name where nothing more is known."""
        if self.images_as != "none":
            return str(self.out.absolute() / task.place)
        return os.path.abspath(task.path) if task.path else task.place


@dataclass(frozen=True, eq=False)
class Bundle:
    """Everything that goes to people: images in the order of the dataset, with at least a suspect.

    `label_names` are valid Unicode. `left_out` are the images whose size is not known.
    """

    dataset: Dataset
    label_names: list[str]
    tasks: list[Task]
    left_out: list[str]
    data_sha256: str | None = None
    num_unasked: int = 0
    """Fixes of an audit that are left for review, but too improbable to be handed over."""

    def count(self, status: Status) -> int:
        """How many annotations have this status."""
        return sum(item.status == status for task in self.tasks for item in task.items)


def bundle_of(opened: OpenRun, selected: Rows, *, whole_images: bool) -> Bundle:
    """Gather the selected annotations by image, with the images' others where those are wanted.

    Images whose size neither the dataset nor the file's header tells are left out; a DataError
    where none is left.
    """
    is_suspect = np.zeros(len(opened.dataset), np.bool_)
    is_suspect[selected] = True
    return gathered(opened.dataset, _items(opened, is_suspect, whole_images=whole_images))


def gathered(dataset: Dataset, items: Mapping[int, Sequence[Item]]) -> Bundle:
    """A bundle of items by row of their image; see `bundle_of`."""
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
            f"{left_out[0]}: the dataset does not tell the size of this image and its file cannot "
            f"be read; so it is for all {len(left_out):,} images to hand over. Bring them back, "
            "or name the dataset where they are by --data"
        )
    return Bundle(
        dataset, [escape_surrogates(name) for name in dataset.label_names], tasks, left_out
    )


def record(item: Item, label_names: list[str]) -> dict[str, Any]:
    """An annotation as plain data, with label names; what does not apply is left out."""
    is_missing = item.row == UNKNOWN
    told: dict[str, Any] = {
        "annotation_id": item.annotation_id,
        "status": item.status,
        "old_label": None if is_missing else label_names[item.old_label],
        "old_box": None if is_missing else list(item.old_box),
    }
    if item.status != "suspect":
        return told
    if item.fixes:
        told |= {"fixes": list(item.fixes), "kinds": list(item.kinds)}
    new = {
        "label": label_names[item.label],
        "box": list(item.box),
        "score": item.score,
        "doubt": item.doubt,
        "suspicion": item.suspicion,
        "reason": item.reason,
    }
    return told | {key: value for key, value in new.items() if value is not None}


def _items(opened: OpenRun, is_suspect: Mask, *, whole_images: bool) -> dict[int, list[Item]]:
    """The annotations to hand over by row of their image, each list in the dataset's order."""
    dataset = opened.dataset
    is_wanted = is_suspect
    if whole_images:
        is_concerned = np.zeros(len(dataset.images) + 1, np.bool_)
        is_concerned[dataset.image_rows[is_suspect]] = True
        is_concerned[UNKNOWN] = False
        is_wanted = is_suspect | is_concerned[dataset.image_rows]
    ensure_writable(dataset, np.flatnonzero(is_wanted))
    found = suspicions(opened)
    items = defaultdict(list)
    for row in np.flatnonzero(is_wanted).tolist():
        item = (
            _suspect(opened, row, float(found[row]))
            if is_suspect[row]
            else other_item(dataset, row)
        )
        items[int(dataset.image_rows[row])].append(item)
    return items


def ensure_writable(dataset: Dataset, rows: Rows) -> None:
    """Raise a DataError for annotations that no tool could be given."""
    is_fine = np.isfinite(dataset.boxes[rows]).all(axis=1)
    is_fine &= (dataset.labels[rows] != UNKNOWN) & (dataset.image_rows[rows] != UNKNOWN)
    if not is_fine.all():
        identity = dataset.annotation_ids[rows[~is_fine][0]]
        raise DataError(
            f"annotation {identity}: has no label, image or box that could be handed over; see "
            "`boxmend check`"
        )


def other_item(dataset: Dataset, row: int) -> Item:
    """An annotation as it stands."""
    label, box = int(dataset.labels[row]), box_of(dataset.boxes[row])
    is_ignored = dataset.is_crowd[row] or dataset.is_difficult[row]
    status: Status = "ignored" if is_ignored else "other"
    region = region_of(row)
    return Item(row, identity_of(dataset, row), status, label, box, label, box, region=region)


def _suspect(opened: OpenRun, row: int, suspicion: float) -> Item:
    dataset, settlement = opened.dataset, opened.settlement
    return Item(
        row=row,
        annotation_id=identity_of(dataset, row),
        status="suspect",
        old_label=int(dataset.labels[row]),
        old_box=box_of(dataset.boxes[row]),
        label=int(settlement.labels[row]),
        box=box_of(settlement.boxes[row]),
        score=share_of(opened.settlement.confidences[row]),
        doubt=share_of(opened.settlement.doubts[row]),
        suspicion=share_of(suspicion),
        reason=_reason(opened, row),
        region=region_of(row),
    )


def _reason(opened: OpenRun, row: int) -> str:
    """What speaks against an annotation, in words; long label names are shortened."""
    settlement, names = opened.settlement, opened.dataset.label_names
    old = shortened(names[opened.dataset.labels[row]])
    votes = settlement.votes(row)
    parts = []
    match Judgement(int(opened.settlement.verdicts[row])):
        case Judgement.RELABELLED:
            new = shortened(names[settlement.labels[row]])
            parts.append(f"label: {new} instead of {old} {votes}")
        case Judgement.DISCARDED:
            parts.append(f"label: unsure of {old} {votes}")
        case Judgement.KEPT:
            doubt = opened.settlement.doubts[row]
            known = f", doubt {doubt:.2f}" if math.isfinite(doubt) else ""
            parts.append(f"label: {old} kept {votes}{known}")
    if opened.settlement.is_moved[row]:
        parts.append(f"box: moved, IoU {opened.settlement.iou[row]:.2f} with the annotated one")
    return "; ".join(parts)


def identity_of(dataset: Dataset, row: int) -> int | str:
    """The id of an annotation, spelt as the ledger does."""
    identity = dataset.annotation_ids[row]
    return escape_surrogates(identity) if isinstance(identity, str) else int(identity)


def _size(dataset: Dataset, row: int) -> tuple[int, int] | None:
    images = dataset.images
    width, height = int(images.widths[row]), int(images.heights[row])
    if width > 0 and height > 0:
        return width, height
    return read_header_size(images.paths[row])


def box_of(sides: Floats) -> Box:
    """A box as people read it."""
    x1, y1, x2, y2 = sides.round(DECIMALS).tolist()  # 0.1 + 0.2 is 0.3 to people
    return x1, y1, x2, y2


def region_of(row: int) -> str:
    """By which an annotation of the dataset is known again when it comes back."""
    return f"annotation-{row}"


def share_of(value: float) -> float | None:
    """A share with as many digits as matter; None where it is not known."""
    return round(float(value), _SHARE_DECIMALS) if math.isfinite(value) else None
