"""The artifacts of a cell, small enough to copy elsewhere: OUT/SCALE/cells/CELL/artifacts/

losses.svg, losses.csv    losses of right and wrong labels in the last epoch
iou.svg, changes.svg, ... figures of the report without photographs, with their numbers
before-after.jpg          images with their noisy annotations, and below with the mended ones

The pictures show the same images for all methods under one noise: the choice depends on the noisy
annotations and not on the results.
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
FIGURE_NAMES = ("losses", "iou", "changes", "threshold", "verdicts")
MAX_FOLDER_BYTES = 300_000  # of all files
MAX_PICTURE_BYTES = 180_000
MAX_FIGURE_BYTES = 60_000  # bytes of one figure with its numbers
JPEG_QUALITIES = (85, 75, 60, 45, 30)  # tried in turn until the picture is small enough
NUM_SHOWN_IMAGES = 5  # before and after
MIN_ANNOTATIONS, MAX_ANNOTATIONS = 2, 6  # of a shown image; captions of more would overlap
LONG_SIDE_PIXELS = 288  # of each image
MAX_CAPTION_CHARACTERS = 20


def write_artifacts(folder: Path, record: RunRecord) -> list[Path]:
    """Write the artifacts of a cell into `folder`, all or none; return their paths.

    The truth must be known. There is no picture if the method changed nothing. Raises an
    OutputError if a file cannot be written.
    """
    assert record.truth is not None
    temporary = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    try:
        for figure in _choose_figures(record):
            write_figures([figure], temporary)
        picture = draw_before_and_after(record.opened, record.changes, record.truth)
        if picture is not None:
            temporary.mkdir(parents=True, exist_ok=True)
            (temporary / PICTURE_FILE).write_bytes(picture)
        if not temporary.is_dir():
            return []
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(folder.iterdir())


def draw_before_and_after(opened: OpenRun, changes: Changes, truth: KnownTruth) -> bytes | None:
    """Draw images before and after mending as JPEG; None without changes or suitable images.

    True boxes are white, annotations with a wrong label red, others green.
    """
    rows = choose_images(opened, truth)
    if not rows or not len(changes):
        return None
    dataset = opened.dataset
    labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    panels = [
        _make_panel(opened, truth, image, annotations)
        for annotations in ((dataset.labels, dataset.boxes), (labels, boxes))
        for image in rows
    ]
    picture = draw_sheet(panels, columns=len(rows), side=LONG_SIDE_PIXELS)
    content = b""
    for quality in JPEG_QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, optimize=True)
        content = file.getvalue()
        if len(content) <= MAX_PICTURE_BYTES:
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
    is_few = (counts >= MIN_ANNOTATIONS) & (counts <= MAX_ANNOTATIONS)
    chosen = np.flatnonzero(is_few & (wrong > 0))
    if len(chosen) < NUM_SHOWN_IMAGES:
        chosen = np.flatnonzero(is_few)
    rows: list[int] = chosen[:NUM_SHOWN_IMAGES].tolist()
    return rows


def _choose_figures(record: RunRecord) -> list[Figure]:
    """Return the figures that apply to the run and are small enough."""
    figures, bytes_left = [], MAX_FOLDER_BYTES - MAX_PICTURE_BYTES
    for name in FIGURE_NAMES:
        figure = FIGURES[name](record)
        if figure is None:
            continue
        size = 2 * len(figure.svg) + 40 * len(figure.rows)  # with its styles and numbers
        if size <= min(MAX_FIGURE_BYTES, bytes_left):
            figures.append(figure)
            bytes_left -= size
    return figures


def _make_panel(
    opened: OpenRun,
    truth: KnownTruth,
    image: int,
    annotations: tuple[NDArray[np.int64], NDArray[np.float64]],
) -> Panel:
    dataset, (labels, boxes) = opened.dataset, annotations
    outlines: list[Outline] = []
    for row in np.flatnonzero(dataset.image_rows == image).tolist():
        label = int(labels[row])
        if not truth.is_spurious[row]:
            outlines.append(_make_outline(truth.boxes[row].tolist(), WHITE))
        color = GREEN if label == int(truth.labels[row]) else RED
        name = display_text(dataset.label_names[label], MAX_CAPTION_CHARACTERS)
        outlines.append(_make_outline(boxes[row].tolist(), color, name))
    path = dataset.images.paths[image]
    if not path:
        raise BoxmendError(f"image {image} has no file")
    return Panel(Path(path), outlines)


def _make_outline(box: Sequence[float], color: Color, caption: str = "") -> Outline:
    x1, y1, x2, y2 = box
    return Outline((x1, y1, x2, y2), color, caption)
