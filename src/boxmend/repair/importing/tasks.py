"""Tasks as people gave them back, and the manifest that says what they were given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from boxmend.auditing.fixes.table import BOX_DECIMALS
from boxmend.auditing.fixes.verdicts import MAX_COORDINATE
from boxmend.data.files.digests import verify_json
from boxmend.data.files.reading import ensure_few_values, read_bytes
from boxmend.data.types import Box
from boxmend.errors import DataError, UsageError

MANIFEST_FILE = "handover.json"
MANIFEST_VERSION = 1


class Handed(msgspec.Struct, frozen=True):
    """A region that was handed over, as `handover.json` and the tasks of Label Studio have it."""

    region: str
    fixes: tuple[str, ...] = ()  # empty for annotations that were given along
    old_label: str | None = None
    old_box: Box | None = None


@dataclass(frozen=True, slots=True)
class Region:
    """A box as it came back, xyxy pixels; None where it is turned, or no box at all."""

    key: str  # the region it was, or another text
    label: str  # as the tool has it
    box: Box | None


@dataclass(frozen=True)
class Seen:
    """An image that somebody looked at."""

    name: str
    size: tuple[float, float]
    handed: tuple[Handed, ...]
    regions: tuple[Region, ...]
    who: str | None = None
    when: str | None = None


@dataclass(frozen=True)
class Returned:
    """All of a file."""

    to: str
    """The tool that wrote it, as `export --to` calls it."""
    data_sha256: str | None
    seen: tuple[Seen, ...]
    num_unseen: int
    """Images that nobody finished."""
    num_foreign: int
    """Images that were not handed over."""


class _Image(msgspec.Struct):
    file_name: str
    annotations: list[Handed]


class ExportManifest(msgspec.Struct):
    """`handover.json`, as far as it is needed."""

    boxmend_handover: int
    to: str
    data_sha256: str | None
    images: list[_Image]


def box_back(x1: float, y1: float, x2: float, y2: float) -> Box | None:
    """A box with as many digits as people mean; None for what is none, NaN included."""
    x1, y1, x2, y2 = (round(one, BOX_DECIMALS) for one in (x1, y1, x2, y2))
    is_box = (
        -MAX_COORDINATE <= x1 < x2 <= MAX_COORDINATE
        and -MAX_COORDINATE <= y1 < y2 <= MAX_COORDINATE
    )
    return (x1, y1, x2, y2) if is_box else None


def read_limited(path: Path) -> bytes:
    """The content of a file that people hand in; a DataError where there is too much of it."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the file that the tool exported")
    return read_bytes(path, "export_bytes")


def decoded(path: Path, data: bytes, kind: Any, what: str, remedy: str) -> Any:
    """JSON of this type; a DataError where it is none."""
    ensure_few_values(data, path)
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is no {what} ({error}); {remedy}") from error


def read_manifest(file: Path, given: Path | None, to: str) -> ExportManifest:
    """The manifest of a hand-over, as named, or beside the file that came back."""
    path = file.parent / MANIFEST_FILE if given is None else given
    path = path / MANIFEST_FILE if path.is_dir() else path
    if not path.exists():
        raise UsageError(
            f"{path}: no such file; name the folder that `boxmend export` wrote by --handover"
        )
    what, remedy = f"{MANIFEST_FILE} of an audit", "bring back the one that came with the export"
    content = verify_json(path, read_limited(path), remedy)
    manifest: ExportManifest = decoded(path, content, ExportManifest, what, remedy)
    if manifest.boxmend_handover != MANIFEST_VERSION:
        raise DataError(f"{path}: is of version {manifest.boxmend_handover}; export again")
    if manifest.to != to:
        raise DataError(f"{path}: tells of a hand-over to {manifest.to}, and {file} is from {to}")
    if not any(one.fixes for image in manifest.images for one in image.annotations):
        raise DataError(f"{path}: was written before the run was audited; export again")
    return manifest
