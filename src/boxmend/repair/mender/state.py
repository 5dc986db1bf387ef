"""Records of arrays and numbers as flat dicts, for checkpoints."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from boxmend.data.arguments import to_array
from boxmend.errors import UsageError

Record = TypeVar("Record")
State = Mapping[str, Any]


def flatten(record: Any, prefix: str) -> dict[str, Any]:
    """Return the fields of a dataclass and of those within it, by dotted names."""
    state: dict[str, Any] = {}
    for field in fields(record):
        name, value = f"{prefix}.{field.name}", getattr(record, field.name)
        if is_dataclass(value):
            state |= flatten(value, name)
        else:
            state[name] = value.copy() if isinstance(value, np.ndarray) else value
    return state


def restore(like: Record, state: State, prefix: str) -> Record:
    """Return a record from what `flatten` returned; `like` has the types of its fields.

    Arrays have the same number of columns as in `like`, but may have other numbers of rows.
    """
    values = {}
    for field in fields(like):  # type: ignore[arg-type]  # it is a dataclass
        name, value = f"{prefix}.{field.name}", getattr(like, field.name)
        values[field.name] = (
            restore(value, state, name) if is_dataclass(value) else _convert(value, state, name)
        )
    return replace(like, **values)  # type: ignore[type-var]


def read_value(state: State, name: str) -> Any:
    """Return a value of a state as an array; raise a UsageError if it is not there."""
    if name not in state:
        raise UsageError(
            f"the state has no {name!r}; pass what Mender.state_dict returned, of this version of "
            "boxmend"
        )
    return to_array(name, state[name])


def _convert(like: Any, state: State, name: str) -> Any:
    value = read_value(state, name)
    if not isinstance(like, np.ndarray):
        return type(like)(value.item())
    if value.ndim != like.ndim or value.shape[1:] != like.shape[1:]:
        raise UsageError(
            f"{name} of the state has shape {value.shape}, expected {like.shape}; load the state "
            "of the same dataset"
        )
    return value.astype(like.dtype)
