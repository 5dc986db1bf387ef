"""JSON that boxmend writes: UTF-8, no NaN, readable by every parser."""

import json
from typing import Any


def encode_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> bytes:
    """Encode a value as JSON; raise a ValueError where a number is not finite.

    Half a surrogate pair, which undecodable bytes of a file name leave, becomes a JSON escape.
    """
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort_keys
    )
    return text.encode("utf-8", "backslashreplace")


def encode_json_by_line(value: Any) -> bytes:
    """Encode a value as JSON; of an outer list, and of lists in an outer object, a line an entry.

    Not one line in all, so that people can look into the file and compare two of them.
    """
    if isinstance(value, dict):
        parts = [encode_json(key) + b": " + _lines(one) for key, one in value.items()]
        return b"{\n" + b",\n".join(parts) + b"\n}\n"
    return _lines(value) + b"\n"


def _lines(value: Any) -> bytes:
    if not isinstance(value, list) or not value:
        return encode_json(value)
    return b"[\n" + b",\n".join(map(encode_json, value)) + b"\n]"
