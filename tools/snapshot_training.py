"""Record trainings and audits for `snapshot.py`."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from snapshot_running import (
    TIMEOUT_SECONDS,
    StepFailed,
    Workspace,
    answer,
    by_key,
    call,
    environment,
    gather,
    names_in,
    plain,
    progress,
    read_columns,
    read_json,
    read_lines,
    read_model,
    read_table,
    steady,
)

IMAGE_SIDE = 96
# 176 images to train on, with 536 annotations: `mend` looks at labels first from 500 on.
DRAWN = ("--images", 220, "--size", IMAGE_SIDE, "--seed", 0)
NOISE = ("--labels", "symmetric:0.2", "--boxes", "uniform:0.3")
PRESENCE = ("--missing", 0.05, "--spurious", 0.05, "--duplicate", 0.03)
SETTINGS: tuple[object, ...] = (
    *("--detector", "tiny", "--image-size", IMAGE_SIDE, "--batch-size", 8, "--log-every", 11),
    *("--optimisation.optimizer", "adamw", "--optimisation.lr", 0.003),
    *("--optimisation.schedule", "cosine", "--optimisation.warm-up-steps", 10),
)
EPOCHS, SHORT = ("--epochs", 6), ("--epochs", 3)
RATES = ("--label-noise", 0.2, "--box-noise", 0.3)
METHODS: dict[str, tuple[object, ...]] = {
    "mend": (),
    "baseline": (),
    **dict.fromkeys(("cm", "br", "cinj", "pseudo", "lr", "mend-paper"), RATES),
    **dict.fromkeys(("co-teaching", "note-rcnn", "ca-bbc"), RATES),
    "oa-mil": (),
    "disco": (),
}
# Trainings with other settings. If a setting was renamed, the refusal is recorded instead.
VARIANTS: dict[str, tuple[object, ...]] = {
    # Boxes without noise, on which the first look at the labels counts.
    "mend, labels only": ("wrong-labels:train", "--method", "mend"),
    "mend, rates given": (
        *("noisy:train", "--method", "mend", *RATES, "--mend.missing-min-score", 0.3),
        *("--judging-weights", "average", "--weights", "runs/baseline/model.safetensors"),
    ),
    # With its defaults `pseudo` discards every label of so short a training.
    "pseudo, unsure kept": (
        *("noisy:train", "--method", "pseudo", *RATES, "--published.confidence", 0.1),
        *("--published.unreliable", "keep"),
    ),
    "keep best": ("noisy:train", "--method", "br", "--preset", "paper", "--keep-best", "--seed", 5),
}


def training(space: Workspace) -> dict[str, Any]:
    """Return what every method leaves after a short training, and what a resumed one leaves."""
    draw(space)
    return {
        **gather(space, {method: partial(run_of, space, method) for method in METHODS}),
        "variants": {name: variant(space, name) for name in VARIANTS},
        **gather(space, {"stopped and resumed": partial(resume_training, space)}),
    }


def draw(space: Workspace) -> None:
    """Draw the dataset and its noisy copies, unless they are there."""
    if not (space.folder / "toys").exists():
        call(space, "synth", "--out", "toys", *DRAWN)
        call(space, "noise", "toys:train", "--out", "noisy", *NOISE, *PRESENCE, "--seed", 0)
        call(space, "noise", "toys:train", "--out", "wrong-labels", *NOISE[:2], "--seed", 1)


def run_of(space: Workspace, method: str) -> dict[str, Any]:
    """Train by a method and return what the run holds."""
    done = train(space, method)
    return read_run(space, space.folder / "runs" / method) | {"answer": answer(space, done)}


def train(space: Workspace, method: str) -> subprocess.CompletedProcess[str]:
    """Train by a method; the run is runs/METHOD."""
    return call(space, *training_words(method, f"runs/{method}"))


def training_words(method: str, out: str) -> tuple[object, ...]:
    """Return the command that trains by a method."""
    data = ("noisy:train", "--val", "toys:val", "--out", out, "--method", method)
    return ("train", *data, *METHODS[method], *SETTINGS, *EPOCHS)


def needed_run(space: Workspace, method: str) -> str:
    """Return the place of a run, which is trained unless it is there."""
    draw(space)
    if not (space.folder / "runs" / method).exists():
        train(space, method)
    return f"runs/{method}"


def variant(space: Workspace, name: str) -> dict[str, Any]:
    """Train with other settings and return what the run holds, or how it was refused."""
    out = f"runs/{name}"
    words = ("train", *VARIANTS[name], "--val", "toys:val", "--out", out, *SETTINGS, *SHORT)
    done = call(space, *words, statuses=())
    values = {"answer": answer(space, done)}
    return values if done.returncode else read_run(space, space.folder / out) | values


def read_run(space: Workspace, run: Path) -> dict[str, Any]:
    """Return the values of all files of a finished training run."""
    return {
        "files": names_in(run),
        "model": read_model(run / "model.safetensors"),
        "ledger": read_table(run / "ledger"),
        "metrics": by_key(read_lines(space, run / "metrics.jsonl")),
        "settings": read_json(space, run / "settings.json"),
        "run": read_json(space, run / "run.json"),
    }


def resume_training(space: Workspace) -> dict[str, Any]:
    """Stop a training of `mend` in its third epoch, resume it, and return what it leaves."""
    words = training_words("mend", "runs/resumed")
    status = stop_at(space, words, "epoch 3,")
    call(space, *words, "--resume")
    return {"exit when stopped": status, **read_run(space, space.folder / "runs/resumed")}


def stop_at(space: Workspace, words: tuple[object, ...], line: str) -> int:
    """Run a command, send SIGTERM once a line on stderr begins so, and return its exit status."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "boxmend", *map(str, words)],
        cwd=space.folder,
        env=environment(space),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    guard = threading.Timer(TIMEOUT_SECONDS, process.kill)
    guard.start()
    with process:
        assert process.stderr is not None
        lines = []
        for text in process.stderr:
            lines.append(text)
            if text.startswith(line):
                process.send_signal(signal.SIGTERM)
                break
        lines += process.stderr.readlines()
        status = process.wait()
    guard.cancel()
    if status in (0, -signal.SIGKILL):
        raise StepFailed(f"the training was not stopped at {line!r}\n{''.join(lines)}")
    progress(f"stopped at {line!r}", begin)
    return status


