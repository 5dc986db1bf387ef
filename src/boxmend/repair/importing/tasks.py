"""The content of files from annotation tools, and the manifest of the export."""

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

MANIFEST_FILE = "export.json"
MANIFEST_VERSION = 2
OLD_MANIFEST_FILE, OLD_MANIFEST_VERSION = "handover.json", 1  # of earlier versions


class ExportedRegion(msgspec.Struct, frozen=True):
    """An exported annotation, as in `export.json` and in the tasks of Label Studio."""

    region: str
    fixes: tuple[str, ...] = ()  # empty for the other annotations of an image
    old_label: str | None = None
    old_box: Box | None = None


@dataclass(frozen=True, slots=True)
class ReturnedRegion:
    """An annotation from the tool; its box is xyxy in pixels, or None if rotated or invalid."""

    key: str  # the id of an exported region, or another text
    label: str  # the name in the tool
    box: Box | None


@dataclass(frozen=True)
class ReviewedImage:
    """An image that a person reviewed."""

    name: str
    size: tuple[float, float]
    exported: tuple[ExportedRegion, ...]
    regions: tuple[ReturnedRegion, ...]
    who: str | None = None
    when: str | None = None


@dataclass(frozen=True)
class ReturnedFile:
    """The content of a file from a tool."""

    to: str
    """The tool, by its name in `export --to`."""
    data_sha256: str | None
    images: tuple[ReviewedImage, ...]
    num_unfinished: int
    """Images whose review is not finished."""
    num_foreign: int
    """Images that were not exported."""


class _Image(msgspec.Struct):
    file_name: str
    annotations: list[ExportedRegion]


class ExportManifest(msgspec.Struct):
    """The parts of `export.json` that are needed."""

    to: str
    data_sha256: str | None
    images: list[_Image]
    boxmend_export: int | None = None
    boxmend_handover: int | None = None
    """The version in files of earlier versions."""


def round_box(x1: float, y1: float, x2: float, y2: float) -> Box | None:
    """Round a box; return None for an invalid one, also with NaN."""
    x1, y1, x2, y2 = (round(side, BOX_DECIMALS) for side in (x1, y1, x2, y2))
    is_box = (
        -MAX_COORDINATE <= x1 < x2 <= MAX_COORDINATE
        and -MAX_COORDINATE <= y1 < y2 <= MAX_COORDINATE
    )
    return (x1, y1, x2, y2) if is_box else None


def read_tool_file(path: Path) -> bytes:
    """Read a file from a tool; raise a DataError if it is too large."""
    if not path.exists():
        raise UsageError(f"{path}: no such file; check the path")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; name the file that the tool exported")
    return read_bytes(path, "export_bytes")


def decode_json(path: Path, data: bytes, kind: Any, what: str, remedy: str) -> Any:
    """Decode JSON of a type; raise a DataError if it is invalid."""
    ensure_few_values(data, path)
    try:
        return msgspec.json.decode(data, type=kind, strict=True)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is not {what} ({error}); {remedy}") from error


def read_manifest(file: Path, export: Path | None, to: str) -> ExportManifest:
    """Read the manifest of an export: `export`, or the one next to the file from the tool."""
    path = file.parent if export is None else export
    if path.is_dir():
        folder, path = path, path / MANIFEST_FILE
        if not path.exists() and (folder / OLD_MANIFEST_FILE).exists():
            path = folder / OLD_MANIFEST_FILE
    if not path.exists():
        raise UsageError(f"{path}: no such file; give the folder of `boxmend export` by --export")
    what, remedy = f"the {MANIFEST_FILE} of an audit", "restore the one that `boxmend export` wrote"
    content = verify_json(path, read_tool_file(path), remedy)
    manifest: ExportManifest = decode_json(path, content, ExportManifest, what, remedy)
    if (
        manifest.boxmend_export != MANIFEST_VERSION
        and manifest.boxmend_handover != OLD_MANIFEST_VERSION
    ):
        raise DataError(f"{path}: does not have format {MANIFEST_VERSION}; export again")
    if manifest.to != to:
        raise DataError(f"{path}: is an export to {manifest.to}, but {file} is from {to}")
    if not any(region.fixes for image in manifest.images for region in image.annotations):
        raise DataError(f"{path}: was written before the run was audited; export again")
    return manifest
