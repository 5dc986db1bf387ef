"""`boxmend demo`: the whole of it on drawn images, with a picture to look at."""

import json as json_module
import time
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from boxmend.bench import demonstration
from boxmend.cli.options import Json
from boxmend.cli.output import print_json, print_table, progress, say
from boxmend.data.files.staging import ensure_vacant
from boxmend.errors import ExitStatus

app = App(name="demo", help_format="markdown")


@app.default
def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder to write to; new, or empty.")] = Path("runs/demo"),
    seed: Annotated[int, Parameter(help="Of images, noise and trainings.")] = 0,
    images: Annotated[int, Parameter(help="How many images to draw; a fifth is val.")] = 1000,
    epochs: Annotated[int, Parameter(help="Passes of each training.")] = 12,
    json: Json = False,
) -> int:
    """Spoil a drawn dataset, train on it three times, and mend it: some minutes on two cores.

    40 % of the labels become wrong and every box moves by up to 40 % of its sides. The tiny
    detector is trained on clean annotations, on noisy ones, and on noisy ones with `mend`, which
    is told nothing. Leaves DIR/clean, DIR/noisy, DIR/runs, DIR/mended, DIR/summary.json, the report
    DIR/runs/mend/report.html, and DIR/demo.png: white is the true box, green a box with the right
    label, red one with a wrong label; above before, below after.
    """
    demonstration.ensure_trainable()
    ensure_vacant(out)
    started = time.monotonic()
    with progress("drawing", quiet=json) as update:
        steps = demonstration.prepare(out, images=images, seed=seed, epochs=epochs, progress=update)
    with progress("training three detectors, steps", quiet=json) as update:
        scores = demonstration.train_all(out, steps=steps, seed=seed, progress=update)
    demonstration.mend(out)
    with progress("making the report, images", quiet=json) as update:
        page = demonstration.write_demo_report(out, update)
    before, after = (demonstration.measure_noise(out, name) for name in ("noisy", "mended"))
    summary = {
        **{name: round(value, 2) for name, value in scores.items()},
        "labels_wrong_before": round(before.labels_wrong, 2),
        "labels_wrong_after": round(after.labels_wrong, 2),
        "mean_iou_before": round(before.mean_iou, 4),
        "mean_iou_after": round(after.mean_iou, 4),
        "seed": seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    (out / "summary.json").write_text(json_module.dumps(summary, indent=2) + "\n", encoding="utf-8")
    path = demonstration.draw_picture(out)
    if json:
        print_json(summary)
        return ExitStatus.FINE
    _print(summary)
    say(f"open {page} in a browser: every change, with its picture; {path} has some of them")
    say(f"{out / 'mended'} is the mended dataset; its changes.csv says what was changed and why")
    return ExitStatus.FINE


def _print(summary: dict[str, Any]) -> None:
    rows = [
        ("clean annotations", f"{summary['clean']:.1f}"),
        ("noisy annotations", f"{summary['noisy']:.1f}"),
        ("noisy annotations, mended while training", f"{summary['mend']:.1f}"),
    ]
    print_table(("a detector trained on", "AP50"), rows)
    print()
    changed = [
        (
            "wrong labels",
            *(f"{summary[f'labels_wrong_{when}']:.1f} %" for when in ("before", "after")),
        ),
        (
            "mean IoU with the true box",
            *(f"{summary[f'mean_iou_{when}']:.3f}" for when in ("before", "after")),
        ),
    ]
    print_table(("the training annotations", "before", "after"), changed)
