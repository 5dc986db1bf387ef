"""The artifacts of a cell, small enough to copy elsewhere: OUT/SCALE/cells/CELL/artifacts/

losses.svg, losses.csv    losses of right and wrong labels in the last epoch
iou.svg, changes.svg, ... figures of the report without photographs, with their numbers
before-after.jpg          images with their noisy annotations, and below with the mended ones

The pictures show the same images for all methods under one noise: the choice depends on the noisy
annotations, never on the results.
"""

import io
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.images.drawing import GREEN, RED, WHITE, Color, Outline, Panel, draw_sheet
from boxmend.errors import BoxmendError
from boxmend.repair.changes import Changes
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth
from boxmend.web.report.figure_files import write_figures
from boxmend.web.report.figures import FIGURES
from boxmend.web.report.record import Figure, RunRecord
from boxmend.web.text import display_text

ARTIFACTS_FOLDER = "artifacts"
PICTURE_FILE = "before-after.jpg"
DRAWN = ("losses", "iou", "changes", "threshold", "verdicts")
MOST_BYTES = 300_000  # of the folder
PICTURE_BYTES = 180_000
LARGEST_FIGURE = 60_000  # bytes of one figure with its numbers
QUALITIES = (85, 75, 60, 45, 30)  # of a JPEG, until it is small enough
SHOWN = 5  # images, before and after
FEWEST, MOST = 2, 6  # annotations of an image that is shown: more cannot be read
SIDE = 288  # pixels of an image's long side
LONGEST = 20  # signs of a caption


def write_artifacts(folder: Path, record: RunRecord) -> list[Path]:
    """Write the artifacts of a cell into `folder`, all or none; return their paths.

    The truth must be known. There is no picture if the method changed nothing. Raises an
    OutputError if a file cannot be written.
    """
    assert record.truth is not None
    beside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)  # of a process that was killed
    try:
        for figure in _figures(record):
            write_figures([figure], beside)
        picture = before_and_after(record.opened, record.changes, record.truth)
        if picture is not None:
            beside.mkdir(parents=True, exist_ok=True)
            (beside / PICTURE_FILE).write_bytes(picture)
        if not beside.is_dir():
            return []
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sorted(folder.iterdir())


def before_and_after(opened: OpenRun, changes: Changes, truth: KnownTruth) -> bytes | None:
    """Draw images before and after mending as JPEG; None without changes or suitable images.

    True boxes are white, annotations with a wrong label red, others green.
    """
    rows = choose_images(opened, truth)
    if not rows or not len(changes):
        return None
    given = opened.dataset
    labels, boxes = given.labels.copy(), given.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    panels = [
        _panel(opened, truth, image, said)
        for said in ((given.labels, given.boxes), (labels, boxes))
        for image in rows
    ]
    picture = draw_sheet(panels, columns=len(rows), side=SIDE)
    content = b""
    for quality in QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, optimize=True)
        content = file.getvalue()
        if len(content) <= PICTURE_BYTES:
            return content
    return None


def choose_images(opened: OpenRun, truth: KnownTruth) -> list[int]:
    """Choose the first images with few annotations, preferably with a wrong label.

    The choice does not depend on the changes.
    """
    dataset = opened.dataset
    number = len(dataset.images)
    counts = np.bincount(dataset.image_rows, minlength=number)
    is_wrong = (dataset.labels != truth.labels) & ~truth.is_spurious
    wrong = np.bincount(dataset.image_rows[is_wrong], minlength=number)
    is_few = (counts >= FEWEST) & (counts <= MOST)
    chosen = np.flatnonzero(is_few & (wrong > 0))
    if len(chosen) < SHOWN:
        chosen = np.flatnonzero(is_few)
    rows: list[int] = chosen[:SHOWN].tolist()
    return rows


def _figures(record: RunRecord) -> list[Figure]:
    """Return the figures that apply to the run and are small enough."""
    found, room = [], MOST_BYTES - PICTURE_BYTES
    for name in DRAWN:
        figure = FIGURES[name](record)
        if figure is None:
            continue
        size = 2 * len(figure.svg) + 40 * len(figure.rows)  # with its styles, and the numbers
        if size <= min(LARGEST_FIGURE, room):
            found.append(figure)
            room -= size
    return found


def _panel(
    opened: OpenRun,
    truth: KnownTruth,
    image: int,
    said: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> Panel:
    dataset, (labels, boxes) = opened.dataset, said
    outlines: list[Outline] = []
    for row in np.flatnonzero(dataset.image_rows == image).tolist():
        label = int(labels[row])
        if not truth.is_spurious[row]:
            outlines.append(_outline(truth.boxes[row].tolist(), WHITE))
        color = GREEN if label == int(truth.labels[row]) else RED
        name = display_text(dataset.label_names[label], LONGEST)
        outlines.append(_outline(boxes[row].tolist(), color, name))
    path = dataset.images.paths[image]
    if not path:
        raise BoxmendError(f"image {image} has no file")
    return Panel(Path(path), outlines)


def _outline(box: Sequence[float], color: Color, caption: str = "") -> Outline:
    x1, y1, x2, y2 = box
    return Outline((x1, y1, x2, y2), color, caption)
