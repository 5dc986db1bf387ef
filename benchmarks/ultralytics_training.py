"""Train an Ultralytics detector on noisy annotations, with or without mending, and score it.

    python benchmarks/ultralytics_training.py VOC --work FOLDER [--mended] [--labels symmetric:0.4]
        [--boxes uniform:0.4] [--noise-seed 0] [--model yolo11n.yaml] [--epochs 100] [--seed 0]
        [--imgsz 320] [--batch 64] [--workers 16] [--cache ram] [--device 0] [--prescreen WEIGHTS]
        [--out lines.jsonl]

VOC is a folder in VOC's layout. Noise is added to its training split, difficult objects are left
out, and the rest is written as YOLO into FOLDER, where equal noise is made once. The training
starts from random weights. The last averaged weights are scored on the test split by the rules of
VOC and COCO. The result is one line of JSON; with mending, it has the scores of the annotations.
`--settings` is JSON for `MenderSettings`, `--train` JSON for `YOLO.train`. Ultralytics neither
downloads nor sends anything.
"""

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())

import torch
import ultralytics.engine.trainer
from torch import Tensor
from ultralytics import YOLO

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.detections import Detections
from boxmend.data.files.locks import wait_for_lock
from boxmend.detector.nms import suppress
from boxmend.integrations import ultralytics as mending
from boxmend.integrations.ultralytics.attaching import UpdateSchedule
from boxmend.integrations.ultralytics.predicting import BatchDetections, Predictor
from boxmend.runs.opening import open_run_with_history
from boxmend.scoring.corrections import assess, known_truth
from boxmend.training.evaluation import score

MIN_SCORE = 0.001  # of a detection that is scored, as in Ultralytics' own validation
MAX_OVERLAP_IOU = 0.7
MAX_CANDIDATES, MAX_DETECTIONS = 1000, 300


