"""Find and change the entries in the bytes of a COCO document.

msgspec decodes the entries into columns, chunk by chunk, and the bytes stay as they are. An entry
that does not fit the typed decoder is decoded by itself, and its errors become findings.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.data.files.json_lists import ensure_few_objects, ensure_objects
from boxmend.data.formats.documents import Edit, apply_edits
from boxmend.errors import DataError

ENTRIES_PER_CHUNK = 1024  # decoded at once; larger chunks exceed the processor's cache
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding an entry: unexpected JSON, invalid UTF-8, or too deep nesting."""

_SEPARATORS = frozenset(b" \t\r\n,")
_IS_SEPARATOR = np.zeros(256, np.bool_)
_IS_SEPARATOR[list(_SEPARATORS)] = True
BYTES_PER_BLOCK = 2**18  # searched at once
MAX_GAP_BYTES = 64  # between entries, with indentation; larger gaps are not checked byte by byte
_ABSENT = msgspec.Raw()
_STRINGS_AND_LAX_NUMBERS = re.compile(  # matches an unterminated string as a whole, in linear time
    rb'"(?:[^"\\]++|\\.)*+"?|-?Infinity|-?NaN', re.DOTALL
)


class _TopMembers(msgspec.Struct):
    images: msgspec.Raw = _ABSENT
    annotations: msgspec.Raw = _ABSENT
    categories: msgspec.Raw = _ABSENT
    info: msgspec.Raw = _ABSENT
    licenses: msgspec.Raw = _ABSENT


class _EntryMembers(msgspec.Struct):
    id: msgspec.Raw = _ABSENT
    image_id: msgspec.Raw = _ABSENT
    category_id: msgspec.Raw = _ABSENT
    bbox: msgspec.Raw = _ABSENT
    area: msgspec.Raw = _ABSENT
    segmentation: msgspec.Raw = _ABSENT
    iscrowd: msgspec.Raw = _ABSENT
    difficult: msgspec.Raw = _ABSENT
    pose: msgspec.Raw = _ABSENT
    truncated: msgspec.Raw = _ABSENT
    occluded: msgspec.Raw = _ABSENT
    file_name: msgspec.Raw = _ABSENT
    width: msgspec.Raw = _ABSENT
    height: msgspec.Raw = _ABSENT
    name: msgspec.Raw = _ABSENT
    boxmend: msgspec.Raw = _ABSENT
    stale: msgspec.Raw = _ABSENT


_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_top_members_decoder = msgspec.json.Decoder(_TopMembers)
_entry_members_decoder = msgspec.json.Decoder(_EntryMembers)
_all_members_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

