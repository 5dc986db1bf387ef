"""The way back: which bytes of which files a mended dataset has replaced, and what stood there.

`patch.json` tells of each file that differs its SHA-256 before and after (null where there is no
such file) and, whichever is shorter, ranges of the file after with the bytes that stood there
before (as Latin-1 text), or the whole file before (deflated, as base 64) with its size in bytes.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxmend.data.files.digests import add_json_digest, verify_json
from boxmend.data.files.limits import describe_excess, get_limit
from boxmend.data.files.reading import read_bytes
from boxmend.data.formats.documents import Edit, apply_edits
from boxmend.data.formats.reading import is_safe_name
from boxmend.errors import DataError

FORMAT_KEY = "boxmend_patch"
FORMAT_VERSION = 1
REMEDY = "put a copy of it back, or apply the run to a new folder"
LOOK_AHEAD = 64  # pieces of a file within which two versions have to meet again


@dataclass(frozen=True)
class FilePatch:
    """How to get a file back: hashes of both versions, and edits of the one after or all of it.

    A hash is None where there is no such file.
    """

    before: str | None
    after: str | None
    edits: tuple[Edit, ...] = ()
    deflated: bytes | None = None  # the file before, where that is shorter than the edits
    size: int | None = None  # bytes of the file before if deflated; earlier versions did not say

    def undone(self, data: bytes) -> bytes:
        """The file before, from the file after; a ValueError where it is above the limit."""
        if self.deflated is None:
            return b"".join(apply_edits(data, self.edits))
        size = get_limit("patch_bytes") if self.size is None else self.size
        if message := describe_excess("patch_bytes", size):
            raise ValueError(message)
        before = zlib.decompressobj().decompress(self.deflated, size + 1)
        if len(before) > size:
            stated = f"it has more than the {size:,} bytes that patch.json states"
            raise ValueError(describe_excess("patch_bytes", len(before)) or stated)
        return before


def sha256(data: bytes) -> str:
    """The hash of a file's bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def file_patch(before: bytes | None, after: bytes | None) -> FilePatch:
    """The patch that leads from a mended file back to what it was; None is no file."""
    if before is None or after is None:
        if before is None:
            return FilePatch(None, _hash(after))
        return _whole(before, after)
    try:
        edits = tuple(_edits(before, after))
    except _TooDifferentError:
        return _whole(before, after)
    size = sum(len(str(edit)) for edit in edits)
    if size > len(before) // 16:  # nothing shrinks to less; else it is not worth trying
        whole = _whole(before, after)
        if len(whole.deflated or b"") * 4 // 3 < size:
            return whole
    return FilePatch(sha256(before), sha256(after), edits)


def _whole(before: bytes, after: bytes | None) -> FilePatch:
    deflated = zlib.compress(before)
    return FilePatch(sha256(before), _hash(after), deflated=deflated, size=len(before))


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def encoded(patches: Mapping[str, FilePatch]) -> bytes:
    """`patch.json` for files by their path in the folder."""
    document = {
        FORMAT_KEY: FORMAT_VERSION,
        "files": {path: _document(one) for path, one in patches.items()},
    }
    return add_json_digest(json.dumps(document, separators=(",", ":")).encode())


def _document(patch: FilePatch) -> dict[str, Any]:
    told: dict[str, Any] = {"before": patch.before, "after": patch.after}
    if patch.deflated is not None:
        return told | {
            "deflated": base64.b64encode(patch.deflated).decode(),
            "size": patch.size,
        }
    ranges = [[start, end, old.decode("latin-1")] for start, end, old in patch.edits]
    return told | {"ranges": ranges}


