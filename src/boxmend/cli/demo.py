"""`boxmend demo`: the whole of it on drawn images, with a picture to look at."""

from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import App, Parameter

from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.comparison.annotations import overlaps
from boxmend.dataset import Dataset
from boxmend.errors import ExitStatus
from boxmend.formats import load
from boxmend.formats.writing import WriteOptions, ensure_vacant
from boxmend.noise import NoiseSettings, Noisy, disturb, write_noisy
from boxmend.pictures import GREEN, RED, WHITE, Outline, Panel, sheet
from boxmend.synth import synthesize

PICTURE = "noise.png"
SHOWN = 8  # images in the picture


app = App(name="demo", help_format="markdown")


@app.default
def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")] = Path("runs/demo"),
    images: Annotated[int, Parameter(help="How many images to draw.")] = 1000,
    size: Annotated[int, Parameter(help="Side of the images in pixels.")] = 96,
    seed: Annotated[int, Parameter(help="Same seed, same demo.")] = 0,
    json: Json = False,
) -> int:
    """Draw the embedded dataset, spoil 40 % of its labels and all its boxes by 40 %, and show it.

    Leaves DIR/clean, DIR/noisy (with the truth) and DIR/noise.png: white is the clean box, green
    the noisy one, red a noisy one whose label is wrong.
    """
    ensure_vacant(out)
    settings = NoiseSettings(labels="symmetric:0.4", boxes="uniform:0.4", seed=seed)
    with progress("drawing", quiet=json) as update:
        synthesize(out / "clean", images=images, seed=seed, size=size, progress=update)
    clean = load(f"{out / 'clean'}:train")
    noisy = disturb(clean, settings)
    write_noisy(noisy, settings, out / "noisy", WriteOptions())
    sheet(_panels(clean, noisy, min(SHOWN, len(clean.images)))).save(out / PICTURE)
    iou = overlaps(clean.boxes, noisy.dataset.boxes)
    facts = {
        "images": len(clean.images),
        "annotations": len(clean),
        "labels_wrong": noisy.counts["labels_changed"],
        "boxes_moved": noisy.counts["boxes_changed"],
        "mean_iou": round(float(iou.mean()), 4),
        "boxes_below_iou_half": int((iou < 0.5).sum()),
    }
    if json:
        print_json(facts | {"out": str(out), "picture": str(out / PICTURE)})
        return ExitStatus.FINE
    print_table(("noisy training set", ""), [(k.replace("_", " "), v) for k, v in facts.items()])
    say(f"look at {out / PICTURE}; the datasets are {out / 'clean'} and {out / 'noisy'}")
    return ExitStatus.FINE


def _panels(clean: Dataset, noisy: Noisy, count: int) -> list[Panel]:
    """The first images with what was and what became of it; no annotation was added or removed."""
    panels = []
    for image in range(count):
        outlines = []
        for row in np.flatnonzero(clean.image_rows == image).tolist():
            old, new = int(clean.labels[row]), int(noisy.dataset.labels[row])
            outlines.append(_outline(clean.boxes[row], WHITE))
            color = GREEN if old == new else RED
            outlines.append(_outline(noisy.dataset.boxes[row], color, clean.label_names[new]))
        panels.append(Panel(Path(clean.images.paths[image]), outlines))
    return panels


def _outline(box: np.ndarray, color: tuple[int, int, int], caption: str = "") -> Outline:
    x1, y1, x2, y2 = box.tolist()
    return Outline((x1, y1, x2, y2), color, caption)
