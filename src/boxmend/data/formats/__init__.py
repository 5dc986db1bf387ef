"""Read and write datasets in COCO, VOC and YOLO format, detected from the address.

An address is `PATH` or `PATH:SPLIT`. One package per format reads and writes it, so its conventions
(one-based pixels, relative centers, ids or none) are in one place.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from boxmend.data.dataset import Dataset
from boxmend.data.findings import Severity
from boxmend.data.formats import coco, voc, yolo
from boxmend.data.formats.documents import Document
from boxmend.data.formats.reading import ReadOptions
from boxmend.data.joining import join
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError


class Format(Protocol):
    """The functions of a format: this module reads with them, `writing` writes with them."""

    def looks_like(self, path: Path) -> bool:
        """Return whether a file or folder has this format, by names alone."""

    def read(self, path: Path, split: str | None, options: ReadOptions) -> Dataset:
        """Read one split or all; errors of single entries become findings."""

    def list_losses(self, dataset: Dataset) -> list[str]:
        """Return a phrase for each part of a dataset that this format cannot hold."""

    def build_documents(self, dataset: Dataset, segmentation: str) -> Iterator[Document]:
        """Yield the files of a dataset: patched sources of this format, or new files.

        Notes are included if the format has a place for them.
        """

    def assign_image_paths(self, dataset: Dataset) -> list[str]:
        """Return the path of each image relative to the output folder."""

    def assign_annotation_ids(self, dataset: Dataset) -> Ids:
        """Return the annotation ids that a reader of the written dataset will get."""


INEXACT_NAME = "inexact-name"  # findings that every command reports, because a guess may be wrong
log = logging.getLogger(__name__)
FORMATS: dict[str, Format] = {"coco": coco, "voc": voc, "yolo": yolo}


def load(
    *addresses: str | Path, images: str | Path | None = None, polygons: str = "refuse"
) -> Dataset:
    """Read addresses into one Dataset; raise a DataError if anything in it is wrong.

    `images` is the folder of the images, if it is not beside the COCO file. `polygons` is for YOLO
    label files and COCO annotations without box: "refuse" polygons, or take the "box" around each.
    """
    dataset = read(*addresses, images=images, polygons=polygons)
    errors = [finding for finding in dataset.findings if finding.severity is Severity.ERROR]
    if errors:
        more = f"\nThere are {len(errors):,} errors in all." if len(errors) > 1 else ""
        raise DataError(
            f"{errors[0]}{more}\nRun `boxmend check` on the dataset for the whole list; with --fix "
            "--drop-malformed --out DIR it writes a copy that leaves out what is broken."
        )
    for finding in dataset.findings:
        if finding.kind == INEXACT_NAME:
            log.warning("%s: %s", finding.file, finding.message)
    return dataset


def read(
    *addresses: str | Path, images: str | Path | None = None, polygons: str = "refuse"
) -> Dataset:
    """Read addresses like `load`, but keep wrong entries and list them as findings."""
    if not addresses:
        raise UsageError("no dataset given")
    options = ReadOptions(Path(images) if images is not None else None, polygons)
    return join(
        [_read_one(str(address), options, group) for group, address in enumerate(addresses)]
    )


def _read_one(address: str, options: ReadOptions, group: int) -> Dataset:
    path, split = split_address(address)
    dataset = FORMATS[detect_format(path)].read(path, split, options)
    for source in dataset.sources:
        source.group, source.address = group, address
        source.images_folder = None if options.images is None else str(options.images)
    return dataset


def split_address(address: str) -> tuple[Path, str | None]:
    """Split an address into path and split; an existing path has no split."""
    path = Path(address)
    if os.path.exists(path):  # unlike Path.exists, it allows names that are too long
        return path, None
    before, colon, split = address.rpartition(":")
    if colon and split and before and os.path.exists(before):
        return Path(before), split
    raise UsageError(f"{address}: no such file or folder (an address is PATH or PATH:SPLIT)")


def detect_format(path: Path) -> str:
    """Return the name of the format of a file or folder."""
    names = [name for name, format in FORMATS.items() if format.looks_like(path)]
    if len(names) == 1:
        return names[0]
    if names:
        raise DataError(
            f"{path}: looks like {' and '.join(names)}; name the COCO .json, the YOLO .yaml or "
            "the VOC folder itself"
        )
    raise DataError(
        f"{path}: no dataset found. Expected a COCO .json file or a folder with instances_*.json, "
        "a folder with Annotations/*.xml (VOC), or a data.yaml, obj.data or classes.txt (YOLO)"
    )


__all__ = ["FORMATS", "Format", "ReadOptions", "detect_format", "load", "read", "split_address"]
