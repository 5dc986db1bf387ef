"""JSON as other tools read it: UTF-8, one entry a line, no NaN."""

import json
from typing import Any


def json_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; of an outer list, and of lists in an outer object, a line each.

    Not one line in all, so that people can look into the file and compare two of them.
    """
    if isinstance(value, dict):
        parts = [f"{_dumped(key)}: {_lines(one)}" for key, one in value.items()]
        return ("{\n" + ",\n".join(parts) + "\n}\n").encode()
    return (_lines(value) + "\n").encode()


def _lines(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return _dumped(value)
    return "[\n" + ",\n".join(map(_dumped, value)) + "\n]"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
