"""Boxes as annotated, after centre matching, and final, on images (figure 4 of the paper)."""

import base64
from dataclasses import dataclass
from itertools import islice

from boxmend.data.types import Box
from boxmend.runs.opening import OpenRun
from boxmend.web.charts import axes, drawing, marks, words
from boxmend.web.charts.sheet import EDGE, SIZE, SMALL, WIDTH
from boxmend.web.report.figures.examples import MAX_CANDIDATES, examples
from boxmend.web.report.record import Figure, RunRecord
from boxmend.web.thumbnails import ASPECT, Window, draw_picture

NAME, TITLE = "boxes", "Boxes and labels, before and after"
COLUMNS = (
    *("annotation_id", "image", "old_label", "new_label", "confidence", "iou"),
    *(
        f"{kind}_{side}"
        for kind in ("annotated", "matched", "final")
        for side in ("x1", "y1", "x2", "y2")
    ),
)
NUM_EXAMPLES = 6
LONG_SIDE = 320  # pixels of an embedded picture
CONTEXT_SCALE = 1.4  # sides of the shown region, relative to those of the boxes
_COLUMNS_ACROSS, _GAP, _TEXT_HEIGHT = 2, 16.0, 46.0
_OUTLINES = {
    "annotated": ("#ff4d4d", "dashed"),
    "matched": ("#ffd400", "dotted"),
    "final": ("#ffffff", "solid"),
}  # colours of the paper's figure; photographs look the same in every theme
_DARK = "#101418"  # drawn below each line, so that it is visible on any photograph


@dataclass(frozen=True)
class Example:
    """An annotation with its picture."""

    row: int
    boxes: tuple[Box, Box, Box]  # annotated, matched, final
    window: Window
    picture: bytes  # JPEG


def boxes(record: RunRecord) -> Figure | None:
    """Draw changed annotations on their images; return None if none can be shown.

    Unreadable images are skipped. The choice is deterministic.
    """
    opened = record.opened
    candidates = islice(examples(opened), MAX_CANDIDATES)
    pictured = (_example(opened, row) for row in candidates)
    shown = list(islice(filter(None, pictured), NUM_EXAMPLES))
    if not shown:
        return None
    caption = (
        "Large changes with high confidence: the box as annotated (red, dashed), after centre "
        "matching (yellow, dotted) and final (white). IoU is the overlap of the annotated and the "
        "final box."
    )
    names = "; ".join(_change(opened, example.row) for example in shown)
    svg = _svg(f"{caption} {names}.", opened, shown)
    rows = [_row(opened, example) for example in shown]
    return Figure(NAME, TITLE, caption, svg, COLUMNS, rows)


def _example(opened: OpenRun, row: int) -> Example | None:
    """Return the annotation with its picture, or None if its image cannot be read."""
    settlement = opened.settlement
    columns = (opened.dataset.boxes, settlement.matched_boxes, settlement.boxes)
    sides = [column[row].tolist() for column in columns]
    annotated, matched, final = ((box[0], box[1], box[2], box[3]) for box in sides)
    image = int(opened.dataset.image_rows[row])
    path = opened.dataset.images.paths[image]
    drawn = draw_picture(path, _around(annotated, matched, final), LONG_SIDE)
    return None if drawn is None else Example(row, (annotated, matched, final), *drawn)


def _around(*boxes: Box) -> Box:
    """Return a box around all of these, CONTEXT_SCALE times as large."""
    x1, y1 = (min(box[k] for box in boxes) for k in (0, 1))
    x2, y2 = (max(box[k] for box in boxes) for k in (2, 3))
    wide, high = (CONTEXT_SCALE - 1) / 2 * (x2 - x1), (CONTEXT_SCALE - 1) / 2 * (y2 - y1)
    return x1 - wide, y1 - high, x2 + wide, y2 + high


def _row(opened: OpenRun, example: Example) -> tuple[str | int | float | None, ...]:
    dataset, row = opened.dataset, example.row
    return (
        dataset.annotation_ids[row : row + 1].tolist()[0],
        dataset.images.file_names[int(dataset.image_rows[row])],
        dataset.label_names[dataset.labels[row]],
        dataset.label_names[opened.settlement.labels[row]],
        float(opened.settlement.confidences[row]),
        float(opened.settlement.iou[row]),
        *(side for box in example.boxes for side in box),
    )


