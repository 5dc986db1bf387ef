"""`boxmend predict`: what a trained detector sees in images without annotations."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, progress, say
from boxmend.errors import ExitStatus, UsageError

app = App(name="predict", help_format="markdown")


@app.default
def predict(
    run: Annotated[Path, Parameter(help="Folder of a finished run, or its model.safetensors.")],
    *images: Annotated[
        str, Parameter(help="Image files, folders of them, or datasets (PATH or PATH:SPLIT).")
    ],
    out: Annotated[Path, Parameter(help="File to write, a JSON list; it must not be there.")],
    score_threshold: Annotated[float, Parameter(help="Leave out what scores less.")] = 0.05,
    json: Json = False,
) -> int:
    """Find objects in images that nobody has annotated, and write COCO's results.

    Folders are searched with all folders in them. Boxes are in pixels of the image as stored, like
    those it was trained on: an EXIF rotation is not applied. Images of a dataset keep their ids,
    others are numbered from 1; each result also has file_name and category_name. Images that
    cannot be read are named and left out.
    """
    try:
        from boxmend.training.prediction import ensure_new  # imports torch, which takes its time
        from boxmend.training.prediction import predict as find
    except ModuleNotFoundError as error:
        raise UsageError(
            f"predicting needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    ensure_new(out)
    with progress("looking at images", quiet=json) as update:
        found = find(run, images, score_threshold=score_threshold, progress=update)
    found.save(out)
    if json:
        counts = {"images": found.num_images, "detections": len(found)}
        print_json({"out": str(out), **counts, "skipped": found.skipped})
        return ExitStatus.FINE
    for message in found.skipped:
        say(f"left out: {message}")
    print(f"{out}: {found.num_images:,} images, {len(found):,} detections")
    return ExitStatus.FINE
