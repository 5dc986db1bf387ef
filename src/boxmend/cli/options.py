"""Options that several commands share; the docstrings are what `--help` shows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import SaveResult, WriteOptions

FormatName = Literal["coco", "voc", "yolo"]
Data = Annotated[str, Parameter(help="Dataset: PATH or PATH:SPLIT; several are joined into one.")]
MovedData = Annotated[
    tuple[str, ...],
    Parameter(
        help="Where the dataset lies now, if it was moved since; once for every address.",
        negative="",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the result as JSON.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ReadingOptions:
    """How to read."""

    images: Annotated[
        Path | None, Parameter(help="Folder of the images, where COCO files lie elsewhere.")
    ] = None
    polygons: Annotated[
        Literal["refuse", "box"],
        Parameter(help="Polygons in YOLO label files: refuse them, or take the box around each."),
    ] = "refuse"

    def load(self, data: tuple[str, ...]) -> Dataset:
        """Read the addresses, strictly."""
        return load(*data, images=self.images, polygons=self.polygons)


@Parameter(name="*")
@dataclass(frozen=True)
class Writing:
    """How to write."""

    images_as: Annotated[
        Literal["link", "copy", "none"],
        Parameter(help="Images in the output: linked, copied, or left out."),
    ] = "link"
    segmentation: Annotated[
        Literal["flag", "drop"],
        Parameter(help="Outline of a COCO object whose box moved: flag it as stale, or drop it."),
    ] = "flag"
    sync: Annotated[
        bool,
        Parameter(
            help="Wait until the output is on the disk, so that even a power cut leaves it "
            "complete or absent."
        ),
    ] = True

    def options(self, *, allow_lossy: bool = False) -> WriteOptions:
        """The same for the library."""
        return WriteOptions(self.images_as, allow_lossy, self.segmentation, self.sync)


def saved_summary(saved: SaveResult) -> dict[str, object]:
    """What a command tells of what it wrote."""
    return {
        "out": str(saved.out),
        "format": saved.format,
        "files": len(saved.files),
        "images_missing": saved.images_missing,
        "lost": list(saved.losses),
    }
