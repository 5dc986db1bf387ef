"""Make and read patches that restore the original files of a repaired dataset.

`patch.json` has the SHA-256 of each changed file before and after the repair (null if there is no
such file). It also has the shorter of two: ranges of the repaired file with the original bytes (as
Latin-1 text), or the whole original file (deflated, as base 64) with its size in bytes.
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
REMEDY = "restore a copy of it, or apply the run to a new folder"
MAX_DISTANCE_PIECES = 64  # searched for two equal pieces after a difference


@dataclass(frozen=True)
class FilePatch:
    """How to restore a file: the hashes of both versions, and edits or the whole original file.

    A hash is None if there is no such file.
    """

    before: str | None
    after: str | None
    edits: tuple[Edit, ...] = ()
    deflated: bytes | None = None  # the original file, if that is shorter than the edits
    size: int | None = None  # bytes of a deflated file; None in patches of earlier versions

    def undo(self, data: bytes) -> bytes:
        """Return the original file; raise a ValueError if it is above the size limit."""
        if self.deflated is None:
            return b"".join(apply_edits(data, self.edits))
        size = get_limit("patch_bytes") if self.size is None else self.size
        if message := describe_excess("patch_bytes", size):
            raise ValueError(message)
        before = zlib.decompressobj().decompress(self.deflated, size + 1)
        if len(before) > size:
            excess = f"it has more than the {size:,} bytes that patch.json states"
            raise ValueError(describe_excess("patch_bytes", len(before)) or excess)
        return before


def sha256(data: bytes) -> str:
    """Return the hash of a file's bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def make_patch(before: bytes | None, after: bytes | None) -> FilePatch:
    """Return the patch from a repaired file back to the original one; None means no file."""
    if before is None or after is None:
        if before is None:
            return FilePatch(None, _hash(after))
        return _deflated_patch(before, after)
    try:
        edits = tuple(_edits(before, after))
    except _TooDifferentError:
        return _deflated_patch(before, after)
    size = sum(len(str(edit)) for edit in edits)
    if size > len(before) // 16:  # a deflated file is hardly ever smaller
        deflated_patch = _deflated_patch(before, after)
        if len(deflated_patch.deflated or b"") * 4 // 3 < size:  # base 64 takes 4 bytes for 3
            return deflated_patch
    return FilePatch(sha256(before), sha256(after), edits)


def _deflated_patch(before: bytes, after: bytes | None) -> FilePatch:
    deflated = zlib.compress(before)
    return FilePatch(sha256(before), _hash(after), deflated=deflated, size=len(before))


def _hash(data: bytes | None) -> str | None:
    return None if data is None else sha256(data)


def encode(patches: Mapping[str, FilePatch]) -> bytes:
    """Return the content of `patch.json` for files by their path in the folder."""
    document = {
        FORMAT_KEY: FORMAT_VERSION,
        "files": {path: _to_document(patch) for path, patch in patches.items()},
    }
    return add_json_digest(json.dumps(document, separators=(",", ":")).encode())


def _to_document(patch: FilePatch) -> dict[str, Any]:
    document: dict[str, Any] = {"before": patch.before, "after": patch.after}
    if patch.deflated is not None:
        return document | {
            "deflated": base64.b64encode(patch.deflated).decode(),
            "size": patch.size,
        }
    ranges = [[start, end, old.decode("latin-1")] for start, end, old in patch.edits]
    return document | {"ranges": ranges}


