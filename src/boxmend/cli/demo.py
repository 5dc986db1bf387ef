"""`boxmend demo`: a full example on drawn images, from noise to the mended dataset."""

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

app = App(name="demo")


@app.default
def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder to write to; new or empty.")] = Path("runs/demo"),
    seed: Annotated[int, Parameter(help="Random seed of images, noise and trainings.")] = 0,
    images: Annotated[
        int, Parameter(help="Number of images to draw; a fifth of them are for validation.")
    ] = 1000,
    epochs: Annotated[int, Parameter(help="Epochs of each training.")] = 12,
    json: Json = False,
) -> int:
    """Draw a dataset, add noise, train three detectors, and mend the dataset.

    This takes about five minutes. 40 % of the labels become wrong and every box moves by up to 40 %
    of its sides. boxmend trains the tiny detector on the clean annotations, on the noisy ones, and
    on the noisy ones with `mend`, which does not know the noise rates. It writes the datasets, the
    runs, OUT/summary.json, the report OUT/runs/mend/report.html, and the picture OUT/demo.png (top:
    noisy, bottom: mended; white: true box, green: right label, red: wrong label).

    Example: boxmend demo --out demo
    """
    demonstration.ensure_trainable()
    ensure_vacant(out)
    started = time.monotonic()
    with progress("drawing", quiet=json) as update:
        steps = demonstration.prepare(out, images=images, seed=seed, epochs=epochs, progress=update)
    with progress("training three detectors, steps", quiet=json) as update:
        scores = demonstration.train_all(out, steps=steps, seed=seed, progress=update)
    demonstration.mend(out)
    with progress("writing the report, images", quiet=json) as update:
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
    say(f"open {page} in a browser to see every change; {path} shows some of them")
    say(
        f"{out / 'mended'} is the mended dataset; its changes.csv lists every change and its reason"
    )
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