def main() -> None:
    """Train and score once, and print the line of results."""
    options = _parse_options()
    work = Path(options.work).absolute()
    # The check of half precision would download weights.
    ultralytics.engine.trainer.check_amp = lambda model: True
    train, test = make_data(options, work)
    name = _name(options)
    model = YOLO(options.model)
    attached = None
    if options.mended:
        settings = boxmend.MenderSettings(**json.loads(options.settings))
        dataset = boxmend.load(f"{train / 'data.yaml'}:train")
        weights = options.prescreen
        attached = mending.attach(
            model,
            work / "runs" / name,
            settings,
            dataset=dataset,
            prescreen=boxmend.prescreen(dataset, weights=weights) if weights else None,
            warm_up=options.warm_up,
            every=options.every,
        )
    durations: dict[str, float] = {}
    with _measure_seconds(durations, "train"), contextlib.redirect_stdout(sys.stderr):
        model.train(
            data=str(train / "data.yaml"),
            epochs=options.epochs,
            imgsz=options.imgsz,
            batch=options.batch,
            workers=options.workers,
            device=options.device,
            seed=options.seed,
            cache=options.cache or False,
            project=str(work / "ultralytics"),
            name=name,
            exist_ok=True,
            pretrained=False,
            val=False,
            plots=False,
            verbose=False,
            **json.loads(options.train),
        )
    with _measure_seconds(durations, "score"):
        figures = score_on(model.trainer, boxmend.load(f"{options.voc}:{options.test_split}"), test)
    line = {
        "cell": name,
        "options": vars(options),
        "method": "mended" if options.mended else "baseline",
        "scores": figures,
        "seconds": {key: round(value, 1) for key, value in durations.items()},
        "versions": _versions(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
    if attached is not None:
        line |= _describe_mending(attached, work)
    text = json.dumps(line)
    print(text)
    if options.out:
        with open(options.out, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def make_data(options: argparse.Namespace, work: Path) -> tuple[Path, Path]:
    """Return the folders of the noisy training data and the test data in YOLO's format."""
    work.mkdir(parents=True, exist_ok=True)
    noise = f"{options.labels}-{options.boxes}-{options.noise_seed}".replace(":", "")
    train, test = work / f"train-{noise}", work / "test"
    with wait_for_lock(work / ".data.lock"):
        voc = Path(options.voc)
        if not train.is_dir():
            dataset = boxmend.load(f"{voc}:{options.train_split}")
            _write(dataset, work / "clean")
            if options.labels != "none" or options.boxes != "none":
                settings = boxmend.NoiseSettings(
                    labels=None if options.labels == "none" else options.labels,
                    boxes=None if options.boxes == "none" else options.boxes,
                    seed=options.noise_seed,
                )
                dataset = boxmend.disturb(dataset, settings).dataset
            _write(dataset, train)
        if not test.is_dir():
            _write(boxmend.load(f"{voc}:{options.test_split}"), test)
    return train, test


def _write(dataset: Dataset, folder: Path) -> None:
    """Write the objects that are not difficult as a YOLO dataset with a single split, `train`."""
    if folder.is_dir():
        return
    kept = dataset.take(~dataset.is_ignored)
    kept.images.splits = ["train"] * len(kept.images)
    kept.save(folder, format="yolo", allow_lossy=True)
    yaml = folder / "data.yaml"
    text = yaml.read_text(encoding="utf-8")
    yaml.write_text(f"val: images/train\n{text}", encoding="utf-8")


def score_on(trainer: Any, dataset: Dataset, folder: Path) -> dict[str, float | None]:
    """Return the scores of a trainer's averaged weights on a dataset with images in `folder`."""
    predictor = Predictor(trainer, dataset, str(folder / "images" / "train"))
    found = predictor.detect(trainer, select_all_classes)
    detections = Detections(found.image_rows, found.labels, found.scores, found.boxes)
    return score(detections, dataset).figures


def select_all_classes(output: Tensor) -> BatchDetections:
    """Return detections of all classes at all anchors, as Ultralytics' own validation does."""
    num_labels, num_anchors = output.shape[1] - 4, output.shape[2]
    scores, places = (
        output[:, 4:].flatten(1).topk(min(MAX_CANDIDATES, num_labels * num_anchors), dim=1)
    )
    labels, anchors = places // num_anchors, places % num_anchors
    sides = output[:, :4].gather(2, anchors[:, None].expand(-1, 4, -1)).transpose(1, 2)
    boxes = torch.cat([sides[..., :2] - sides[..., 2:] / 2, sides[..., :2] + sides[..., 2:] / 2], 2)
    keep, _ = suppress(boxes, scores >= MIN_SCORE, overlap=MAX_OVERLAP_IOU, groups=labels)
    keep = keep & (keep.cumsum(1) <= MAX_DETECTIONS)
    return BatchDetections(boxes, labels, scores, scores[..., None].expand(-1, -1, 0), keep)


def _describe_mending(attached: mending.Mending, work: Path) -> dict[str, Any]:
    """Return the scores of the annotations that a mended training leaves."""
    assert attached.run is not None
    opened = open_run_with_history(attached.out)
    truth = known_truth(f"{work / 'clean' / 'data.yaml'}:train", opened.dataset)
    metrics = attached.run.metrics
    return {"mending": assess(opened, truth).to_json(), "last_update": metrics[len(metrics) - 1]}


def _name(options: argparse.Namespace) -> str:
    noise = f"{options.labels}-{options.boxes}-{options.noise_seed}".replace(":", "")
    kind = f"mended-{options.tag}".rstrip("-") if options.mended else "baseline"
    return f"{Path(options.model).stem}-{noise}-{kind}-{options.seed}"


@contextlib.contextmanager
def _measure_seconds(durations: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    durations[name] = time.perf_counter() - start


def _versions() -> dict[str, str]:
    names = ("boxmend", "ultralytics", "torch", "torchvision", "numpy", "opencv-python-headless")
    found = {"python": platform.python_version()}
    for name in names:
        with contextlib.suppress(ImportError):
            found[name] = version(name)
    return found


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("voc", help="folder in VOC's layout")
    parser.add_argument("--work", required=True, help="folder of the data and runs")
    parser.add_argument("--out", help="file to append the line to")
    parser.add_argument("--model", default="yolo11n.yaml")
    parser.add_argument("--mended", action="store_true")
    parser.add_argument("--labels", default="none")
    parser.add_argument("--boxes", default="none")
    parser.add_argument("--noise-seed", type=int, default=0)
    parser.add_argument("--train-split", default="trainval")
    parser.add_argument("--test-split", default="test")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--imgsz", type=int, default=320)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--cache", default="", help="ram or disk")
    parser.add_argument("--device", default="")
    parser.add_argument("--warm-up", type=float, default=UpdateSchedule.warm_up)
    parser.add_argument("--every", type=int, default=UpdateSchedule.every)
    parser.add_argument("--prescreen", default="", help="weights of a ResNet-50, or default")
    parser.add_argument("--settings", default="{}", help="JSON for MenderSettings")
    parser.add_argument("--train", default="{}", help="JSON of other arguments of YOLO.train")
    parser.add_argument("--tag", default="", help="name of these settings")
    return parser.parse_args()


if __name__ == "__main__":
    main()
