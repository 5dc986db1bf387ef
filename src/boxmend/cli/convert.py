"""`boxmend convert`: the same dataset in another format."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Data, FormatName, Json, ReadingOptions, Writing, saved_summary
from boxmend.cli.output import print_json, say
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.formats.writing import write
from boxmend.errors import ExitStatus

app = App(name="convert", help_format="markdown")


@app.default
def convert(
    *data: Data,
    to: Annotated[FormatName, Parameter(help="Format to write.")],
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")],
    allow_lossy: Annotated[
        bool, Parameter(help="Go on where the format cannot hold all.", negative="")
    ] = False,
    reading: ReadingOptions | None = None,
    writing: Writing | None = None,
    json: Json = False,
) -> int:
    """Write a dataset in a format; boxes are kept to a hundredth of a pixel.

    Where the format cannot hold something (VOC's `difficult` in YOLO), nothing is written and
    what would be lost is listed; --allow-lossy converts the rest. In its own format a dataset
    is copied byte for byte. Several datasets give one COCO file, or a folder each for VOC and YOLO.
    """
    ensure_vacant(out)
    dataset = (reading or ReadingOptions()).load(data)
    saved = write(dataset, out, to, (writing or Writing()).options(allow_lossy=allow_lossy))
    if json:
        counts = {"images": len(dataset.images), "annotations": len(dataset)}
        print_json(saved_summary(saved) | counts)
        return ExitStatus.FINE
    for loss in saved.losses:
        say(f"lost: {loss}")
    if saved.images_missing:
        say(f"{saved.images_missing:,} images were not found and are not in {out}")
    print(f"{out}: {saved.format}, {len(dataset.images):,} images, {len(dataset):,} annotations")
    return ExitStatus.FINE
