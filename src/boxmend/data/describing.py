"""Short descriptions of records with large columns, for consoles and notebooks."""

from collections.abc import Sized
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

MAX_ENTRIES = 3  # of a list or dict that is shown
MAX_VALUE_CHARACTERS = 60
MAX_RECORD_CHARACTERS = 200
MAX_SHOWN_FIELDS = 20


def describe(record: Any) -> str:
    """Return the fields of a dataclass as one line, with the sizes of large values.

    Fields that have their default are left out.
    """
    shown = [
        f"{field.name}={_describe_value(getattr(record, field.name))}"
        for field in fields(record)
        if field.repr and not _is_default(field, getattr(record, field.name))
    ]
    more = [f"{len(shown) - MAX_SHOWN_FIELDS} more"] if len(shown) > MAX_SHOWN_FIELDS else []
    return f"{type(record).__name__}({', '.join(shown[:MAX_SHOWN_FIELDS] + more)})"


def _is_default(field: Field[Any], value: Any) -> bool:
    if field.default_factory is not MISSING:
        default = field.default_factory()
    elif field.default is not MISSING:
        default = field.default
    else:
        return False
    return type(value) is type(default) and not hasattr(value, "shape") and bool(value == default)


def _describe_value(value: Any) -> str:
    """Return a value as a short text: the shape of an array, the size of a long list.

    Floats have four digits.
    """
    if hasattr(value, "shape"):
        return f"<{type(value).__name__} {'x'.join(map(str, value.shape))}>"
    if isinstance(value, list | tuple | dict | set) and len(value) > MAX_ENTRIES:
        return f"<{type(value).__name__} of {len(value):,}>"
    if is_dataclass(value) and isinstance(value, Sized):
        return f"<{type(value).__name__} of {len(value):,}>"
    text = f"{value:.4g}" if isinstance(value, float) else " ".join(repr(value).split())
    most = MAX_RECORD_CHARACTERS if is_dataclass(value) else MAX_VALUE_CHARACTERS
    return text if len(text) <= most else f"{text[: most - 1]}…"
