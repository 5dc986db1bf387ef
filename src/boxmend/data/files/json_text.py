"""JSON as boxmend writes it: UTF-8 without NaN, which every parser reads."""

import json
from typing import Any


def encode_json(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> bytes:
    """Encode a value as JSON; raise a ValueError if a number is not finite.

    A lone surrogate, which comes from undecodable bytes of a file name, becomes a JSON escape.
    """
    text = json.dumps(
        value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort_keys
    )
    return text.encode("utf-8", "backslashreplace")


def encode_json_by_line(value: Any) -> bytes:
    """Encode a value as JSON with one line per entry of the outer list or lists.

    Separate lines let people read the file and compare two of them.
    """
    if isinstance(value, dict):
        parts = [encode_json(key) + b": " + _encode_lines(member) for key, member in value.items()]
        return b"{\n" + b",\n".join(parts) + b"\n}\n"
    return _encode_lines(value) + b"\n"


def _encode_lines(value: Any) -> bytes:
    if not isinstance(value, list) or not value:
        return encode_json(value)
    return b"[\n" + b",\n".join(map(encode_json, value)) + b"\n]"