def read_patches(path: Path) -> dict[str, FilePatch]:
    """The patches of a `patch.json`; a DataError where it is none, or points out of its folder."""
    try:
        document = json.loads(verify_json(path, read_bytes(path, "record_bytes"), REMEDY))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged, no JSON ({error}); {REMEDY}") from error
    if not isinstance(document, dict) or document.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(f"{path}: is no patch of version {FORMAT_VERSION} by `boxmend apply`")
    try:
        return {name: _decoded(name, one) for name, one in document["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is damaged ({error!r}); {REMEDY}") from error


def _decoded(name: str, told: Any) -> FilePatch:
    if not is_safe_name(name):
        raise ValueError(f"{name!r} lies outside of the folder")
    hashes = _told_hash(told["before"]), _told_hash(told["after"])
    if "deflated" in told:
        size = told.get("size")
        if size is not None and (type(size) is not int or size < 0):
            raise ValueError(f"size {size!r:.60}")
        content = base64.b64decode(told["deflated"], validate=True)
        return FilePatch(*hashes, deflated=content, size=size)
    if hashes[0] is None:
        return FilePatch(*hashes)
    edits, position = [], 0
    for start, end, old in told["ranges"]:
        if not (type(start) is int and type(end) is int and position <= start <= end):
            raise ValueError(f"range {start!r} to {end!r}")
        edits.append(Edit(start, end, old.encode("latin-1")))
        position = end
    return FilePatch(*hashes, tuple(edits))


def _told_hash(told: Any) -> str | None:
    return None if told is None else str(told)


def restored(path: Path, patch: FilePatch) -> bytes:
    """What a file was before, from what it is now.

    A DataError says that patch.json is damaged, or that the file would be above the limit.
    """
    try:
        before = patch.undone(b"" if patch.after is None else read_bytes(path))
    except ValueError as error:
        raise DataError(
            f"{path}: cannot be restored by patch.json: {error}; or put the original file back"
        ) from error
    except zlib.error as error:
        raise DataError(f"{path}: patch.json holds no way back for it ({error})") from error
    if sha256(before) != patch.before:
        raise DataError(f"{path}: patch.json does not lead back to what it was; it is damaged")
    return before


class _TooDifferentError(Exception):
    """Two versions of a file have nothing in common for long."""


def _edits(before: bytes, after: bytes) -> Iterator[Edit]:
    """Edits of `after` that give `before`, short where the two differ in few places.

    Both are cut into pieces (objects, or lines) and walked through side by side; where they part,
    the nearest pieces that are equal again are looked for.
    """
    mark = b"}" if after.count(b"}") > after.count(b"\n") // 8 else b"\n"
    old, new = _pieces(before, mark), _pieces(after, mark)
    i = j = at = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            at += len(new[j])
            i, j = i + 1, j + 1
            continue
        skipped, added = _meeting(old, new, i, j)
        gone = b"".join(new[j : j + added])
        yield _trimmed(at, gone, b"".join(old[i : i + skipped]))
        at += len(gone)
        i, j = i + skipped, j + added


def _pieces(data: bytes, mark: bytes) -> list[bytes]:
    *pieces, last = data.split(mark)
    return [piece + mark for piece in pieces] + [last]


def _meeting(old: list[bytes], new: list[bytes], i: int, j: int) -> tuple[int, int]:
    """How many pieces of each to pass over until they are equal again, or at their end."""
    for distance in range(1, LOOK_AHEAD):
        for skipped in range(distance + 1):
            at, to = i + skipped, j + distance - skipped
            if at < len(old) and to < len(new) and old[at] == new[to]:
                return skipped, distance - skipped
    left = len(old) - i, len(new) - j
    if max(left) >= LOOK_AHEAD:
        raise _TooDifferentError
    return left


def _trimmed(at: int, new: bytes, old: bytes) -> Edit:
    """The edit that puts `old` for `new`, without what both begin and end with."""
    shortest = min(len(new), len(old))
    first = next((k for k in range(shortest) if new[k] != old[k]), shortest)
    rest = range(shortest - first)
    last = next((k for k in rest if new[-1 - k] != old[-1 - k]), shortest - first)
    return Edit(at + first, at + len(new) - last, old[first : len(old) - last])
