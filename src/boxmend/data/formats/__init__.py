"""Reading and writing datasets: COCO, VOC and YOLO, found out from the address.

An address is `PATH` or `PATH:SPLIT`. Each format is one module with both directions, so that
its oddities (one-based pixels, relative centres, ids or none) are written down once.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from boxmend.data.dataset import Dataset, join
from boxmend.data.findings import Severity
from boxmend.data.formats import coco, voc, yolo
from boxmend.data.formats.documents import Document
from boxmend.data.formats.reading import ReadOptions
from boxmend.data.types import Ids
from boxmend.errors import DataError, UsageError


class Format(Protocol):
    """What a format module offers to this room: to be read here, to be written in `writing`."""

    def looks_like(self, path: Path) -> bool:
        """Whether a file or folder is of this format, by a look at names alone."""

    def read(self, path: Path, split: str | None, options: ReadOptions) -> Dataset:
        """Read a split, or all there is; what is wrong with single entries becomes a finding."""

    def list_losses(self, dataset: Dataset) -> list[str]:
        """What this format cannot hold of a dataset, a phrase each."""

    def build_documents(self, dataset: Dataset, segmentation: str) -> Iterator[Document]:
        """The files of a dataset: its sources patched if they are of this format, else new.

        Notes are written where the format has a place for them.
        """

    def assign_image_paths(self, dataset: Dataset) -> list[str]:
        """Where each image goes, relative to the output folder."""

    def assign_annotation_ids(self, dataset: Dataset) -> Ids:
        """The annotation ids that a reader of the written dataset will see."""


FORMATS: dict[str, Format] = {"coco": coco, "voc": voc, "yolo": yolo}


def load(
    *addresses: str | Path, images: str | Path | None = None, polygons: str = "refuse"
) -> Dataset:
    """Read addresses into one Dataset; refuse, with a DataError, what could not be trusted.

    `images` is the folder of the images where COCO files lie elsewhere. `polygons` says what
    happens to polygons in YOLO label files: "refuse" them, or take the "box" around each.
    """
    dataset = read(*addresses, images=images, polygons=polygons)
    errors = [finding for finding in dataset.findings if finding.severity is Severity.ERROR]
    if errors:
        more = f"\n({len(errors) - 1:,} more like it.)" if len(errors) > 1 else ""
        raise DataError(
            f"{errors[0]}{more}\nRun `boxmend check` on the dataset for the whole list."
        )
    return dataset


def read(
    *addresses: str | Path, images: str | Path | None = None, polygons: str = "refuse"
) -> Dataset:
    """Read addresses like `load`, but keep entries that are wrong and list them as findings."""
    if not addresses:
        raise UsageError("no dataset given")
    options = ReadOptions(Path(images) if images is not None else None, polygons)
    return join([_read_one(str(one), options, group) for group, one in enumerate(addresses)])


def _read_one(address: str, options: ReadOptions, group: int) -> Dataset:
    path, split = split_address(address)
    dataset = FORMATS[detect_format(path)].read(path, split, options)
    for source in dataset.sources:
        source.group = group
    return dataset


def split_address(address: str) -> tuple[Path, str | None]:
    """Part an address into its path and its split; a path that exists as it stands has none."""
    path = Path(address)
    if os.path.exists(path):  # unlike Path.exists, it answers for names that are too long
        return path, None
    before, colon, split = address.rpartition(":")
    if colon and split and before and os.path.exists(before):
        return Path(before), split
    raise UsageError(f"{address}: no such file or folder (an address is PATH or PATH:SPLIT)")


def detect_format(path: Path) -> str:
    """Name the format of a file or folder."""
    found = [name for name, format in FORMATS.items() if format.looks_like(path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(
            f"{path}: looks like {' and '.join(found)}; name the COCO .json, the YOLO .yaml or "
            "the VOC folder itself"
        )
    raise DataError(
        f"{path}: no dataset found. Expected a COCO .json file or a folder with instances_*.json, "
        "a folder with Annotations/*.xml (VOC), or a data.yaml (YOLO)"
    )


__all__ = ["FORMATS", "Format", "ReadOptions", "detect_format", "load", "read", "split_address"]