def _change(opened: OpenRun, row: int, room: float = 1e9) -> str:
    """Return the change of the label as text; each name gets half of the room."""
    names = opened.dataset.label_names
    old, new = opened.dataset.labels[row], opened.settlement.labels[row]
    if old == new:
        return words.shorten_text(names[old], room, SIZE)
    half = room / 2 - SIZE
    texts = (words.shorten_text(names[label], half, SIZE) for label in (old, new))
    return " → ".join(map(words.isolate_text, texts))


def _svg(message: str, opened: OpenRun, shown: list[Example]) -> str:
    width = (WIDTH - 2 * EDGE - _GAP * (_COLUMNS_ACROSS - 1)) / _COLUMNS_ACROSS
    height = width / ASPECT
    parts = [_keys()]
    for k, example in enumerate(shown):
        row, column = divmod(k, _COLUMNS_ACROSS)
        left = EDGE + column * (width + _GAP)
        top = 34 + row * (height + _TEXT_HEIGHT + 10)
        parts.append(_photograph(axes.Plot(left, top, width, height), example))
        base = top + height + SIZE + 5
        parts.append(marks.text((left, base), _change(opened, example.row, width)))
        details = _details(opened, example.row)
        parts.append(marks.text((left, base + 19), details, "muted", size=SMALL))
    rows = -(-len(shown) // _COLUMNS_ACROSS)
    size = (WIDTH, 34 + rows * (height + _TEXT_HEIGHT + 10))
    return drawing(NAME, TITLE, message, size, "".join(parts))


def _details(opened: OpenRun, row: int) -> str:
    confidence = words.percent(float(opened.settlement.confidences[row]))
    overlap = f"{float(opened.settlement.iou[row]):.2f}"
    return f"confidence {confidence}, IoU {overlap}"


def _photograph(cell: axes.Plot, example: Example) -> str:
    """Draw the picture of an example at the corner of its cell, with the three boxes."""
    x1, y1, x2, y2 = example.window
    scale = min(cell.width / (x2 - x1), cell.height / (y2 - y1))
    width, height = (x2 - x1) * scale, (y2 - y1) * scale
    left, top = cell.left, cell.top
    data = base64.b64encode(example.picture).decode("ascii")
    place = "".join(
        f' {name}="{marks.coordinate(value)}"'
        for name, value in (("x", left), ("y", top), ("width", width), ("height", height))
    )
    image = f'<image{place} href="data:image/jpeg;base64,{data}"/>'
    below, above = "", ""  # dark lines are below all others: boxes in the same place stay visible
    for box, (color, dash) in zip(example.boxes, _OUTLINES.values(), strict=True):
        corners = [
            (left + (min(max(x, x1), x2) - x1) * scale, top + (min(max(y, y1), y2) - y1) * scale)
            for x, y in (box[:2], box[2:])
        ]
        under, over = _outline(corners[0], corners[1], color, dash)
        below, above = below + under, above + over
    return image + below + above


def _outline(low: marks.Point, high: marks.Point, color: str, dash: str) -> tuple[str, str]:
    """Return the dark line below a box, and its coloured line."""
    place = "".join(
        f' {name}="{marks.coordinate(value)}"'
        for name, value in (
            *(("x", low[0]), ("y", low[1])),
            *(("width", high[0] - low[0]), ("height", high[1] - low[1])),
        )
    )
    dashes = f' stroke-dasharray="{marks.DASHES[dash]}"' if marks.DASHES[dash] else ""
    return (
        f'<rect{place} fill="none" stroke="{_DARK}" stroke-opacity="0.75" stroke-width="4.4"/>',
        f'<rect{place} fill="none" stroke="{color}" stroke-width="2.2"{dashes}/>',
    )


def _keys() -> str:
    """Draw the legend; each line is on a dark strip because white is invisible on paper."""
    parts, x = [], EDGE
    for name, (color, dash) in _OUTLINES.items():
        dashes = f' stroke-dasharray="{marks.DASHES[dash]}"' if marks.DASHES[dash] else ""
        parts.append(
            f'<rect x="{x:g}" y="7" width="34" height="14" rx="2" fill="{_DARK}"/>'
            f'<line x1="{x + 4:g}" y1="14" x2="{x + 30:g}" y2="14" stroke="{color}" '
            f'stroke-width="2.5"{dashes}/>'
        )
        parts.append(marks.text((x + 41, 14 + SIZE * 0.35), name))
        x += 41 + words.breadth(name, SIZE) + 22
    return "".join(parts)
