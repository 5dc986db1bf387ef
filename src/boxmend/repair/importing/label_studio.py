"""Results from Label Studio: its JSON export, tasks with the annotations that people submitted.

Regions keep their ids when a prediction is submitted, and the data of a task come back as they
were, so that nothing else is needed. Of several annotations of a task the latest counts; a task
that was skipped or not annotated is not seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from boxmend.auditing.fixes.verdicts import MAX_COORDINATE
from boxmend.data.types import Box
from boxmend.errors import DataError
from boxmend.repair.export.label_studio import CONTROL
from boxmend.repair.importing.tasks import Handed, Region, Returned, Seen, box_back, decoded

WHAT, REMEDY = "JSON export of Label Studio", "export as JSON, not as JSON-MIN or another format"


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
    boxmend: list[Handed] = []
    file_name: str = ""
    boxmend_data: str | None = None


class _Task(msgspec.Struct):
    data: _Data
    annotations: list[_Annotation] = []


def read(path: Path, data: bytes) -> Returned:
    """The tasks that `boxmend export` wrote and somebody finished."""
    tasks: list[_Task] = decoded(path, data, list[_Task], WHAT, REMEDY)
    own = [task for task in tasks if task.data.boxmend]
    if not own:
        raise DataError(f"{path}: has no task that `boxmend export --to label-studio` wrote")
    told = {task.data.boxmend_data for task in own}
    if len(told) > 1:
        raise DataError(f"{path}: has tasks of several datasets; export one project at a time")
    seen = [_seen(task) for task in own]
    return Returned(
        to="label-studio",
        data_sha256=told.pop(),
        seen=tuple(one for one in seen if one is not None),
        num_unseen=sum(one is None for one in seen),
        num_foreign=len(tasks) - len(own),
    )


def _seen(task: _Task) -> Seen | None:
    submitted = [one for one in task.annotations if not one.was_cancelled]
    if not submitted:
        return None
    last = max(submitted, key=lambda one: one.updated_at or "")  # of equals the first
    boxes = [one for one in last.result if one.from_name == CONTROL]
    return Seen(
        name=task.data.file_name,
        size=_size(boxes),
        handed=tuple(task.data.boxmend),
        regions=tuple(_region(one) for one in boxes),
        who=_name(last.completed_by),
        when=None if last.updated_at is None else last.updated_at[:100],
    )


def _region(result: _Result) -> Region:
    labels = result.value.get("rectanglelabels")
    label = labels[0] if isinstance(labels, list) and len(labels) == 1 else None
    return Region(
        key=str(result.id),
        label=label if isinstance(label, str) else "",
        box=_box(result),
    )


def _box(result: _Result) -> Box | None:
    """Pixels from percents; None for what is turned, or no rectangle."""
    told = [result.value.get(name) for name in ("x", "y", "width", "height")]
    sizes = result.original_width or 0, result.original_height or 0
    numbers = [float(one) for one in (*told, *sizes) if _is_number(one)]
    is_turned = result.value.get("rotation") not in (None, 0)
    if len(numbers) < 6 or is_turned:
        return None
    x, y, width, height, *size = numbers
    x1, x2 = (one / 100 * size[0] for one in (x, x + width))
    y1, y2 = (one / 100 * size[1] for one in (y, y + height))
    return box_back(x1, y1, x2, y2)


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether this is a number that a box can have; JSON has whole ones too large for a float."""
    return isinstance(value, int | float) and abs(value) <= MAX_COORDINATE


def _size(boxes: list[_Result]) -> tuple[float, float]:
    told = [(one.original_width or 0.0, one.original_height or 0.0) for one in boxes]
    return max(told, default=(0.0, 0.0))


def _name(completed_by: Any) -> str | None:
    """Who it was: an address where the export has it, else a number."""
    if isinstance(completed_by, dict):
        completed_by = completed_by.get("email") or completed_by.get("id")
    return str(completed_by)[:100] if isinstance(completed_by, str | int) else None
