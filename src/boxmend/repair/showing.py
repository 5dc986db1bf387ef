"""The picture of a fix: its annotation before and after."""

import math

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from boxmend.auditing.fixes.table import Fixes, Kind
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.images.drawing import (
    GAP_PIXELS,
    GREEN,
    RED,
    WHITE,
    Outline,
    Panel,
    draw_panel,
)
from boxmend.data.images.reading import read_header_size
from boxmend.data.images.showing import check_side, image_file, name_of, to_box
from boxmend.data.types import Box
from boxmend.errors import DataError

WINDOW_SCALE = 2.5  # sides of the window, relative to those of the boxes
MIN_WINDOW_SHARE = 0.35  # of the image's long side, so that a tiny object has some context
BACKGROUND = (24, 26, 30)


def draw_fix(dataset: Dataset, fixes: Fixes, row: int, side: int) -> Image.Image:
    """Draw the annotation of a fix before and after, with its neighbours, and a line of text."""
    check_side(side)
    image = int(fixes.image_rows[row])
    path = image_file(dataset, image)
    size = read_header_size(str(path))
    if size is None:
        raise DataError(f"{path}: cannot be read as an image; run `boxmend check` on the dataset")
    old, new = fixes.old_boxes[row], fixes.new_boxes[row]
    window = choose_window([to_box(box) for box in (old, new) if not np.isnan(box).any()], size)
    before, after = (
        _outline_others(dataset, fixes, row, ""),
        _outline_others(dataset, fixes, row, " (kept)"),
    )
    if not np.isnan(old).any():
        before.append(Outline(to_box(old), RED, name_of(dataset, int(fixes.old_labels[row]))))
    if not np.isnan(new).any():
        after.append(Outline(to_box(new), GREEN, name_of(dataset, int(fixes.new_labels[row]))))
    panels = [draw_panel(Panel(path, outlines, window), side) for outlines in (before, after)]
    kind, p_fix = Kind(fixes.kinds[row]).words, fixes.p_fix[row]
    name = dataset.images.file_names[image]
    return _join(panels, f"{name}: {kind}, p_fix {p_fix:.2f}: {fixes.reasons[row]}")


def choose_window(boxes: list[Box], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return a window of the image that shows all boxes with some context."""
    sides = np.array(boxes).reshape(-1, 4)
    low, high = sides[:, :2].min(axis=0), sides[:, 2:].max(axis=0)
    length = max(float((high - low).max()) * WINDOW_SCALE, max(size) * MIN_WINDOW_SHARE)
    spans = []
    for center, limit in zip(((low + high) / 2).tolist(), size, strict=True):
        start = min(max(center - length / 2, 0), max(limit - length, 0))
        spans.append((math.floor(start), min(math.ceil(start + length), limit)))
    (x1, x2), (y1, y2) = spans
    return x1, y1, x2, y2


def _outline_others(dataset: Dataset, fixes: Fixes, row: int, suffix: str) -> list[Outline]:
    """Return the outlines of the other annotations of the image.

    With a suffix, the annotation that a duplicate repeats has its name and the suffix as caption.
    """
    in_image = np.flatnonzero(dataset.image_rows == fixes.image_rows[row]).tolist()
    kept, captions = int(fixes.kept_rows[row]), dict[int, str]()
    if kept != UNKNOWN and suffix:
        captions[kept] = name_of(dataset, int(dataset.labels[kept])) + suffix
    return [
        Outline(
            to_box(dataset.boxes[other]),
            WHITE,
            captions.get(other, ""),
        )
        for other in in_image
        if other != fixes.rows[row]
    ]


def _join(panels: list[Image.Image], text: str) -> Image.Image:
    """Return the panels side by side above a line of text."""
    font = ImageFont.load_default(size=14)
    widths, heights = zip(*(panel.size for panel in panels), strict=True)
    width = sum(widths) + GAP_PIXELS * (len(panels) + 1)
    height = max(heights) + 2 * GAP_PIXELS
    sheet = Image.new("RGB", (width, height + 24), BACKGROUND)
    left = GAP_PIXELS
    for panel in panels:
        sheet.paste(panel, (left, GAP_PIXELS))
        left += panel.width + GAP_PIXELS
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    draw = ImageDraw.Draw(sheet)
    while len(line) > 1 and draw.textlength(line, font=font) > width - 2 * GAP_PIXELS:
        line = line[: len(line) * 9 // 10 - 1] + "…"
    draw.text((GAP_PIXELS, height), line, font=font, fill=WHITE)
    return sheet
