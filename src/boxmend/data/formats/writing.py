"""Writing datasets: documents and images of a dataset into a folder, whole or not at all."""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxmend.data.dataset import Dataset, Source
from boxmend.data.files.staging import stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats import FORMATS
from boxmend.data.formats.documents import Document, pause_garbage_collector
from boxmend.data.formats.image_links import ensure_copyable
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.types import Ids
from boxmend.errors import LossyError, OutputError, UsageError

IMAGES_AS = ("link", "copy", "none")
SEGMENTATION = ("flag", "drop")
SINGLE_DATASET_FORMATS = {"coco"}
"""Formats that hold several addresses in one dataset; the others get a folder for each."""


@dataclass(frozen=True)
class WriteOptions:
    """How to write, as far as it is the user's choice; see `Dataset.save`."""

    images_as: str = "link"
    allow_lossy: bool = False
    segmentation: str = "flag"
    sync: bool = True  # before the output appears, so that a power cut leaves it whole or absent

    def __post_init__(self) -> None:
        for name, choices in (("images_as", IMAGES_AS), ("segmentation", SEGMENTATION)):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} must be one of {', '.join(choices)}")


@dataclass(frozen=True)
class SaveResult:
    """What was written."""

    out: Path
    format: str
    files: dict[str, str]  # annotation file, relative to `out` -> SHA-256 of its bytes
    annotation_ids: Ids  # row by row of the dataset, as a reader of `out` will see them
    losses: tuple[str, ...]  # what the format could not hold
    images_missing: int  # images that were not there to be linked or copied


def write(dataset: Dataset, out: Path, format: str | None, options: WriteOptions) -> SaveResult:
    """Write a dataset into `out`, whole or not at all."""
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, dataset, format, options, out=out)
        ensure_unchanged(dataset)
        return saved


def write_into(
    folder: Path, dataset: Dataset, format: str | None, options: WriteOptions, *, out: Path
) -> SaveResult:
    """Write into a folder that exists; `out` is where it will be found at last."""
    name = format or native_format(dataset)
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}; known are {', '.join(FORMATS)}")
    writer = FORMATS[name]
    dataset.check_columns()
    losses = writer.list_losses(dataset)
    if losses and not options.allow_lossy:
        raise LossyError(name.upper(), losses)
    files: dict[str, str] = {}
    missing = 0
    ids = writer.assign_annotation_ids(dataset)
    for prefix, part in _parts(dataset, name):
        base = folder / prefix
        for document in writer.build_documents(part, options.segmentation):
            digest = _write_document(base, document)
            files[f"{prefix}/{document.path}".lstrip("/")] = digest
        missing += place_images(base, part, writer.assign_image_paths(part), options.images_as)
    return SaveResult(out, name, files, ids, tuple(losses), missing)


def native_format(dataset: Dataset) -> str:
    """The format a dataset was read in; COCO where there are several, or none."""
    formats = {source.format for source in dataset.sources}
    return formats.pop() if len(formats) == 1 else "coco"


def _parts(dataset: Dataset, format: str) -> list[tuple[str, Dataset]]:
    """The dataset whole, or by address where the format cannot join them: (folder, part)."""
    groups = np.array([source.group for source in dataset.sources] or [0])
    if format in SINGLE_DATASET_FORMATS or len(set(groups.tolist())) < 2:
        return [("", dataset)]
    of_image = groups[dataset.images.sources]
    parts, names = [], set[str]()
    for group in sorted(set(groups.tolist())):
        first = next(source for source in dataset.sources if source.group == group)
        rows = np.flatnonzero(of_image == group)
        parts.append((_unused_name(first, names), dataset.take_images(rows)))
    return parts


def _unused_name(source: Source, names: set[str]) -> str:
    first = source.name.strip(".") or source.format  # never "..", whatever the address was
    name, count = first, 1
    while name in names:
        count += 1
        name = f"{first}-{count}"
    names.add(name)
    return name


def _write_document(base: Path, document: Document) -> str:
    path = _inside(base, document.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with pause_garbage_collector(), path.open("xb") as file:
        for piece in document.pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def place_images(base: Path, dataset: Dataset, places: list[str], images_as: str) -> int:
    """Link or copy the images to their places; returns how many were not there."""
    if images_as == "none":
        return 0
    missing = 0
    made = set[Path]()
    placed: dict[Path, str] = {}
    for source, place in zip(dataset.images.paths, places, strict=True):
        if not source or not os.path.isfile(source):
            missing += 1
            continue
        path = os.path.abspath(source)
        target = _inside(base, place)
        if placed.get(target) == path:
            continue  # the same image listed twice
        placed[target] = path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        if images_as == "copy" or not _link(path, target):
            ensure_copyable(path)
            shutil.copyfile(path, target)
    return missing


def _inside(base: Path, name: str) -> Path:
    """The path of a file to write; names have been checked, but nothing may ever lie outside."""
    if not is_safe_name(name):
        raise OutputError(f"{name}: would lie outside of the output folder")
    return base / name


def _link(source: str, target: Path) -> bool:
    """Whether a symbolic link could be made; some systems allow none."""
    try:
        os.symlink(source, target)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, FileExistsError):
            raise
        return False
    return True
