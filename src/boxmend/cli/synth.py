"""`boxmend synth`: draw the embedded dataset."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import FormatName, Json, saved_summary
from boxmend.cli.output import print_json, progress
from boxmend.data.synth import synthesize
from boxmend.errors import ExitStatus

app = App(name="synth")


@app.default
def synth(
    *,
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")],
    images: Annotated[
        int, Parameter(help="Number of images; a fifth of them are for validation.")
    ] = 1000,
    seed: Annotated[int, Parameter(help="Random seed; the same seed gives the same dataset.")] = 0,
    size: Annotated[int, Parameter(help="Width and height of the images in pixels.")] = 96,
    format: Annotated[FormatName, Parameter(help="Format to write.")] = "coco",
    json: Json = False,
) -> int:
    """Draw the embedded dataset: six classes of toys on varied backgrounds.

    Example: boxmend synth --out toys --format yolo
    """
    with progress("drawing", quiet=json) as update:
        saved = synthesize(out, images=images, seed=seed, size=size, format=format, progress=update)
    if json:
        counts = {"images": images, "annotations": len(saved.annotation_ids)}
        print_json(saved_summary(saved) | counts)
    else:
        print(f"{out}: {format}, {images:,} images, {len(saved.annotation_ids):,} annotations")
    return ExitStatus.FINE
