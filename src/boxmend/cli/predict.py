"""`boxmend predict`: detect objects in images."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, progress, say
from boxmend.errors import ExitStatus, UsageError

app = App(name="predict", usage="boxmend predict --out FILE [OPTIONS] RUN IMAGES...")


@app.default
def predict(
    run: Annotated[Path, Parameter(help="Folder of a finished run, or its model.safetensors.")],
    /,
    *images: Annotated[
        str, Parameter(help="Image files, folders of them, or datasets (PATH or PATH:SPLIT).")
    ],
    out: Annotated[Path, Parameter(help="New JSON file to write: a list of COCO results.")],
    score_threshold: Annotated[
        float, Parameter(help="Leave out detections with a lower score.")
    ] = 0.05,
    json: Json = False,
) -> int:
    """Detect objects in images with the model of a run, and write COCO results.

    Folders are searched recursively. Boxes are in pixels of the stored image: an EXIF rotation is
    not applied. Images of a dataset keep their ids, others are numbered from 1; each result also
    has file_name and category_name. Unreadable images are reported and left out.

    Example: boxmend predict run photos --out detections.json
    """
    try:
        from boxmend.training.prediction import ensure_new  # imports torch, which is slow
        from boxmend.training.prediction import predict as detect
    except ModuleNotFoundError as error:
        raise UsageError(
            f"predicting needs {error.name}, which is not installed: pip install 'boxmend[train]'"
        ) from error

    ensure_new(out)
    with progress("detecting objects, images", quiet=json) as update:
        detections = detect(run, images, score_threshold=score_threshold, progress=update)
    detections.save(out)
    if json:
        counts = {"images": detections.num_images, "detections": len(detections)}
        print_json({"out": str(out), **counts, "skipped": detections.skipped})
        return ExitStatus.FINE
    for message in detections.skipped:
        say(f"left out: {message}")
    print(f"{out}: {detections.num_images:,} images, {len(detections):,} detections")
    return ExitStatus.FINE
