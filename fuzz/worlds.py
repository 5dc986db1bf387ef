"""Small valid inputs of every kind that boxmend reads, made once with boxmend.

`build` makes the inputs in `case`/in and moves them to `store`. Each case copies what it needs back
to `case`/in, so that the absolute paths in runs, audits and links are right in every case.
"""

import contextlib
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import boxmend.cli
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.bench.grids import results
from boxmend.data.formats import load
from boxmend.runs.settings import Optimisation, TrainSettings

INPUT = "in"
EXPORTS = Path(__file__).parent.parent / "tests/data/formats/exports"
SIDE = 32  # pixels; the minimum of `synth`
NUM_IMAGES = 10
QUICK = TrainSettings(
    detector="tiny",
    weights="none",
    epochs=2,
    batch_size=4,
    image_size=str(SIDE),
    log_every=1,
    checkpoint_every=1,
    warm_up=0.5,
    optimisation=Optimisation(optimizer="adamw", lr=1e-3),
)
TRAINING_OPTIONS = "[optimisation]\nlr = 0.001\n"
SHA = "0" * 64


@dataclass(frozen=True)
class World:
    """The folder with all inputs and the folder of the current case."""

    store: Path
    case: Path

    def lay_out(self, parts: tuple[str, ...]) -> Path:
        """Empty the folder of the case and copy the named inputs into it."""
        remove(self.case)
        folder = self.case / INPUT
        folder.mkdir(parents=True)
        (self.case / "tmp").mkdir()
        for part in parts:
            source, target = self.store / part, folder / part
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copyfile(source, target)
        return folder


def remove(folder: Path) -> None:
    """Remove a folder with any content; raise if that fails."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        raise RuntimeError(f"{folder} cannot be removed")


def build(world: World) -> None:
    """Make all inputs; this imports torch."""
    folder = world.lay_out(())
    before = Path.cwd()
    os.chdir(world.case)
    try:
        for make in (
            _make_datasets,
            _make_predictions,
            _make_runs,
            _make_audits,
            _make_exports,
            _make_other_files,
        ):
            make()
    finally:
        os.chdir(before)
    folder.rename(world.store)


def run_command(*tokens: str) -> None:
    """Run a command in this process, which must succeed."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = boxmend.cli.run(tokens)
    if status not in (0, 1):
        raise RuntimeError(f"boxmend {' '.join(tokens)} ended with {status}: {errors.getvalue()}")


def _make_datasets() -> None:
    run_command("synth", "--images", str(NUM_IMAGES), "--size", str(SIDE), "--out", "in/coco")
    for to in ("voc", "yolo"):
        run_command("convert", "in/coco", "--to", to, "--out", f"in/{to}", "--images-as", "copy")
    _edit_json(Path("in/coco/instances_train.json"), _enrich)
    amounts = ("--labels", "symmetric:0.4", "--boxes", "uniform:0.3", "--spurious", "0.1")
    for name, source in (("noisy", "in/coco:train"), ("noisy-voc", "in/voc:train")):
        run_command("noise", source, *amounts, "--out", f"in/{name}", "--images-as", "copy")
    run_command("folds", "in/noisy", "-k", "2", "--out", "in/folds", "--images-as", "copy")


def _enrich(document: dict[str, Any]) -> None:
    """Add outlines, a crowd and additional fields to a COCO file."""
    document["info"] = {"description": "drawn", "year": 2026}
    document["licenses"] = [{"id": 1, "name": "none", "url": ""}]
    for annotation in document["annotations"]:
        x, y, width, height = annotation["bbox"]
        right, low = x + width, y + height
        annotation["segmentation"] = [[x, y, right, y, right, low, x, low]]
        annotation["attributes"] = {"occluded": False}
    crowd = document["annotations"][-1]
    crowd["iscrowd"] = 1
    crowd["segmentation"] = {"size": [SIDE, SIDE], "counts": [0, 40, SIDE * SIDE - 40]}


def _edit_json(path: Path, edit: Callable[[Any], None]) -> None:
    document = json.loads(path.read_bytes())
    edit(document)
    path.write_text(json.dumps(document))