def audit(space: Workspace) -> dict[str, Any]:
    """Return predictions and what audits make of them, in each format; and audits of runs."""
    predictions(space)
    places = write_predictions(space)
    clean = ("toys:train", "--predictions", "predictions.json", "--probe", 0)
    steps: dict[str, Callable[[], Any]] = {
        "predictions": lambda: read_list(space.folder / "predictions.json"),
        "clean data": lambda: audit_folder(space, "audits/clean", *clean),
        "compared with others": lambda: compare_finders(space),
    }
    for method in ("co-teaching", "ca-bbc", "note-rcnn", "disco"):
        steps[f"predictions by {method}"] = partial(predict_images, space, method)
    for kind, place in places.items():
        words = ("noisy", "--predictions", place, "--unseen")
        steps[f"by {kind}"] = partial(audit_folder, space, f"audits/{kind}", *words)
    for method in ("mend", "mend-paper"):
        steps[f"run of {method}"] = partial(audited_run, space, method)
    return gather(space, steps)


def compare_finders(space: Workspace) -> Any:
    """Return what the comparison with other finders says."""
    words = ("noisy", "--predictions", "predictions.json", "--truth", "toys:train", "--json")
    return steady(json.loads(call(space, "bench", "audit", *words).stdout))


def predictions(space: Workspace) -> None:
    """Write predictions.json by the model of `mend`, unless it is there."""
    if not (space.folder / "predictions.json").exists():
        run = needed_run(space, "mend")
        options = ("--out", "predictions.json", "--score-threshold", 0.02)
        call(space, "predict", run, "noisy:train", *options)


def predict_images(space: Workspace, method: str) -> dict[str, Any]:
    """Predict on a folder of images by the model of a method alone."""
    run = needed_run(space, method)
    name = f"predictions-{method}.json"
    call(space, "predict", f"{run}/model.safetensors", "toys/images/val", "--out", name)
    return read_list(space.folder / name)


def read_list(path: Path) -> dict[str, Any]:
    """Return the digests of each key of a list of predictions."""
    return read_columns(pa.Table.from_pylist(json.loads(path.read_text())))


def audited_run(space: Workspace, method: str) -> dict[str, Any]:
    """Audit a copy of a run, so that other parts see the run without fixes."""
    copy = f"audited-{method}"
    shutil.copytree(space.folder / needed_run(space, method), space.folder / copy)
    return audit_folder(space, copy)


def audit_folder(space: Workspace, place: str, *words: object) -> dict[str, Any]:
    """Audit data by predictions, or the run at that place without words, and return the audit."""
    done = call(space, "audit", *(words or (place,)), *(("--out", place) if words else ()))
    folder = space.folder / place
    return {
        "files": names_in(folder),
        "fixes": read_table(folder / "fixes.parquet"),
        "audit": read_json(space, folder / "audit.json"),
        "run": read_json(space, folder / "run.json"),
        "stdout": plain(space, done.stdout),
        "stderr": plain(space, done.stderr),
    }


def write_predictions(space: Workspace) -> dict[str, str]:
    """Write the same predictions in every format, and return the place of each."""
    results = json.loads((space.folder / "predictions.json").read_text())
    (space.folder / "predictions").mkdir()
    table = pa.Table.from_pylist([_row(result) for result in results])
    pyarrow.csv.write_csv(table, space.folder / "predictions/table.csv")
    pyarrow.parquet.write_table(table, space.folder / "predictions/table.parquet")
    _write_labels(space.folder / "predictions/labels", results)
    _write_folds(space, results)
    return {
        "json": "predictions.json",
        "csv": "predictions/table.csv",
        "parquet": "predictions/table.parquet",
        "yolo": "predictions/labels",
        "folds": "folds",
    }


def _row(result: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction as a row of a table."""
    x, y, width, height = result["bbox"]
    corners = {"x1": x, "y1": y, "x2": x + width, "y2": y + height}
    named = {"image": result["file_name"], "label": result["category_name"]}
    return {**named, **corners, "score": result["score"]}


def _write_labels(folder: Path, results: list[dict[str, Any]]) -> None:
    """Write predictions as label files of YOLO with confidences."""
    folder.mkdir()
    lines: dict[str, list[str]] = {}
    for result in results:
        x, y, width, height = (side / IMAGE_SIDE for side in result["bbox"])
        numbers = (x + width / 2, y + height / 2, width, height, result["score"])
        line = " ".join([str(result["category_id"] - 1), *(f"{number:.6f}" for number in numbers)])
        lines.setdefault(Path(result["file_name"]).stem, []).append(line)
    for name, texts in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")


def _write_folds(space: Workspace, results: list[dict[str, Any]]) -> None:
    """Split the data into folds and give each the predictions of its test images."""
    call(space, "folds", "noisy:train", "-k", 3, "--out", "folds", "--images-as", "none")
    fold_of = json.loads((space.folder / "folds/folds.json").read_text())["folds"]
    for fold in range(3):
        own = [result for result in results if fold_of[Path(result["file_name"]).name] == fold]
        (space.folder / f"folds/fold-{fold}/predictions.json").write_text(json.dumps(own))
