"""Digests in the files that boxmend writes: damage is noticed before any content is used.

A digest is the SHA-256 of all other bytes of a file or line. It lies where other programs expect
no content, so they read the file as before:

    JSON object, JSON line   the last member, "digest"
    Parquet                  between the last column and the footer, where readers do not look
    checkpoint               the comment of the zip archive
    safetensors              the first entry of the metadata

Files of earlier versions have no digest; boxmend reads them and logs a warning. Two traces show
that a file has a digest: a name and a value at a fixed position. One flipped bit changes at most
one of the two, so a damaged file does not look like a file of an earlier version.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from boxmend.data.files.reading import open_file
from boxmend.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa  # imported late at run time: most commands need no Parquet

DAMAGED = "is damaged, or was edited since boxmend wrote it: its digest does not match its content"
VALUE_BYTES = 71  # sha256: and 64 digits
_VALUE = re.compile(rb"sha256:[0-9a-f]{64}")
_JSON_NAME, _JSON_END = b'"digest": "', b'"}'
_BINARY_NAME = b"boxmend digest "
_BINARY_BYTES = len(_BINARY_NAME) + VALUE_BYTES
_PARQUET_END_BYTES = 8  # the length of the footer, and a magic word
_COMMENT_LENGTH_BYTES = 2  # before the comment of a zip archive
_ZIP_END_BYTES = 22  # the end of an archive without a comment
_METADATA_KEY = "boxmend_digest"
_METADATA_NAME = b'{"__metadata__":{"%s":"' % _METADATA_KEY.encode()
_METADATA_AT = 8  # after the length of the header
_CHUNK_BYTES = 2**20

log = logging.getLogger(__name__)


class DamagedError(ValueError):
    """The digest of a file or line does not match its content."""

    def __init__(self) -> None:
        super().__init__("its digest does not match its content")


def add_json_digest(text: bytes) -> bytes:
    """Return a JSON object with its digest as the last member, and a line feed."""
    body = text.rstrip().removesuffix(b"}").rstrip()
    comma = b"" if body == b"{" else b", "
    return b"".join((body, comma, _JSON_NAME, _compute_digest(body), _JSON_END, b"\n"))


def split_json_digest(text: bytes) -> bytes | None:
    """Return a JSON object without its digest, or None if it has none.

    Raise a DamagedError if the digest does not match. The object is not parsed.
    """
    text = text.rstrip(b" \t\r\n")
    value_at = len(text) - len(_JSON_END) - VALUE_BYTES
    name_at = value_at - len(_JSON_NAME)
    if name_at < 0 or not _has_trace(text, name_at, _JSON_NAME):
        return None
    body = text[:name_at].removesuffix(b", ")
    if add_json_digest(body + b"}") != text + b"\n":
        raise DamagedError
    return body + b"}"


def verify_json(path: Path, data: bytes, remedy: str) -> bytes:
    """Return the JSON object in a file's content without its digest.

    Raise a DataError with the file and the remedy if the digest does not match; log a warning if
    there is none.
    """
    try:
        text = split_json_digest(data)
    except DamagedError as error:
        raise make_damage_error(path, remedy) from error
    if text is None and data.lstrip()[:1] == b"{":
        warn_no_digest(path)
    return data if text is None else text


def verify_json_lines(path: Path, data: bytes, remedy: str) -> list[bytes]:
    """Split a file of JSON lines at its line feeds and remove the digests.

    The last item is what follows the last line feed. Raise a DataError with the file, the line and
    the remedy if a digest does not match; log one warning if lines have none. Lines are not parsed.
    """
    lines, without = data.split(b"\n"), 0
    for number, line in enumerate(lines):
        try:
            text = split_json_digest(line)
            if text is None and split_json_digest(line[:-1]) is not None:
                raise DamagedError  # a flipped bit changed the line feed after the object
        except DamagedError as error:
            raise DataError(f"{path}: line {number + 1} {DAMAGED}; {remedy}") from error
        if text is not None:
            lines[number] = text
        elif line.rstrip().endswith(b"}"):
            without += 1
    if without:
        warn_no_digest(path, f"{without:,} of its lines have no digest")
    return lines


def make_damage_error(path: Path, remedy: str) -> DataError:
    """Return the error to raise for a file whose digest does not match."""
    return DataError(f"{path}: {DAMAGED}; {remedy}")


@lru_cache(maxsize=1024)
def warn_no_digest(path: Path, what: str = "has no digest") -> None:
    """Log a warning that a file has no digest, once per file."""
    log.warning(
        "%s: %s (an earlier version of boxmend wrote it), so damage stays unnoticed", path, what
    )


def encode_parquet(table: pa.Table, **options: Any) -> bytes:
    """Return a table as a Parquet file with page checksums and a digest.

    The same table, in the same chunks, gives the same bytes.
    """
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(table, buffer, write_page_checksum=True, **options)
    data = buffer.getbuffer()
    footer_at = _find_footer(data)
    value = _compute_digest(data[:footer_at], data[footer_at:])
    return b"".join((data[:footer_at], _BINARY_NAME, value, data[footer_at:]))


def read_verified_parquet(path: Path, remedy: str) -> bytes:
    """Return the content of a Parquet file; raise a DataError if its digest does not match.

    Log a warning if it has no digest. Raise the OSError of a file that cannot be read.
    """
    with open_file(path) as file:
        data = file.read()
    footer_at = _find_footer(data)
    name_at = footer_at - _BINARY_BYTES
    has_digest = name_at >= 0 and _has_trace(data, name_at, _BINARY_NAME)
    if not has_digest and _BINARY_NAME not in data:  # elsewhere if the length is damaged
        if data.startswith(b"PAR1"):
            warn_no_digest(path)
        return data
    view = memoryview(data)
    expected = _BINARY_NAME + _compute_digest(view[: max(name_at, 0)], view[footer_at:])
    if not has_digest or data[name_at:footer_at] != expected:
        raise make_damage_error(path, remedy)
    return data


def write_zip_with_digest(data: memoryview, file: BinaryIO) -> None:
    """Write a zip archive that has no comment and make its digest the comment."""
    length = _BINARY_BYTES.to_bytes(_COMMENT_LENGTH_BYTES, "little")
    archive = data[:-_COMMENT_LENGTH_BYTES]
    file.writelines((archive, length, _BINARY_NAME, _compute_digest(archive, length)))


def verify_zip(path: Path, remedy: str) -> None:
    """Raise a DataError if the digest of an archive of `write_zip_with_digest` does not match.

    Log a warning if it has no digest. Raise the OSError of a file that cannot be read.
    """
    with open_file(path) as file:
        size = file.seek(0, io.SEEK_END)
        name_at = max(size - _BINARY_BYTES, 0)
        file.seek(name_at)
        end = file.read()
        if not _has_trace(end, 0, _BINARY_NAME):
            if end[-_ZIP_END_BYTES:].startswith(b"PK"):
                warn_no_digest(path)
        elif end != _BINARY_NAME + _compute_file_digest(file, (0, name_at)):
            raise make_damage_error(path, remedy)


def write_safetensors_with_digest(data: bytes, file: BinaryIO) -> None:
    """Write a serialised safetensors file with its digest; sort the metadata by name."""
    view = memoryview(data)
    tensors_at = 8 + int.from_bytes(view[:8], "little")
    header = json.loads(bytes(view[8:tensors_at]))
    metadata = dict(sorted(header.pop("__metadata__", {}).items()))
    header = {"__metadata__": {_METADATA_KEY: "", **metadata}, **header}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    rest = text.removeprefix(_METADATA_NAME)
    rest += b" " * (-(len(text) + VALUE_BYTES) % 8)  # tensors start at a multiple of 8
    length = (len(_METADATA_NAME) + VALUE_BYTES + len(rest)).to_bytes(8, "little")
    value = _compute_digest(length, _METADATA_NAME, rest, view[tensors_at:])
    file.writelines((length, _METADATA_NAME, value, rest, view[tensors_at:]))


def verify_safetensors(path: Path, remedy: str) -> bool:
    """Return whether a safetensors file has a digest; raise a DataError if it does not match."""
    with open_file(path) as file:
        value_at = _METADATA_AT + len(_METADATA_NAME)
        head = file.read(value_at + VALUE_BYTES)
        if not _has_trace(head, _METADATA_AT, _METADATA_NAME):
            return False
        size = file.seek(0, io.SEEK_END)
        value = _compute_file_digest(file, (0, value_at), (value_at + VALUE_BYTES, size))
        is_named = head[_METADATA_AT:value_at] == _METADATA_NAME
        if not is_named or head[value_at:] != value:
            raise make_damage_error(path, remedy)
    return True


def drop_digest(metadata: dict[str, str]) -> dict[str, str]:
    """Return the metadata of a safetensors file without the digest."""
    return {name: text for name, text in metadata.items() if name != _METADATA_KEY}


def _has_trace(data: bytes, name_at: int, name: bytes) -> bool:
    """Return whether the name or the value of a digest is at its position."""
    value_at = name_at + len(name)
    value = data[value_at : value_at + VALUE_BYTES]
    return data[name_at:value_at] == name or _VALUE.fullmatch(value) is not None


def _find_footer(data: bytes | memoryview) -> int:
    """Return where the footer of a Parquet file starts; any number for other files."""
    length = int.from_bytes(data[-_PARQUET_END_BYTES:-4], "little")
    return len(data) - _PARQUET_END_BYTES - length


def _compute_digest(*pieces: bytes | memoryview) -> bytes:
    return _hash_pieces(pieces)


def _compute_file_digest(file: BinaryIO, *ranges: tuple[int, int]) -> bytes:
    """Return the digest of some ranges of a file, read in chunks."""

    def pieces() -> Iterable[bytes]:
        for start, end in ranges:
            file.seek(start)
            while start < end:
                piece = file.read(min(_CHUNK_BYTES, end - start))
                if not piece:
                    return  # the file became shorter
                start += len(piece)
                yield piece

    return _hash_pieces(pieces())


def _hash_pieces(pieces: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return b"sha256:" + digest.hexdigest().encode()
