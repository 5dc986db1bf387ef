"""Interpret single values of COCO entries that do not have the usual types."""

import json
import math
from itertools import chain
from typing import Any


def decode_value(text: bytes) -> Any:
    """Return a decoded value, or its bytes if it cannot be decoded."""
    try:
        return json.loads(text)  # unlike msgspec it reads NaN
    except (ValueError, RecursionError):
        return text


def to_box(value: Any) -> tuple[float, float, float, float] | None:
    """Return a box if a value is four finite numbers, else None."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    if not all(isinstance(side, int | float) and not isinstance(side, bool) for side in value):
        return None
    try:
        x, y, w, h = (float(side) for side in value)
    except OverflowError:
        return None
    return (x, y, w, h) if all(map(math.isfinite, (x, y, w, h))) else None


def surround(segmentation: Any) -> tuple[float, float, float, float] | None:
    """Return the box around the polygons of a segmentation, or None without valid polygons."""
    if not isinstance(segmentation, list) or not segmentation:
        return None
    if not all(isinstance(polygon, list) and len(polygon) >= 6 for polygon in segmentation):
        return None
    xs = [x for polygon in segmentation for x in polygon[0::2]]
    ys = [y for polygon in segmentation for y in polygon[1::2]]
    is_number = (isinstance(v, int | float) and not isinstance(v, bool) for v in chain(xs, ys))
    if len(xs) != len(ys) or not all(is_number):
        return None
    return to_box([min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)])


def to_id(value: Any, default: str) -> int | str:
    """Return a valid id or the default; whole floats, as tables export them, become integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else default


def to_flag(value: Any) -> int:
    """Return 1 for a number that is not zero, or true, else 0."""
    return int(bool(value)) if isinstance(value, bool | int | float) else 0


def quote(value: Any) -> str:
    """Return a value as a short text for a message."""
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
