"""A Mender in a real training: a small FCOS learns drawn toys with wrong labels and loose boxes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR
from torchvision.models.detection.fcos import FCOS

import boxmend
from boxmend import Mender, Predictions
from boxmend.cli import run
from boxmend.data.boxes import compute_iou
from boxmend.data.dataset import Dataset
from boxmend.repair.mender import MendedAnnotations
from tests.repair.mender.tiny_fcos import make_tiny_fcos

SIZE = 96
EPOCHS = 12
BATCH = 16
RATE = 2e-3  # of learning, at its highest


def train_one_epoch(
    model: FCOS, schedule: LRScheduler, images: Tensor, mended: MendedAnnotations
) -> None:
    """Train on mended annotations, with images mirrored at random."""
    model.train()
    for batch in torch.split(torch.randperm(len(images)), BATCH):
        inputs, targets = [], []
        for row in batch.tolist():
            rows = mended.rows_of_image(row)
            rows = rows[mended.weights[rows] > 0]
            image, boxes = images[row], torch.tensor(mended.boxes[rows], dtype=torch.float32)
            if torch.rand(()) < 0.5:
                image, boxes = image.flip(-1), boxes[:, [2, 1, 0, 3]]
                boxes[:, [0, 2]] = SIZE - boxes[:, [0, 2]]
            inputs.append(image)
            targets.append({"boxes": boxes, "labels": torch.tensor(mended.labels[rows])})
        loss = torch.stack(list(model(inputs, targets).values())).sum()
        schedule.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        schedule.optimizer.step()
        schedule.step()


@torch.no_grad()
def detect(model: FCOS, images: Tensor, names: list[str]) -> Predictions:
    model.eval()
    outputs = [output for part in torch.split(images, 32) for output in model(list(part))]
    return Predictions(
        [name for name, out in zip(names, outputs, strict=True) for _ in out["scores"]],
        torch.cat([out["boxes"] for out in outputs]),
        torch.cat([out["labels"] for out in outputs]),
        torch.cat([out["scores"] for out in outputs]),
    )


def train(dataset: Dataset, out: Path) -> MendedAnnotations:
    """Train with a Mender; return the annotations at the end."""
    images = torch.stack(
        [
            torch.tensor(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1) / 255
            for path in dataset.images.paths
        ]
    )
    model = make_tiny_fcos(len(dataset.label_names), SIZE, score_thresh=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    mender = Mender(dataset, out=out)
    for epoch in range(EPOCHS):
        train_one_epoch(model, schedule, images, mender.annotations())
        mender.update(epoch, detect(model, images, dataset.images.file_names))
    mended = mender.annotations()
    mender.finish()
    return mended


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the first epoch fits no annotation
@pytest.mark.usefixtures("one_thread")
def test_a_training_mends_noisy_annotations_and_leaves_clean_ones(tmp_path: Path) -> None:
    assert run(["synth", "--images", "400", "--out", str(tmp_path / "toys")]) == 0
    noise = ["--labels", "symmetric:0.3", "--boxes", "uniform:0.3"]
    out = tmp_path / "noisy"
    assert run(["noise", f"{tmp_path / 'toys'}:train", *noise, "--out", str(out)]) == 0
    clean, noisy = boxmend.load(f"{tmp_path / 'toys'}:train"), boxmend.load(out)
    assert clean.annotation_ids.tolist() == noisy.annotation_ids.tolist()

    mended = train(noisy, tmp_path / "run")
    n = len(noisy)
    before, after = (
        compute_iou(boxes, clean.boxes).mean() for boxes in (noisy.boxes, mended.boxes[:n])
    )
    assert before < 0.6
    assert after > before + 0.18
    wrong_before, wrong_after = (
        (labels != clean.labels).mean() for labels in (noisy.labels, mended.labels[:n])
    )
    assert wrong_after < wrong_before - 0.015

    kept = train(clean, tmp_path / "clean")
    assert (kept.labels[: len(clean)] != clean.labels).mean() < 0.015
    assert compute_iou(kept.boxes[: len(clean)], clean.boxes).mean() > 0.99
    assert kept.weights.mean() > 0.99
