"""The bytes of a COCO document: where its entries lie, what they say, and how to change them.

Entries are decoded by msgspec into columns, chunk by chunk, while the bytes stay as they are.
An entry that does not fit the fast, typed way is looked at by itself and told as a finding.
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

CHUNK = 1024  # entries decoded at once: more fall out of the processor's cache
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding an entry may raise: other JSON than expected, no UTF-8, or nested too deeply."""

_SEPARATORS = frozenset(b" \t\r\n,")
_IS_SEPARATOR = np.zeros(256, np.bool_)
_IS_SEPARATOR[list(_SEPARATORS)] = True
BLOCK = 2**18  # bytes looked through at once
LONGEST_GAP = 64  # bytes between entries, indentation included, that are worth a look at each
_ABSENT = msgspec.Raw()
_STRINGS_AND_LAX_NUMBERS = re.compile(  # a string that never ends is taken whole, to stay linear
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
    """One array of a document: `data[starts[i]:ends[i]]` is its entry i."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)


class MisjudgedError(Exception):
    """The entries of a list are not where they seemed to be; parse it exactly."""


@dataclass(frozen=True)
class Parsed:
    """A document's three lists of entries."""

    data: bytes
    readable: bytes  # of the document's length, and valid JSON
    spans: dict[str, EntrySpans]

    def entry(self, key: str, row: int) -> bytes:
        """The bytes of an entry, as valid JSON."""
        return self.readable[self.spans[key].starts[row] : self.spans[key].ends[row]]

    def original(self, key: str, row: int) -> bytes:
        """The bytes of an entry as they stand in the document, NaN and all."""
        return self.data[self.spans[key].starts[row] : self.spans[key].ends[row]]


def parse(data: bytes, path: Path, *, exact: bool = False) -> Parsed:
    """Find the entries of a COCO document; raise a DataError where it is none.

    Unless `exact`, entries are found by their braces where that seems safe, which is quick. A
    string that holds a brace may deceive it; whoever decodes the entries then finds fewer of
    them and raises MisjudgedError.
    """
    ensure_few_objects(data, path)
    readable = _without_byte_order_mark(data)
    top = _decode_top(readable, path)
    if top is None:
        readable = _with_placeholders(readable)
        top = _decode_top(readable, path, strict=True)
    if top is None or bytes(top.images) in (b"", b"null"):
        raise DataError(f'{path}: no COCO dataset: there is no list "images" in it')
    lists = {"images": top.images, "annotations": top.annotations, "categories": top.categories}
    try:
        spans = {key: _entries(readable, raw, exact, path) for key, raw in lists.items()}
    except UNDECODABLE as error:
        raise DataError(f"{path}: no COCO dataset: {error}") from error
    return Parsed(data, readable, spans)


def _entries(data: bytes, raw: msgspec.Raw, exact: bool, path: Path) -> EntrySpans:
    if raw is _ABSENT:
        return EntrySpans(np.empty(0, np.int64), np.empty(0, np.int64))
    start = offset(data, raw)
    end = start + len(memoryview(raw))
    found = None
    if not exact and data[start : start + 1] == b"[":
        found = _flat_entries(data, start + 1, end - 1)
    if found is None:
        ensure_objects(raw, path)
        found = locate(data, _list_decoder.decode(raw))
    return found


def _without_byte_order_mark(data: bytes) -> bytes:
    """The same number of bytes, so that positions stay, with a leading mark blanked."""
    return b"   " + data[3:] if data.startswith(b"\xef\xbb\xbf") else data


def _decode_top(data: bytes, path: Path, strict: bool = False) -> _TopMembers | None:
    """Decode the document; None where it is malformed and might be so for a NaN alone."""
    try:
        return _top_members_decoder.decode(data)
    except msgspec.ValidationError as error:
        if data.lstrip()[:1] == b"[":
            raise DataError(
                f"{path}: a JSON list, not a COCO dataset. Results of a detector look like this; "
                "a dataset has images, annotations and categories"
            ) from error
        raise DataError(f"{path}: no COCO dataset: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if not strict:
            return None
        raise DataError(f"{path}: not valid JSON: {error}") from error
    except RecursionError as error:
        raise DataError(f"{path}: JSON nested too deeply to be a COCO dataset") from error


def _with_placeholders(data: bytes) -> bytes:
    """The same bytes with the NaN and Infinity of lax writers made into lists of their length.

    Nothing that is read of an entry may be a list of one, so that they are never taken for values.
    """

    def placeholder(match: re.Match[bytes]) -> bytes:
        text = match.group()
        return text if text[:1] == b'"' else b"[" + b"0".rjust(len(text) - 2) + b"]"

    return _STRINGS_AND_LAX_NUMBERS.sub(placeholder, data)


def locate(data: bytes, raws: Sequence[msgspec.Raw]) -> EntrySpans:
    """The spans of consecutive entries in the bytes that they are views of."""
    if not raws:
        return EntrySpans(np.empty(0, np.int64), np.empty(0, np.int64))
    lengths = np.fromiter([len(memoryview(raw)) for raw in raws], np.int64, len(raws))
    starts = _evenly_spaced(data, raws[0], lengths)
    if starts is None:
        starts = np.fromiter((offset(data, raw) for raw in raws), np.int64, len(raws))
    return EntrySpans(starts, starts + lengths)


def _flat_entries(data: bytes, start: int, end: int) -> EntrySpans | None:
    """The spans of what looks like flat objects, evenly separated, and nothing else; or None."""
    buffer = np.frombuffer(data, np.uint8)
    starts = _places(buffer, ord("{"), start, end)
    first_end, last_end = data.find(b"}", start, end) + 1, data.rfind(b"}", start, end) + 1
    if not len(starts) or not first_end:
        return None
    gap = int(starts[1]) - first_end if len(starts) > 1 else 1
    if not 0 < gap <= LONGEST_GAP or (data[start : starts[0]] + data[last_end:end]).strip():
        return None
    ends = np.empty_like(starts)
    np.subtract(starts[1:], gap, out=ends[:-1])
    ends[-1] = last_end
    is_flat = bool((starts < ends).all())
    at = ends[:-1].copy()  # one array moved along: new ones would cost more than the look
    for _ in range(gap):
        is_flat = is_flat and bool(_IS_SEPARATOR[buffer[at]].all())
        at += 1
    at -= gap + 1
    is_flat = is_flat and bool((buffer[at] == ord("}")).all())
    return EntrySpans(starts, ends) if is_flat else None


def _places(buffer: NDArray[np.uint8], byte: int, start: int, end: int) -> NDArray[np.int64]:
    """Where a byte stands, block by block: what fits into the processor's cache is found sooner."""
    blocks = range(start, end, BLOCK)
    found = [np.flatnonzero(buffer[at : min(at + BLOCK, end)] == byte) + at for at in blocks]
    return np.concatenate([*found, np.empty(0, np.int64)])


def _evenly_spaced(
    data: bytes, first: msgspec.Raw, lengths: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Where entries start if all gaps between them are as long as the first one, else None.

    From an entry's true start its true end follows. Where all bytes of the gap behind it are
    separators and the next one opens an object, that is the next entry's true start.
    """
    start = offset(data, first)
    behind = start + int(lengths[0])
    gap = 0
    while behind + gap < len(data) and data[behind + gap] in _SEPARATORS:
        gap += 1
    before = np.concatenate([[0], np.cumsum(lengths[:-1])])
    starts: NDArray[np.int64] = start + before + gap * np.arange(len(lengths))
    if int(starts[-1] + lengths[-1]) > len(data):
        return None
    buffer = np.frombuffer(data, np.uint8)
    fits = bool((buffer[starts] == ord("{")).all())
    for back in range(1, gap + 1):
        fits = fits and bool(_IS_SEPARATOR[buffer[starts[1:] - back]].all())
    return starts if fits else None


def offset(data: bytes, raw: msgspec.Raw) -> int:
    """The position of a view in the bytes it is a view of."""
    return _address(raw) - _address(data)


def _address(buffer: Any) -> int:
    return np.frombuffer(buffer, np.uint8).ctypes.data


def chunks(parsed: Parsed, key: str) -> Iterator[tuple[range, bytes]]:
    """The entries in portions: their rows, and all of them as one JSON list."""
    entries, view = parsed.spans[key], memoryview(parsed.readable)
    for first in range(0, len(entries), CHUNK):
        rows = range(first, min(first + CHUNK, len(entries)))
        portion = view[entries.starts[first] : entries.ends[rows[-1]]]
        yield rows, b"".join((b"[", portion, b"]"))  # copied once; `+` copies twice


def ensure_count(portion: bytes, count: int) -> None:
    """Raise MisjudgedError where a portion that cannot be decoded has not the entries it should."""
    try:
        found = len(_list_decoder.decode(portion))
    except UNDECODABLE:
        found = -1
    if found != count:
        raise MisjudgedError


def members(entry: bytes, keys: Iterable[str]) -> Spans:
    """The spans of the values of these keys, as far as an object has them.

    The keys must be among those that this module knows. Of a doubled key the last counts, as it
    does for readers of JSON. Raises one of UNDECODABLE where the entry is no object.
    """
    return _spans(_entry_members_decoder, entry, keys)


def array_span(data: bytes, key: str) -> tuple[int, int] | None:
    """The span of a top-level value, brackets included; None where the document lacks the key."""
    return _spans(_top_members_decoder, _without_byte_order_mark(data), [key]).get(key)


def all_members(entry: bytes) -> dict[str, bytes]:
    """Every key of an object, or of a document, with the bytes of its value."""
    return {key: entry[slice(*span)] for key, span in all_spans(entry).items()}


def all_spans(entry: bytes) -> Spans:
    """Every key of an object, or of a document, with the span of its value."""
    readable, found = _decoded(_all_members_decoder, _without_byte_order_mark(entry))
    return {
        key: ((start := offset(readable, raw)), start + len(memoryview(raw)))
        for key, raw in found.items()
    }


def _spans(decoder: msgspec.json.Decoder[Any], entry: bytes, keys: Iterable[str]) -> Spans:
    readable, found = _decoded(decoder, entry)
    base = _address(readable)
    spans = {}
    for key in keys:
        raw = getattr(found, key)
        if raw is not _ABSENT:
            start = _address(raw) - base
            spans[key] = (start, start + len(memoryview(raw)))
    return spans


def _decoded(decoder: msgspec.json.Decoder[Any], readable: bytes) -> tuple[bytes, Any]:
    """The members of an object as views of the bytes returned first, which have no NaN in them."""
    try:
        return readable, decoder.decode(readable)
    except msgspec.DecodeError:
        readable = _with_placeholders(readable)
        return readable, decoder.decode(readable)


def with_values(entry: bytes, values: dict[str, bytes]) -> bytes:
    """An object with the values of some keys replaced; keys that it lacks are put at its end."""
    spans = members(entry, values)
    edits = [Edit(*span, values[key]) for key, span in spans.items()]
    added = {key: value for key, value in values.items() if key not in spans}
    if added:
        edits.append(new_members(entry, added))
    return b"".join(apply_edits(entry, sorted(edits)))


def new_members(entry: bytes, added: dict[str, bytes]) -> Edit:
    """Put members behind those of an object (or document), in the manner of its first ones."""
    end = len(entry[: entry.rindex(b"}")].rstrip())
    opening = entry.index(b"{") + 1
    has_members = end > opening
    start = entry[opening : entry.index(b'"')] if has_members else b""
    spaced = b'": ' in entry[:4096]
    comma = b"," + (start if b"\n" in start else b" " if spaced else b"")
    colon = b": " if spaced else b":"
    texts = [msgspec.json.encode(key) + colon + value for key, value in added.items()]
    return Edit(end, end, (comma if has_members else b"") + comma.join(texts))


def without_entries(entries: EntrySpans, removed: NDArray[np.bool_], added: bytes) -> list[Edit]:
    """The edits that take entries out of an array, and put `added` behind those that stay."""
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


def separator(data: bytes, entries: EntrySpans) -> bytes:
    """What stands between the entries of an array; of an only one, what stands before it."""
    if len(entries) > 1:
        return data[entries.ends[0] : entries.starts[1]]
    if len(entries):
        before = data[max(0, int(entries.starts[0]) - 256) : entries.starts[0]]
        space = before[len(before.rstrip()) :]
        if b"\n" in space:
            return b"," + space
    return b", "