def read_patches(path: Path) -> dict[str, FilePatch]:
    """Read a `patch.json`; raise a DataError if it is invalid or names files outside its folder."""
    try:
        document = json.loads(verify_json(path, read_bytes(path, "record_bytes"), REMEDY))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is damaged, not JSON ({error}); {REMEDY}") from error
    if not isinstance(document, dict) or document.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(f"{path}: is not a patch of format {FORMAT_VERSION}; {REMEDY}")
    try:
        return {name: _decode(name, entry) for name, entry in document["files"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: is damaged ({error!r}); {REMEDY}") from error


def _decode(name: str, entry: Any) -> FilePatch:
    if not is_safe_name(name):
        raise ValueError(f"{name!r} lies outside the folder")
    hashes = _decode_hash(entry["before"]), _decode_hash(entry["after"])
    if "deflated" in entry:
        size = entry.get("size")
        if size is not None and (type(size) is not int or size < 0):
            raise ValueError(f"size {size!r:.60}")
        content = base64.b64decode(entry["deflated"], validate=True)
        return FilePatch(*hashes, deflated=content, size=size)
    if hashes[0] is None:
        return FilePatch(*hashes)
    edits, position = [], 0
    for start, end, old in entry["ranges"]:
        if not (type(start) is int and type(end) is int and position <= start <= end):
            raise ValueError(f"range {start!r} to {end!r}")
        edits.append(Edit(start, end, old.encode("latin-1")))
        position = end
    return FilePatch(*hashes, tuple(edits))


def _decode_hash(value: Any) -> str | None:
    return None if value is None else str(value)


def read_original(path: Path, patch: FilePatch) -> bytes:
    """Return the original content of a repaired file.

    Raises a DataError if patch.json is damaged, or if the content is above the size limit.
    """
    try:
        before = patch.undo(b"" if patch.after is None else read_bytes(path))
    except ValueError as error:
        raise DataError(
            f"{path}: cannot be restored by patch.json: {error}; or put a copy of the original "
            "file there"
        ) from error
    except zlib.error as error:
        raise DataError(
            f"{path}: patch.json is damaged ({error}); restore a copy of the original file"
        ) from error
    if sha256(before) != patch.before:
        raise DataError(
            f"{path}: patch.json is damaged and does not give the original file; restore a copy of "
            "that file"
        )
    return before


class _TooDifferentError(Exception):
    """Two versions of a file differ over too many pieces."""


def _edits(before: bytes, after: bytes) -> Iterator[Edit]:
    """Yield edits of `after` that give `before`.

    Splits both into pieces (objects or lines) and compares them in order. At a difference, it
    searches for the nearest pieces that are equal again.
    """
    mark = b"}" if after.count(b"}") > after.count(b"\n") // 8 else b"\n"
    old, new = _pieces(before, mark), _pieces(after, mark)
    i = j = at = 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] == new[j]:
            at += len(new[j])
            i, j = i + 1, j + 1
            continue
        num_old, num_new = _count_different(old, new, i, j)
        replaced = b"".join(new[j : j + num_new])
        yield _trim(at, replaced, b"".join(old[i : i + num_old]))
        at += len(replaced)
        i, j = i + num_old, j + num_new


def _pieces(data: bytes, mark: bytes) -> list[bytes]:
    *pieces, last = data.split(mark)
    return [piece + mark for piece in pieces] + [last]


def _count_different(old: list[bytes], new: list[bytes], i: int, j: int) -> tuple[int, int]:
    """Return how many pieces of each to skip until they are equal again, or end."""
    for distance in range(1, MAX_DISTANCE_PIECES):
        for num_old in range(distance + 1):
            num_new = distance - num_old
            at, to = i + num_old, j + num_new
            if at < len(old) and to < len(new) and old[at] == new[to]:
                return num_old, num_new
    rest = len(old) - i, len(new) - j
    if max(rest) >= MAX_DISTANCE_PIECES:
        raise _TooDifferentError
    return rest


def _trim(at: int, new: bytes, old: bytes) -> Edit:
    """Return the edit from `new` to `old` without their common start and end."""
    shortest = min(len(new), len(old))
    first = next((k for k in range(shortest) if new[k] != old[k]), shortest)
    rest = range(shortest - first)
    last = next((k for k in rest if new[-1 - k] != old[-1 - k]), shortest - first)
    return Edit(at + first, at + len(new) - last, old[first : len(old) - last])
