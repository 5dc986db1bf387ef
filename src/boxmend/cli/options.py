"""Options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.formats.writing import SaveResult, WriteOptions

FormatName = Literal["coco", "voc", "yolo"]
Data = Annotated[
    str,
    Parameter(
        help="Dataset: PATH or PATH:SPLIT. The path is a COCO .json, a folder with "
        "instances_*.json, a VOC folder, or a YOLO data.yaml. Several are joined into one."
    ),
]
MovedData = Annotated[
    tuple[str, ...],
    Parameter(
        help="New address of the dataset, if it was moved since the run; repeat it for each "
        "dataset of the run.",
        negative="",
    ),
]
HeldOutPredictions = Annotated[
    tuple[Path, ...],
    Parameter(
        help="Detections of any detector on images it was not trained on, as for `boxmend "
        "audit`; repeat it to join several.",
        negative="",
    ),
]
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print the result as JSON.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ReadingOptions:
    """Options for reading a dataset."""

    images: Annotated[
        Path | None, Parameter(help="Folder of the images, if a COCO file is not next to them.")
    ] = None
    polygons: Annotated[
        Literal["refuse", "box"],
        Parameter(
            help="Polygons in YOLO label files, or instead of boxes in COCO files: refuse them, or "
            "use the box around each."
        ),
    ] = "refuse"

    def load(self, data: tuple[str, ...]) -> Dataset:
        """Read the datasets at these addresses; raise an error for anything invalid."""
        return load(*data, images=self.images, polygons=self.polygons)


@Parameter(name="*")
@dataclass(frozen=True)
class WritingOptions:
    """Options for writing a dataset."""

    images_as: Annotated[
        Literal["link", "copy", "none"],
        Parameter(help="Link the images into the output, copy them, or leave them out."),
    ] = "link"
    segmentation: Annotated[
        Literal["flag", "drop"],
        Parameter(help="COCO segmentation of an object whose box moved: flag it as stale or drop."),
    ] = "flag"
    sync: Annotated[
        bool,
        Parameter(
            help="Wait until the output is on the disk: even after a power cut it is complete or "
            "absent."
        ),
    ] = True

    def to_write_options(self, *, allow_lossy: bool = False) -> WriteOptions:
        """Return these options as the library takes them."""
        return WriteOptions(self.images_as, allow_lossy, self.segmentation, self.sync)


def saved_summary(saved: SaveResult) -> dict[str, object]:
    """Return the JSON summary of a written dataset."""
    return {
        "out": str(saved.out),
        "format": saved.format,
        "files": len(saved.files),
        "images_missing": saved.images_missing,
        "lost": list(saved.losses),
    }