Spans = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class EntrySpans:
    """The entries of an array of a document: `data[starts[i]:ends[i]]` is entry i."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)


class MisreadError(Exception):
    """The quick search found wrong positions of entries; parse the document exactly."""


@dataclass(frozen=True)
class Parsed:
    """A document with the spans of its three lists of entries."""

    data: bytes
    readable: bytes  # valid JSON of the same length
    spans: dict[str, EntrySpans]

    def entry(self, key: str, row: int) -> bytes:
        """Return the bytes of an entry as valid JSON."""
        return self.readable[self.spans[key].starts[row] : self.spans[key].ends[row]]

    def original(self, key: str, row: int) -> bytes:
        """Return the bytes of an entry as in the document, with any NaN."""
        return self.data[self.spans[key].starts[row] : self.spans[key].ends[row]]


def parse(data: bytes, path: Path, *, exact: bool = False) -> Parsed:
    """Find the entries of a COCO document; raise a DataError if it is not one.

    Unless `exact`, the search finds entries quickly by their braces if that seems safe. A brace in
    a string may mislead it; decoding then yields another number of entries and raises a
    MisreadError.
    """
    ensure_few_objects(data, path)
    readable = _blank_byte_order_mark(data)
    top = _decode_top(readable, path)
    if top is None:
        readable = _insert_placeholders(readable)
        top = _decode_top(readable, path, strict=True)
        if top is not None:
            _refuse_numbers_for_lists(data, readable, top, path)
    if top is None or bytes(top.images) in (b"", b"null"):
        raise DataError(f'{path}: is not a COCO dataset: it has no list "images"')
    lists = {"images": top.images, "annotations": top.annotations, "categories": top.categories}
    try:
        spans = {key: _find_entries(readable, raw, exact, path) for key, raw in lists.items()}
    except UNDECODABLE as error:
        raise DataError(f"{path}: is not a COCO dataset: {error}") from error
    return Parsed(data, readable, spans)


def _refuse_numbers_for_lists(data: bytes, readable: bytes, top: _TopMembers, path: Path) -> None:
    """Raise a DataError if the placeholder of a NaN or Infinity stands for a whole list."""
    for key in ("images", "annotations", "categories"):
        raw = getattr(top, key)
        if raw is _ABSENT:
            continue
        start = get_offset(readable, raw)
        if readable[start : start + 1] == b"[" and data[start : start + 1] != b"[":
            raise DataError(f'{path}: is not a COCO dataset: "{key}" is not a list')


def _find_entries(data: bytes, raw: msgspec.Raw, exact: bool, path: Path) -> EntrySpans:
    if raw is _ABSENT:
        return EntrySpans(np.empty(0, np.int64), np.empty(0, np.int64))
    start = get_offset(data, raw)
    end = start + len(memoryview(raw))
    spans = None
    if not exact and data[start : start + 1] == b"[":
        spans = _find_flat_entries(data, start + 1, end - 1)
    if spans is None:
        ensure_objects(raw, path)
        spans = locate_entries(data, _list_decoder.decode(raw))
    return spans


def _blank_byte_order_mark(data: bytes) -> bytes:
    """Replace a leading byte order mark by blanks, so that positions stay."""
    return b"   " + data[3:] if data.startswith(b"\xef\xbb\xbf") else data


def _decode_top(data: bytes, path: Path, strict: bool = False) -> _TopMembers | None:
    """Decode the document; return None if it is malformed, perhaps because of a NaN."""
    try:
        return _top_members_decoder.decode(data)
    except msgspec.ValidationError as error:
        if data.lstrip()[:1] == b"[":
            raise DataError(
                f"{path}: is a JSON list, such as results of a detector, and not a COCO dataset; a "
                "dataset has images, annotations and categories"
            ) from error
        raise DataError(f"{path}: is not a COCO dataset: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not strict:
            return None
        raise DataError(f"{path}: is not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{path}: is JSON nested too deeply for a COCO dataset") from error


def _insert_placeholders(data: bytes) -> bytes:
    """Replace NaN and Infinity by lists of the same length, so that positions stay.

    No value of an entry may be a list of one item, so a placeholder never passes for a value.
    """

    def placeholder(match: re.Match[bytes]) -> bytes:
        text = match.group()
        return text if text[:1] == b'"' else b"[" + b"0".rjust(len(text) - 2) + b"]"

    return _STRINGS_AND_LAX_NUMBERS.sub(placeholder, data)


def locate_entries(data: bytes, raws: Sequence[msgspec.Raw]) -> EntrySpans:
    """Return the spans of consecutive entries, which are views of `data`."""
    if not raws:
        return EntrySpans(np.empty(0, np.int64), np.empty(0, np.int64))
    lengths = np.fromiter([len(memoryview(raw)) for raw in raws], np.int64, len(raws))
    starts = _compute_even_starts(data, raws[0], lengths)
    if starts is None:
        starts = np.fromiter((get_offset(data, raw) for raw in raws), np.int64, len(raws))
    return EntrySpans(starts, starts + lengths)


def _find_flat_entries(data: bytes, start: int, end: int) -> EntrySpans | None:
    """Return the spans of apparently flat objects with even gaps; None for other content."""
    buffer = np.frombuffer(data, np.uint8)
    starts = _find_byte(buffer, ord("{"), start, end)
    first_end, last_end = data.find(b"}", start, end) + 1, data.rfind(b"}", start, end) + 1
    if not len(starts) or not first_end:
        return None
    gap = int(starts[1]) - first_end if len(starts) > 1 else 1
    if not 0 < gap <= MAX_GAP_BYTES or (data[start : starts[0]] + data[last_end:end]).strip():
        return None
    ends = np.empty_like(starts)
    np.subtract(starts[1:], gap, out=ends[:-1])
    ends[-1] = last_end
    is_flat = bool((starts < ends).all())
    positions = ends[:-1].copy()  # changed in place: new arrays would take more time
    for _ in range(gap):
        is_flat = is_flat and bool(_IS_SEPARATOR[buffer[positions]].all())
        positions += 1
    positions -= gap + 1
    is_flat = is_flat and bool((buffer[positions] == ord("}")).all())
    return EntrySpans(starts, ends) if is_flat else None


def _find_byte(buffer: NDArray[np.uint8], byte: int, start: int, end: int) -> NDArray[np.int64]:
    """Return the positions of a byte; blocks that fit into the processor's cache are faster."""
    positions = [np.empty(0, np.int64)]
    for block in range(start, end, BYTES_PER_BLOCK):
        is_match = buffer[block : min(block + BYTES_PER_BLOCK, end)] == byte
        positions.append(np.flatnonzero(is_match) + block)
    return np.concatenate(positions)


