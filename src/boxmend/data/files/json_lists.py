"""Large JSON lists from others: checked before a decoder creates an object for each value."""

from pathlib import Path

import msgspec

from boxmend.data.files.limits import ensure_within_limit, get_limit
from boxmend.data.files.reading import SMALL_BYTES, ensure_few_values


class _AnyObject(msgspec.Struct, gc=False):
    """An object of which nothing is read."""


_objects = msgspec.json.Decoder(list[_AnyObject])


def ensure_few_objects(data: bytes, path: Path) -> None:
    """Raise a DataError where a file of annotations or predictions has too many objects."""
    if len(data) > SMALL_BYTES:
        ensure_within_limit("annotation_objects", data.count(b"{"), path)


def ensure_objects(raw: bytes | msgspec.Raw, path: Path) -> None:
    """Raise a DataError where a long list holds other values than objects.

    Numbers and empty lists take two bytes each, and a decoder creates an object of many for each.
    Short lists pass: their entries are looked at one by one. So do objects, and what is no JSON.
    """
    data = bytes(raw) if len(memoryview(raw)) > SMALL_BYTES else b""
    if data.count(b",") <= get_limit("annotation_values"):
        return
    try:
        _objects.decode(data)
    except msgspec.ValidationError:
        ensure_few_values(data, path, "annotation_values")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