def _make_predictions() -> None:
    """Write detections near the clean annotations in every format."""
    rng = np.random.default_rng(0)
    dataset = load("in/coco:train")
    rows: list[dict[str, Any]] = []
    for box, label, image in zip(
        dataset.boxes.tolist(), dataset.labels.tolist(), dataset.image_rows.tolist(), strict=True
    ):
        for score in (0.9, 0.06):
            x1, y1, x2, y2 = (side + float(rng.normal(0, 0.7)) for side in box)
            name = dataset.images.file_names[image]
            row = {"image": name, "x1": x1, "y1": y1, "x2": max(x2, x1 + 1), "y2": max(y2, y1 + 1)}
            rows.append(row | {"label": label, "score": round(score + rng.uniform(0, 0.1), 3)})
    _write_predictions(rows, dataset.label_names)


def _write_predictions(rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    detections = [
        {
            "image_id": int(Path(row["image"]).stem),
            "file_name": row["image"],
            "category_id": row["label"] + 1,
            "bbox": [row["x1"], row["y1"], row["x2"] - row["x1"], row["y2"] - row["y1"]],
            "score": row["score"],
        }
        for row in rows
    ]
    Path("in/found.json").write_text(json.dumps(detections))
    named = [row | {"label": names[row["label"]]} for row in rows]
    pq.write_table(pa.Table.from_pylist(named), "in/found.parquet")
    with open("in/found.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(named[0]))
        writer.writeheader()
        writer.writerows(named)
    labels = Path("in/found-labels")
    labels.mkdir()
    for row in rows:
        x, y = (row["x1"] + row["x2"]) / 2 / SIDE, (row["y1"] + row["y2"]) / 2 / SIDE
        width, height = (row["x2"] - row["x1"]) / SIDE, (row["y2"] - row["y1"]) / SIDE
        with (labels / f"{Path(row['image']).stem}.txt").open("a") as file:
            file.write(f"{row['label']} {x:.5f} {y:.5f} {width:.5f} {height:.5f} {row['score']}\n")
    for number in range(2):
        tests = json.loads(Path(f"in/folds/fold-{number}/test/instances_train.json").read_bytes())
        ids = {image["id"] for image in tests["images"]}
        part = [row for row in detections if row["image_id"] in ids]
        Path(f"in/folds/fold-{number}/predictions.json").write_text(json.dumps(part))


def _make_runs() -> None:
    """Make a finished training run and one that was interrupted after its second step."""
    from boxmend.training.train import Interrupted, train  # imports torch

    train(("in/noisy",), Path("in/run"), QUICK, val=("in/coco:val",), log=lambda line: None)

    def stop(line: dict[str, Any]) -> None:
        if line.get("step") == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with contextlib.suppress(Interrupted):
        train(("in/noisy",), Path("in/half"), QUICK, log=stop)
    if not Path("in/half/checkpoint.pt").is_file():
        raise RuntimeError("the interrupted training left no checkpoint")
    shutil.copyfile("in/run/settings.json", "in/settings.json")
    shutil.copyfile("in/run/model.safetensors", "in/model.safetensors")
    Path("in/settings.toml").write_text(
        'detector = "tiny"\nweights = "none"\nepochs = 1\nbatch_size = 4\n'
        f'image_size = "{SIDE}"\nlog_every = 1\nmethod = "mend"\n\n{TRAINING_OPTIONS}'
    )


def _make_audits() -> None:
    shutil.copytree("in/run", "in/audited-run")
    run_command("audit", "in/audited-run")
    for name, source in (("audit", "in/noisy"), ("audit-voc", "in/noisy-voc")):
        run_command(
            *("audit", source, "--predictions", "in/found.json", "--unseen"),
            *("--out", f"in/{name}"),
        )
        fixes = pq.read_table(f"in/{name}/fixes.parquet")["fix"].to_pylist()
        if len(fixes) < 4:
            raise RuntimeError(f"in/{name} has only {len(fixes)} fixes")
        answers = ("accept", "reject", "skip", "accept", "undo")
        verdicts = [Verdict(fix, answer) for fix, answer in zip(fixes, answers, strict=False)]
        append_verdicts(Path(f"in/{name}"), verdicts)
    chosen = ("--precision", "0.3", "--images-as", "copy")
    run_command("apply", "in/audit", *chosen, "--out", "in/mended")
    run_command("apply", "in/audit-voc", *chosen, "--out", "in/mended-voc")
    run_command(
        "apply", "in/audit", *chosen, "--to", "yolo", "--allow-lossy", "--out", "in/mended-yolo"
    )
    suite = ["bench", "audit-suite", "in/coco:train", "--predictions", "in/found.json"]
    suite += ["--regimes", "clean,pair-10", "--seeds", "1", "--out", "in/suite"]
    # hotcoco starts threads, after which forks of this process would hang
    subprocess.run([sys.executable, "-m", "boxmend", *suite], check=True, capture_output=True)


def _make_exports() -> None:
    for to in ("label-studio", "cvat"):
        run_command("export", "in/audit", "--to", to, "--most", "99", "--out", f"in/{to}")
    tasks = json.loads(Path("in/label-studio/tasks.json").read_bytes())
    Path("in/label-studio/project.json").write_text(
        json.dumps([_submit_task(number, task) for number, task in enumerate(tasks, 1)])
    )
    text = Path("in/cvat/annotations.xml").read_bytes()
    with zipfile.ZipFile("in/cvat/task.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("annotations.xml", text)


def _submit_task(number: int, task: dict[str, Any]) -> dict[str, Any]:
    """Return a Label Studio task as submitted by an annotator who deleted the first box."""
    (prediction,) = task["predictions"]
    kept = [region | {"origin": "prediction"} for region in prediction["result"][1:]]
    annotation = {
        "id": 1000 + number,
        "completed_by": {"id": 7, "email": "kim@example.org"},
        "result": kept,
        "was_cancelled": False,
        "updated_at": "2026-11-01T10:05:00.000000Z",
        "prediction": prediction,
        "task": number,
    }
    predictions = [prediction | {"id": number}]
    return {"id": number, "annotations": [annotation], "predictions": predictions} | {
        "data": task["data"]
    }


def _make_other_files() -> None:
    names = load("in/coco").label_names
    rates = {name: {other: 0.1 for other in names if other != name} for name in names}
    Path("in/matrix.json").write_text(json.dumps(rates))
    rows = [[name, *(str(rates[name].get(other, 0.5)) for other in names)] for name in names]
    Path("in/matrix.csv").write_text("\n".join(map(",".join, [["", *names], *rows])) + "\n")
    shutil.copytree(EXPORTS, "in/exports", ignore=shutil.ignore_patterns("README.md"))
    pictures = Path("in/pictures")
    pictures.mkdir()
    with Image.open("in/coco/images/train/000001.png") as picture:
        for ending in ("png", "jpg", "bmp", "gif", "webp", "tif"):
            picture.save(pictures / f"one.{ending}")
    for method in ("baseline", "mend"):
        for seed in range(2):
            for noise in (results.Noise(), results.Noise("symmetric:0.4", "uniform:0.4", seed)):
                results.append_result(Path("in/results.jsonl"), _make_result(method, seed, noise))


def _make_result(method: str, seed: int, noise: results.Noise) -> results.Result:
    settings = {"method": method, "seed": seed, "epochs": 12, "weights": "default"}
    return results.Result(
        cell=f"{noise.labels or 'clean'}-{method}-{seed}".replace(":", "-"),
        scale="voc320",
        noise=noise,
        method=method,
        seed=seed,
        settings=settings,
        data=results.Data(SHA, SHA, SHA),
        versions={"boxmend": "0.1.0"},
        hardware="one GPU",
        started="2026-01-01T00:00:00+00:00",
        seconds=60.0,
        scores={"voc_ap50_area": 0.5 + seed / 100, "voc_ap50_11point": 0.49},
    )