def _compute_even_starts(
    data: bytes, first: msgspec.Raw, lengths: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return the starts of entries if all gaps are as long as the first one, else None.

    The end of an entry follows from its start. If all bytes of the gap after it are separators and
    the next byte opens an object, that byte is the start of the next entry.
    """
    start = get_offset(data, first)
    first_end = start + int(lengths[0])
    gap = 0
    while first_end + gap < len(data) and data[first_end + gap] in _SEPARATORS:
        gap += 1
    previous_lengths = np.concatenate([[0], np.cumsum(lengths[:-1])])
    starts: NDArray[np.int64] = start + previous_lengths + gap * np.arange(len(lengths))
    if int(starts[-1] + lengths[-1]) > len(data):
        return None
    buffer = np.frombuffer(data, np.uint8)
    is_even = bool((buffer[starts] == ord("{")).all())
    for back in range(1, gap + 1):
        is_even = is_even and bool(_IS_SEPARATOR[buffer[starts[1:] - back]].all())
    return starts if is_even else None


def get_offset(data: bytes, raw: msgspec.Raw) -> int:
    """Return the position of a view in the bytes that it views."""
    return _get_address(raw) - _get_address(data)


def _get_address(buffer: Any) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data


def iterate_chunks(parsed: Parsed, key: str) -> Iterator[tuple[range, bytes]]:
    """Yield chunks of entries: their rows, and their bytes as a JSON list."""
    entries, view = parsed.spans[key], memoryview(parsed.readable)
    for first in range(0, len(entries), ENTRIES_PER_CHUNK):
        rows = range(first, min(first + ENTRIES_PER_CHUNK, len(entries)))
        portion = view[entries.starts[first] : entries.ends[rows[-1]]]
        yield rows, b"".join((b"[", portion, b"]"))  # one copy; `+` would make two


def ensure_count(portion: bytes, count: int) -> None:
    """Raise a MisreadError unless a JSON list has `count` entries."""
    try:
        num_entries = len(_list_decoder.decode(portion))
    except UNDECODABLE:
        num_entries = -1
    if num_entries != count:
        raise MisreadError


def find_members(entry: bytes, keys: Iterable[str]) -> Spans:
    """Return the spans of the values of these keys, if an object has them.

    The keys must be fields of `_EntryMembers`. Of a repeated key the last one counts, as for all
    readers of JSON. Raise one of UNDECODABLE if the entry is not an object.
    """
    return _find_spans(_entry_members_decoder, entry, keys)


def find_array(data: bytes, key: str) -> tuple[int, int] | None:
    """Return the span of a top-level value, with brackets; None if the document lacks the key."""
    return _find_spans(_top_members_decoder, _blank_byte_order_mark(data), [key]).get(key)


def read_all_members(entry: bytes) -> dict[str, bytes]:
    """Return every key of an object or document with the bytes of its value."""
    return {key: entry[slice(*span)] for key, span in find_all_members(entry).items()}


def find_all_members(entry: bytes) -> Spans:
    """Return every key of an object or document with the span of its value."""
    readable, raws = _decode_members(_all_members_decoder, _blank_byte_order_mark(entry))
    return {
        key: ((start := get_offset(readable, raw)), start + len(memoryview(raw)))
        for key, raw in raws.items()
    }


def _find_spans(decoder: msgspec.json.Decoder[Any], entry: bytes, keys: Iterable[str]) -> Spans:
    readable, members = _decode_members(decoder, entry)
    base = _get_address(readable)
    spans = {}
    for key in keys:
        raw = getattr(members, key)
        if raw is not _ABSENT:
            start = _get_address(raw) - base
            spans[key] = (start, start + len(memoryview(raw)))
    return spans


def _decode_members(decoder: msgspec.json.Decoder[Any], readable: bytes) -> tuple[bytes, Any]:
    """Return an object's bytes without NaN, and its members as views of these bytes."""
    try:
        return readable, decoder.decode(readable)
    except msgspec.DecodeError:
        readable = _insert_placeholders(readable)
        return readable, decoder.decode(readable)


def replace_values(entry: bytes, values: dict[str, bytes]) -> bytes:
    """Return an object with the values of some keys replaced; new keys come at its end."""
    spans = find_members(entry, values)
    edits = [Edit(*span, values[key]) for key, span in spans.items()]
    added = {key: value for key, value in values.items() if key not in spans}
    if added:
        edits.append(append_members(entry, added))
    return b"".join(apply_edits(entry, sorted(edits)))


def append_members(entry: bytes, added: dict[str, bytes]) -> Edit:
    """Return the edit that appends members to an object or document, in the style of the first."""
    end = len(entry[: entry.rindex(b"}")].rstrip())
    opening = entry.index(b"{") + 1
    has_members = end > opening
    indent = entry[opening : entry.index(b'"')] if has_members else b""
    has_spaces = b'": ' in entry[:4096]
    comma = b"," + (indent if b"\n" in indent else b" " if has_spaces else b"")
    colon = b": " if has_spaces else b":"
    texts = [msgspec.json.encode(key) + colon + value for key, value in added.items()]
    return Edit(end, end, (comma if has_members else b"") + comma.join(texts))


def remove_entries(entries: EntrySpans, removed: NDArray[np.bool_], added: bytes) -> list[Edit]:
    """Return the edits that remove entries from an array and append `added` to the others."""
    kept = np.flatnonzero(~removed)
    if not len(kept):
        return [Edit(int(entries.starts[0]), int(entries.ends[-1]), added)]
    edits = []
    for row in np.flatnonzero(removed[: kept[-1]]).tolist():
        edits.append(Edit(int(entries.starts[row]), int(entries.starts[row + 1]), b""))
    tail = int(entries.ends[kept[-1]])
    if removed[-1] or added:
        edits.append(Edit(tail, int(entries.ends[-1]), added))
    return edits


def find_separator(data: bytes, entries: EntrySpans) -> bytes:
    """Return the bytes between the entries of an array; for a single one, those before it."""
    if len(entries) > 1:
        return data[entries.ends[0] : entries.starts[1]]
    if len(entries):
        before = data[max(0, int(entries.starts[0]) - 256) : entries.starts[0]]
        space = before[len(before.rstrip()) :]
        if b"\n" in space:
            return b"," + space
    return b", "
