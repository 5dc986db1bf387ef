"""The entries of a file of detections: decoded in portions, and looked at singly if one is odd."""

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

PORTION = 1024  # entries decoded at once: more fall out of the processor's cache
LISTS = ("annotations", "predictions")  # keys under which an object may hold the list
EXPECTED = 'expected a JSON list of {"image_id", "category_id", "bbox", "score"}'
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
MOST_DIGITS = 400  # of a whole number; with more it is beyond all floats
MOST_FOLDS = 10**6
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ABSENT = msgspec.Raw()

Number = int | float


class DetectionEntry(msgspec.Struct, gc=False):
    """What is read of a detection; other keys are passed over."""

    bbox: Box
    score: float
    image_id: int | float | str | None = None
    category_id: int | float | str | None = None
    file_name: str | None = None
    category_name: str | None = None


class RichEntry(DetectionEntry, gc=False):
    """The same with what an audit can use beyond it."""

    probs: list[float] | None = None
    scores: list[float] | None = None
    fold: Annotated[int, msgspec.Meta(ge=0, le=MOST_FOLDS)] | None = None


AnyEntry = TypeVar("AnyEntry", bound=DetectionEntry)


class _Holder(msgspec.Struct):
    """An object around the list."""

    annotations: msgspec.Raw = _ABSENT
    predictions: msgspec.Raw = _ABSENT


_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


def portions(path: Path, kind: type[AnyEntry]) -> Iterator[tuple[int, list[AnyEntry]]]:
    """Yield the entries of a file as `kind`, portion by portion, each with its first place."""
    decoder = msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]  # known at run time
    data = _read(path)
    ensure_few_objects(data, path)
    try:
        entries = _list_of(data)
        ensure_objects(entries, path)
        raws = _raw_list.decode(entries)
    except UNDECODABLE:
        yield from _loosely(path, data, kind)  # NaN is no JSON, but may stand where nobody looks
        return
    for first in range(0, len(raws), PORTION):
        portion = raws[first : first + PORTION]
        try:
            yield first, decoder.decode(b"[" + b",".join(portion) + b"]")
        except UNDECODABLE:
            looked_at = enumerate(portion)
            yield first, [_entry(path, first + k, _loose(raw), kind) for k, raw in looked_at]


def refused(path: Path, index: int, why: str) -> DataError:
    """The error that tells what is wrong with one detection of a file."""
    return DataError(f"{path}: detection {index} (the first is 0): {why}")


def shown(value: Any) -> str:
    """A value in a message: as JSON has it, as far as it is, and not too long."""
    try:
        text = json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _read(path: Path) -> bytes:
    try:
        data = read_limited(path, "prediction_bytes")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file of detections") from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error
    data = data.removeprefix(_BYTE_ORDER_MARK)
    if not data.strip():
        raise DataError(f"{path}: is empty; {EXPECTED}, which may have no entries")
    return data


def _list_of(data: bytes) -> bytes | msgspec.Raw:
    """The list itself, or that of the object around it; whatever else there is, as it is."""
    if data.lstrip()[:1] != b"{":
        return data
    holder = msgspec.json.decode(data, type=_Holder)
    return next((raw for key in LISTS if (raw := getattr(holder, key)) is not _ABSENT), data)


def _loosely(path: Path, data: bytes, kind: type[AnyEntry]) -> Iterator[tuple[int, list[AnyEntry]]]:
    """The same by a slower decoder that knows NaN; says what is wrong where that fails, too."""
    ensure_few_values(data, path, "annotation_values")
    try:
        values = json.loads(data, parse_int=_whole)
    except RecursionError as error:
        raise DataError(f"{path}: JSON nested too deeply; {EXPECTED}") from error
    except ValueError as error:
        raise DataError(f"{path}: is no JSON ({error}); {EXPECTED}") from error
    if isinstance(values, dict):
        values = next((values[key] for key in LISTS if key in values), values)
    if not isinstance(values, list):
        raise DataError(f"{path}: holds {_kind(values)}; {EXPECTED}")
    numbered = enumerate(values)
    while portion := list(islice(numbered, PORTION)):
        yield portion[0][0], [_entry(path, index, value, kind) for index, value in portion]


def _loose(raw: msgspec.Raw) -> Any:
    try:
        return json.loads(bytes(raw), parse_int=_whole)
    except (ValueError, RecursionError):
        return raw


def _whole(digits: str) -> int | float:
    """A whole number; infinite where Python would refuse to read so many digits."""
    return int(digits) if len(digits) <= MOST_DIGITS else float(digits)


def _entry(path: Path, index: int, value: Any, kind: type[AnyEntry]) -> AnyEntry:
    """One detection, checked key by key."""
    if not isinstance(value, dict):
        raise refused(path, index, f"it is {_kind(value)}; {EXPECTED}")
    if not _is_box(value.get("bbox")):
        raise refused(path, index, f"bbox is {_told(value, 'bbox')}, not four finite numbers")
    if not _is_finite(value.get("score")):
        raise refused(path, index, f"score is {_told(value, 'score')}, not a finite number")
    for key in ("image_id", "category_id"):
        if not isinstance(value.get(key), Number | str | None) or type(value.get(key)) is bool:
            raise refused(path, index, f"{key} is {_told(value, key)}, not a number or a name")
    for key in ("file_name", "category_name"):
        if not isinstance(value.get(key), str | None):
            raise refused(path, index, f"{key} is {_told(value, key)}, not a name")
    x, y, width, height = map(float, value["bbox"])
    names = {key: value.get(key) for key in DetectionEntry.__struct_fields__[2:]}
    if issubclass(kind, RichEntry):
        names |= _extras(path, index, value)
    return kind((x, y, width, height), float(value["score"]), **names)


def _extras(path: Path, index: int, value: dict[str, Any]) -> dict[str, Any]:
    """Class vector and fold of one detection, checked."""
    found: dict[str, Any] = {}
    for key in ("probs", "scores"):
        found[key] = vector = value.get(key)
        if vector is None:
            continue
        if not isinstance(vector, list) or not all(map(_is_finite, vector)):
            told = _told(value, key)
            raise refused(path, index, f"{key} is {told}, not a list of finite numbers")
        found[key] = list(map(float, vector))
    found["fold"] = fold = value.get("fold")
    if fold is not None and (type(fold) is not int or not 0 <= fold <= MOST_FOLDS):
        raise refused(path, index, f"fold is {_told(value, 'fold')}, not a whole number from 0 on")
    return found


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(map(_is_finite, value))


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, Number) and type(value) is not bool and math.isfinite(value)
    except OverflowError:  # an integer beyond all measure
        return False


def _told(entry: dict[str, Any], key: str) -> str:
    return shown(entry[key]) if key in entry else "missing"


def _kind(value: Any) -> str:
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
