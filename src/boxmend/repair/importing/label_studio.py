"""Read JSON exports of Label Studio: tasks with the annotations that people submitted.

Label Studio keeps the ids of regions and the data of tasks, so no manifest is needed. Of several
annotations of a task the latest counts. Tasks that were skipped or not annotated do not count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from boxmend.auditing.fixes.verdicts import MAX_COORDINATE
from boxmend.data.types import Box
from boxmend.errors import DataError
from boxmend.repair.export.label_studio import CONTROL
from boxmend.repair.importing.tasks import (
    ExportedRegion,
    ReturnedFile,
    ReturnedRegion,
    ReviewedImage,
    decode_json,
    round_box,
)

WHAT, REMEDY = "a JSON export of Label Studio", "export as JSON, not as JSON-MIN or another format"


class _Result(msgspec.Struct):
    id: str | int | None = None
    from_name: str | None = None
    original_width: float | None = None
    original_height: float | None = None
    value: dict[str, Any] = {}


class _Annotation(msgspec.Struct):
    result: list[_Result] = []
    was_cancelled: bool | None = False
    updated_at: str | None = None
    completed_by: Any = None


class _Data(msgspec.Struct):
    boxmend: list[ExportedRegion] = []
    file_name: str = ""
    boxmend_data: str | None = None


class _Task(msgspec.Struct):
    data: _Data
    annotations: list[_Annotation] = []


def read(path: Path, data: bytes) -> ReturnedFile:
    """Read the finished tasks of a file that `boxmend export` wrote."""
    tasks: list[_Task] = decode_json(path, data, list[_Task], WHAT, REMEDY)
    exported = [task for task in tasks if task.data.boxmend]
    if not exported:
        raise DataError(
            f"{path}: has no task that `boxmend export --to label-studio` wrote; name the "
            "file of the right project"
        )
    hashes = {task.data.boxmend_data for task in exported}
    if len(hashes) > 1:
        raise DataError(f"{path}: has tasks of several datasets; export one project at a time")
    images = [_reviewed_image(task) for task in exported]
    return ReturnedFile(
        to="label-studio",
        data_sha256=hashes.pop(),
        images=tuple(image for image in images if image is not None),
        num_unfinished=sum(image is None for image in images),
        num_foreign=len(tasks) - len(exported),
    )


def _reviewed_image(task: _Task) -> ReviewedImage | None:
    submitted = [annotation for annotation in task.annotations if not annotation.was_cancelled]
    if not submitted:
        return None
    last = max(submitted, key=lambda annotation: annotation.updated_at or "")  # first of equals
    boxes = [result for result in last.result if result.from_name == CONTROL]
    return ReviewedImage(
        name=task.data.file_name,
        size=_size(boxes),
        exported=tuple(task.data.boxmend),
        regions=tuple(_region(result) for result in boxes),
        who=_name(last.completed_by),
        when=None if last.updated_at is None else last.updated_at[:100],
    )


def _region(result: _Result) -> ReturnedRegion:
    labels = result.value.get("rectanglelabels")
    label = labels[0] if isinstance(labels, list) and len(labels) == 1 else None
    return ReturnedRegion(
        key=str(result.id),
        label=label if isinstance(label, str) else "",
        box=_box(result),
    )


def _box(result: _Result) -> Box | None:
    """Convert percent to pixels; return None if the box is rotated or not a rectangle."""
    sides = [result.value.get(name) for name in ("x", "y", "width", "height")]
    sizes = result.original_width or 0, result.original_height or 0
    numbers = [float(value) for value in (*sides, *sizes) if _is_number(value)]
    is_rotated = result.value.get("rotation") not in (None, 0)
    if len(numbers) < 6 or is_rotated:
        return None
    x, y, width, height, *size = numbers
    x1, x2 = (percent / 100 * size[0] for percent in (x, x + width))
    y1, y2 = (percent / 100 * size[1] for percent in (y, y + height))
    return round_box(x1, y1, x2, y2)


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a plausible coordinate; JSON integers can exceed a float."""
    return isinstance(value, int | float) and abs(value) <= MAX_COORDINATE


def _size(boxes: list[_Result]) -> tuple[float, float]:
    sizes = [(box.original_width or 0.0, box.original_height or 0.0) for box in boxes]
    return max(sizes, default=(0.0, 0.0))


def _name(completed_by: Any) -> str | None:
    """Return the annotator: the address if the file has it, else the id."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return str(completed_by)[:100] if isinstance(completed_by, str | int) else None
