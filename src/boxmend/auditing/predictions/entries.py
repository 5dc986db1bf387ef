"""Decode a detection file in portions; if one fails, check its entries one by one."""

import json
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from boxmend.data.files.json_lists import ensure_few_objects, ensure_objects
from boxmend.data.files.reading import describe_os_error, ensure_few_values, read_limited
from boxmend.data.types import Box
from boxmend.errors import DataError, UsageError

ENTRIES_PER_PORTION = 1024  # decoded at once, so few that they fit into the processor's cache
LIST_KEYS = ("annotations", "predictions")  # keys under which an object may hold the list
EXPECTED = 'expected a JSON list of {"image_id", "category_id", "bbox", "score"}'
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MAX_DIGITS = 400  # of a whole number; with more, it is larger than any float
MAX_FOLDS = 10**6
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ABSENT = msgspec.Raw()

Number = int | float


class DetectionEntry(msgspec.Struct, gc=False):
    """The keys of a detection that are read; other keys are ignored."""

    bbox: Box
    score: float
    image_id: int | float | str | None = None
    category_id: int | float | str | None = None
    file_name: str | None = None
    category_name: str | None = None


class RichEntry(DetectionEntry, gc=False):
    """A detection with the keys that only an audit uses."""

    probs: list[float] | None = None
    scores: list[float] | None = None
    fold: Annotated[int, msgspec.Meta(ge=0, le=MAX_FOLDS)] | None = None


AnyEntry = TypeVar("AnyEntry", bound=DetectionEntry)


class _Holder(msgspec.Struct):
    """A JSON object that holds the list."""

    annotations: msgspec.Raw = _ABSENT
    predictions: msgspec.Raw = _ABSENT


_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


def read_portions(path: Path, kind: type[AnyEntry]) -> Iterator[tuple[int, list[AnyEntry]]]:
    """Yield the entries of a file as `kind`, portion by portion, each with its first place."""
    decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]  # known at run time
    data = _read(path)
    ensure_few_objects(data, path)
    try:
        entries = _list_of(data)
        ensure_objects(entries, path)
        raws = _raw_list.decode(entries)
    except UNDECODABLE:
        # NaN is not valid JSON, but is accepted in keys that are ignored.
        yield from _read_slowly(path, data, kind)
        return
    for first in range(0, len(raws), ENTRIES_PER_PORTION):
        portion = raws[first : first + ENTRIES_PER_PORTION]
        try:
            yield first, decoder.decode(b"[" + b",".join(portion) + b"]")
        except UNDECODABLE:
            values = [(first + k, _decode_slowly(raw)) for k, raw in enumerate(portion)]
            yield first, [_check_entry(path, index, value, kind) for index, value in values]


def entry_error(path: Path, index: int, why: str) -> DataError:
    """Return the error for one invalid detection of a file."""
    return DataError(f"{path}: detection {index} (the first is 0): {why}")


def value_text(value: Any) -> str:
    """Return a value as JSON text, shortened for a message."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(path: Path) -> bytes:
    try:
        data = read_limited(path, "prediction_bytes")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; check the path") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error
    data = data.removeprefix(_BYTE_ORDER_MARK)
    if not data.strip():
        raise DataError(f"{path}: is empty; {EXPECTED}, which may have no entries")
    return data


def _list_of(data: bytes) -> bytes | msgspec.Raw:
    """Return the list of detections, also if an object holds it; return other content unchanged."""
    if data.lstrip()[:1] != b"{":
        return data
    holder = msgspec.json.decode(data, type=_Holder)
    return next((raw for key in LIST_KEYS if (raw := getattr(holder, key)) is not _ABSENT), data)


def _read_slowly(
    path: Path, data: bytes, kind: type[AnyEntry]
) -> Iterator[tuple[int, list[AnyEntry]]]:
    """Read with a slower decoder that accepts NaN; raise an error if that fails as well."""
    ensure_few_values(data, path, "annotation_values")
    try:
        values = json.loads(data, parse_int=_parse_whole_number)
    except RecursionError as error:
        raise DataError(f"{path}: JSON nested too deeply; {EXPECTED}") from error
    except ValueError as error:
        raise DataError(f"{path}: is not JSON ({error}); {EXPECTED}") from error
    if isinstance(values, dict):
        values = next((values[key] for key in LIST_KEYS if key in values), values)
    if not isinstance(values, list):
        raise DataError(f"{path}: holds {_type_name(values)}; {EXPECTED}")
    numbered = enumerate(values)
    while portion := list(islice(numbered, ENTRIES_PER_PORTION)):
        yield portion[0][0], [_check_entry(path, index, value, kind) for index, value in portion]


def _decode_slowly(raw: msgspec.Raw) -> Any:
    try:
        return json.loads(bytes(raw), parse_int=_parse_whole_number)
    except (ValueError, RecursionError):
        return raw


def _parse_whole_number(digits: str) -> int | float:
    """Return a whole number; infinity if it has too many digits for Python."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _check_entry(path: Path, index: int, value: Any, kind: type[AnyEntry]) -> AnyEntry:
    """Check one detection key by key."""
    if not isinstance(value, dict):
        raise entry_error(path, index, f"it is {_type_name(value)}; {EXPECTED}")
    if not _is_box(value.get("bbox")):
        raise entry_error(
            path, index, f"bbox is {_shown_value(value, 'bbox')}, not four finite numbers"
        )
    if not _is_finite(value.get("score")):
        raise entry_error(
            path, index, f"score is {_shown_value(value, 'score')}, not a finite number"
        )
    for key in ("image_id", "category_id"):
        if not isinstance(value.get(key), Number | str | None) or type(value.get(key)) is bool:
            raise entry_error(
                path, index, f"{key} is {_shown_value(value, key)}, not a number or a name"
            )
    for key in ("file_name", "category_name"):
        if not isinstance(value.get(key), str | None):
            raise entry_error(path, index, f"{key} is {_shown_value(value, key)}, not a name")
    x, y, width, height = map(float, value["bbox"])
    names = {key: value.get(key) for key in DetectionEntry.__struct_fields__[2:]}
    if issubclass(kind, RichEntry):
        names |= _check_extras(path, index, value)
    return kind((x, y, width, height), float(value["score"]), **names)


def _check_extras(path: Path, index: int, value: dict[str, Any]) -> dict[str, Any]:
    """Check the class vector and the fold of one detection."""
    extras: dict[str, Any] = {}
    for key in ("probs", "scores"):
        extras[key] = vector = value.get(key)
        if vector is None:
            continue
        if not isinstance(vector, list) or not all(map(_is_finite, vector)):
            value_shown = _shown_value(value, key)
            raise entry_error(path, index, f"{key} is {value_shown}, not a list of finite numbers")
        extras[key] = list(map(float, vector))
    extras["fold"] = fold = value.get("fold")
    if fold is not None and (type(fold) is not int or not 0 <= fold <= MAX_FOLDS):
        raise entry_error(
            path, index, f"fold is {_shown_value(value, 'fold')}, not a whole number from 0 on"
        )
    return extras


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_is_finite, value))


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, Number) and type(value) is not bool and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def _shown_value(entry: dict[str, Any], key: str) -> str:
    return value_text(entry[key]) if key in entry else "missing"


def _type_name(value: Any) -> str:
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        msgspec.Raw: "no text in UTF-8, or nested too deeply",
    }
    return kinds.get(type(value), "null")
