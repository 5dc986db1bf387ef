"""Write the documents and images of a dataset to a folder, completely or not at all."""

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxmend.data.dataset import Dataset, Source
from boxmend.data.describing import describe
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
    """The user's options for writing; see `Dataset.save`."""

    images_as: str = "link"
    allow_lossy: bool = False
    segmentation: str = "flag"
    sync: bool = True  # before the output appears, so that it survives a power cut

    def __post_init__(self) -> None:
        for name, choices in (("images_as", IMAGES_AS), ("segmentation", SEGMENTATION)):
            if getattr(self, name) not in choices:
                raise UsageError(f"{name} must be one of {', '.join(choices)}")


@dataclass(frozen=True, repr=False)
class SaveResult:
    """The result of writing a dataset."""

    __repr__ = describe

    out: Path
    format: str
    files: dict[str, str]  # annotation file, relative to `out` -> SHA-256 of its bytes
    annotation_ids: Ids  # row by row of the dataset, as a reader of `out` gets them
    losses: tuple[str, ...]  # parts that the format cannot hold
    images_missing: int  # image files that could not be linked or copied because they are missing


def write(dataset: Dataset, out: Path, format: str | None, options: WriteOptions) -> SaveResult:
    """Write a dataset to `out`, completely or not at all."""
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, dataset, format, options, out=out)
        ensure_unchanged(dataset)
        return saved


def write_into(
    folder: Path, dataset: Dataset, format: str | None, options: WriteOptions, *, out: Path
) -> SaveResult:
    """Write to an existing folder, which the caller later renames to `out`."""
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
    for prefix, part in _split_by_address(dataset, name):
        base = folder / prefix
        for document in writer.build_documents(part, options.segmentation):
            digest = _write_document(base, document)
            files[f"{prefix}/{document.path}".lstrip("/")] = digest
        missing += place_images(base, part, writer.assign_image_paths(part), options.images_as)
    return SaveResult(out, name, files, ids, tuple(losses), missing)


def native_format(dataset: Dataset) -> str:
    """Return the format of a dataset's source; COCO if there are several or none."""
    formats = {source.format for source in dataset.sources}
    return formats.pop() if len(formats) == 1 else "coco"


def _split_by_address(dataset: Dataset, format: str) -> list[tuple[str, Dataset]]:
    """Return pairs of folder and dataset: one, or one per address if the format needs that."""
    groups = np.array([source.group for source in dataset.sources] or [0])
    if format in SINGLE_DATASET_FORMATS or len(set(groups.tolist())) < 2:
        return [("", dataset)]
    image_groups = groups[dataset.images.sources]
    parts, names = [], set[str]()
    for group in sorted(set(groups.tolist())):
        first = next(source for source in dataset.sources if source.group == group)
        rows = np.flatnonzero(image_groups == group)
        parts.append((_choose_folder_name(first, names), dataset.take_images(rows)))
    return parts


def _choose_folder_name(source: Source, names: set[str]) -> str:
    base = source.name.strip(".") or source.format  # never ".."
    name, count = base, 1
    while name in names:
        count += 1
        name = f"{base}-{count}"
    names.add(name)
    return name


def _write_document(base: Path, document: Document) -> str:
    path = Path(_join_inside(base, document.path))
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with pause_garbage_collector(), path.open("xb") as file:
        for piece in document.pieces:
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def place_images(base: Path, dataset: Dataset, paths: list[str], images_as: str) -> int:
    """Link or copy the images to their paths; return the number of missing images."""
    if images_as == "none":
        return 0
    missing = 0
    created = set[str]()
    placed: dict[str, str] = {}
    for source, relative in zip(dataset.images.paths, paths, strict=True):
        if not source or not os.path.isfile(source):
            missing += 1
            continue
        path = os.path.abspath(source)
        target = _join_inside(base, relative)
        if placed.get(target) == path:
            continue  # the same image listed twice
        placed[target] = path
        if (parent := os.path.dirname(target)) not in created:
            os.makedirs(parent, exist_ok=True)
            created.add(parent)
        if images_as == "copy" or not _try_link(path, target):
            ensure_copyable(path)
            shutil.copyfile(path, target)
    return missing


def _join_inside(base: Path, name: str) -> str:
    """Return the path of a file to write; raise an OutputError if it lies outside of `base`.

    Paths are texts here: a Path for each of 100,000 images would take as long as its link.
    """
    if not is_safe_name(name):
        raise OutputError(f"{name}: leads outside of the output folder, so nothing was written")
    return os.path.normpath(os.path.join(base, name))


def _try_link(source: str, target: str) -> bool:
    """Make a symbolic link; return False if the system allows none."""
    try:
        os.symlink(source, target)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, FileExistsError):
            raise
        return False
    return True
