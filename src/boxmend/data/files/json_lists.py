"""Check large JSON lists from others before a decoder creates an object for each value."""

from pathlib import Path

import msgspec

from boxmend.data.files.limits import ensure_within_limit, get_limit
from boxmend.data.files.reading import SMALL_BYTES, ensure_few_values


class _AnyObject(msgspec.Struct, gc=False):
    """A JSON object whose members are skipped."""


_objects_decoder = msgspec.json.Decoder(list[_AnyObject])


def ensure_few_objects(data: bytes, path: Path) -> None:
    """Raise a DataError if a file of annotations or predictions has too many objects."""
    if len(data) > SMALL_BYTES:
        ensure_within_limit("annotation_objects", data.count(b"{"), path)


def ensure_objects(raw: bytes | msgspec.Raw, path: Path) -> None:
    """Raise a DataError if a long list has too many values that are not objects.

    A number or an empty list takes two bytes in the file and many more once decoded. Short lists,
    objects and invalid JSON pass: the reader checks their entries one by one.
    """
    data = bytes(raw) if len(memoryview(raw)) > SMALL_BYTES else b""
    if data.count(b",") <= get_limit("annotation_values"):
        return
    try:
        _objects_decoder.decode(data)
    except msgspec.ValidationError:
        ensure_few_values(data, path, "annotation_values")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
