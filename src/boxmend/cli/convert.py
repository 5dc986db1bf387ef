"""`boxmend convert`: write a dataset in another format."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import (
    Data,
    FormatName,
    Json,
    ReadingOptions,
    WritingOptions,
    saved_summary,
)
from boxmend.cli.output import print_json, say
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.formats.coco.outlines import write_outlined_boxes
from boxmend.data.formats.writing import write
from boxmend.errors import ExitStatus

app = App(name="convert", usage="boxmend convert --to FORMAT --out DIR [OPTIONS] DATA...")


@app.default
def convert(
    *data: Data,
    to: Annotated[FormatName, Parameter(help="Format to write.")],
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")],
    allow_lossy: Annotated[
        bool, Parameter(help="Write even if the format cannot hold everything.", negative="")
    ] = False,
    reading: ReadingOptions | None = None,
    writing: WritingOptions | None = None,
    json: Json = False,
) -> int:
    """Write a dataset in another format; boxes stay exact to a hundredth of a pixel.

    If the format cannot hold something, such as VOC's `difficult` in YOLO, boxmend lists what would
    be lost and writes nothing; --allow-lossy writes the rest. In its own format a dataset is copied
    byte for byte. Several datasets become one COCO file, or one folder each for VOC and YOLO.

    Example: boxmend convert VOC2007:trainval --to coco --out voc-as-coco
    """
    ensure_vacant(out)
    reading = reading or ReadingOptions()
    dataset = reading.load(data)
    if reading.polygons == "box":
        dataset = write_outlined_boxes(dataset)
    saved = write(
        dataset, out, to, (writing or WritingOptions()).to_write_options(allow_lossy=allow_lossy)
    )
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
