"""Train an Ultralytics detector on noisy annotations, with or without mending, and score it.

    python benchmarks/ultralytics_training.py VOC --work FOLDER --out lines.jsonl
        [--method mender] [--labels symmetric:0.4] [--boxes uniform:0.4] [--seed 0]
        [--prescreen resnet50.safetensors] [--settings '{"soft_labels": false}']
        [--model yolov8n.yaml] [--epochs 60] [--imgsz 320] [--batch 64] [--workers 2]

VOC is a folder in VOC's layout. Noise is added to its training split, difficult objects are left
out, and the rest is written as YOLO into the work folder, where equal noise is made once. The
training starts from random weights. The last averaged weights are scored on the test split by the
rules of VOC and COCO, and a line of results is appended to a file. Ultralytics neither downloads
nor sends anything.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
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
from boxmend.integrations.schedule import UpdateSchedule
from boxmend.integrations.ultralytics.predicting import BatchDetections, Predictor
from boxmend.training.evaluation import Evaluation, score
from other_trainers import (
    Mended,
    NoisyData,
    Stopwatch,
    add_options,
    append_line,
    get_cell,
    load_data,
    load_prescreen,
)

MIN_SCORE = 0.001  # of a detection that is scored, as in Ultralytics' own validation
MAX_OVERLAP_IOU = 0.7
MAX_CANDIDATES, MAX_DETECTIONS = 1000, 300


def main() -> None:
    """Train and score once, and append the line of results."""
    options = _parse_options()
    options.work = options.work.absolute()
    # The check of half precision would download weights.
    ultralytics.engine.trainer.check_amp = lambda model: True
    data = load_data(options)
    train, test = write_data(options, data)
    name = get_cell(options).name
    model, stopwatch = YOLO(options.model), Stopwatch()
    dataset = boxmend.load(f"{train / 'data.yaml'}:train")
    attached = None
    if options.method == "mender":
        with stopwatch.measure("prescreen"):
            prescreen = load_prescreen(options, dataset)
        attached = mending.attach(
            model,
            options.work / "runs" / name,
            boxmend.MenderSettings(**options.settings),
            dataset=dataset,
            prescreen=prescreen,
            warm_up=options.warm_up,
            every=options.every,
        )
    with stopwatch.measure("train"), contextlib.redirect_stdout(sys.stderr):
        model.train(
            data=str(train / "data.yaml"),
            epochs=options.epochs,
            imgsz=options.imgsz,
            batch=options.batch,
            workers=options.workers,
            device=options.device,
            seed=options.seed,
            cache=options.cache or False,
            project=str(options.work / "ultralytics"),
            name=name,
            exist_ok=True,
            pretrained=False,
            val=False,
            plots=False,
            verbose=False,
            **options.train,
        )
    with stopwatch.measure("score"):
        evaluation = score_on(model.trainer, data.val, test)
    mended = None
    if attached is not None:
        assert attached.run is not None
        truth = boxmend.load(f"{options.work / 'clean' / 'data.yaml'}:train")
        mended = Mended(attached.run, dataset, truth)
    append_line(options, f"{Path(options.model).stem}-voc320", data, evaluation, stopwatch, mended)


def write_data(options: argparse.Namespace, data: NoisyData) -> tuple[Path, Path]:
    """Write the noisy data and the test data in YOLO's format; return their folders."""
    cell = get_cell(options)
    train, test = options.work / f"train-{cell.noise_folder}", options.work / "test"
    options.work.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(options.work / ".data.lock"):
        _write(data.clean, options.work / "clean")
        _write(data.noisy, train)
        _write(data.val, test)
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


def score_on(trainer: Any, dataset: Dataset, folder: Path) -> Evaluation:
    """Return the scores of a trainer's averaged weights on a dataset with images in `folder`."""
    predictor = Predictor(trainer, dataset, str(folder / "images" / "train"))
    found = predictor.detect(trainer, select_all_classes)
    detections = Detections(found.image_rows, found.labels, found.scores, found.boxes)
    return score(detections, dataset)


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


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser)
    parser.add_argument("--model", default="yolov8n.yaml")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--imgsz", type=int, default=320)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cache", default="ram", help="ram or disk")
    parser.add_argument("--device", default="")
    parser.add_argument("--warm-up", type=float, default=UpdateSchedule.warm_up)
    parser.add_argument("--every", type=int, default=UpdateSchedule.every)
    parser.add_argument("--train", type=json.loads, default={}, help="JSON for YOLO.train")
    return parser.parse_args()


if __name__ == "__main__":
    main()
