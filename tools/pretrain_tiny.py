"""Make the weights that `tiny` starts from: a detector of other toys, of which the backbone stays.

    python tools/pretrain_tiny.py [--images N] [--epochs N] [--out FILE]

The dataset is drawn by `other_toys`. Normalisations learn with the statistics of each batch; at
the end they are measured again over many images, because what is shipped never changes them.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from boxmend.detector import Detector, Targets, build
from boxmend.detector.backbones import SHIPPED_TINY
from boxmend.runs.settings import Optimisation
from boxmend.training.optimisation import build_optimizer, clip_gradients, learning_rate_at
from other_toys import LABEL_NAMES, MOST_OBJECTS, SIZE, draw

SEED = 1_000_003  # unlike the seeds people choose: backgrounds follow from the seed as in `synth`
BATCH_SIZE = 16
MEASURED_IMAGES = 2000  # for the final statistics of the normalisations
MAX_NORM = 10.0


def main() -> None:
    """Draw, train and save, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=SHIPPED_TINY)
    asked = parser.parse_args()
    torch.set_num_threads(1)  # sums in a fixed order: same seed, same weights
    torch.manual_seed(asked.seed)
    images, targets = draw_scenes(asked.seed, asked.images)
    detector = build("tiny", len(LABEL_NAMES), frozen_norm=False)
    train(detector, images, targets, epochs=asked.epochs, lr=asked.lr)
    measure_norms(detector, images[:MEASURED_IMAGES])
    save_backbone(detector, asked.out)
    print(f"wrote {asked.out}, {asked.out.stat().st_size:,} bytes")


def draw_scenes(seed: int, count: int) -> tuple[Tensor, Targets]:
    """Draw `count` scenes: images [N, 3, H, W] uint8, and their padded annotations."""
    images = torch.zeros(count, 3, SIZE, SIZE, dtype=torch.uint8)
    boxes = torch.zeros(count, MOST_OBJECTS, 4)
    labels = torch.zeros(count, MOST_OBJECTS, dtype=torch.int64)
    is_box = torch.zeros(count, MOST_OBJECTS, dtype=torch.bool)
    for index in range(count):
        scene = draw(seed, index)
        result = len(scene.labels)
        images[index] = torch.from_numpy(scene.pixels)
        boxes[index, :result] = torch.from_numpy(scene.boxes)
        labels[index, :result] = torch.from_numpy(scene.labels)
        is_box[index, :result] = True
    return images, Targets(boxes, labels, is_box, torch.zeros_like(is_box))


def train(detector: Detector, images: Tensor, targets: Targets, *, epochs: int, lr: float) -> None:
    """Train all of a detector, with a rate that falls to zero along a cosine."""
    network = detector.network
    settings = Optimisation(optimizer="adamw", schedule="cosine")
    optimizer = build_optimizer(network.parameters(), settings, lr)
    num_steps = epochs * (len(images) // BATCH_SIZE)
    network.train()
    started, recent = time.monotonic(), 0.0
    for step, (batch, wanted) in enumerate(batches(images, targets, epochs)):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, num_steps, lr, settings)
        loss = total_loss(detector, batch, wanted)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_gradients(network.parameters(), MAX_NORM)
        optimizer.step()
        recent += (float(loss.detach()) - recent) / min(step + 1, 100)
        if (step + 1) % 250 == 0:
            passed = time.monotonic() - started
            print(f"step {step + 1}/{num_steps} loss {recent:.3f} after {passed:.0f} s", flush=True)


def batches(images: Tensor, targets: Targets, epochs: int) -> Iterator[tuple[Tensor, Targets]]:
    """Yield shuffled whole batches, each image mirrored at random across either axis."""
    for _ in range(epochs):
        order = torch.randperm(len(images))
        for rows in order[: len(order) // BATCH_SIZE * BATCH_SIZE].view(-1, BATCH_SIZE):
            boxes, labels, *masks = (column[rows] for column in targets[:4])
            chosen = Targets(boxes, labels, masks[0], masks[1])
            yield mirror(images[rows], chosen, torch.rand(2, BATCH_SIZE) < 0.5)


def mirror(images: Tensor, targets: Targets, is_mirrored: Tensor) -> tuple[Tensor, Targets]:
    """Mirror square images where is_mirrored [2, B]: left to right first, then top to bottom."""
    side, boxes = images.shape[-1], targets.boxes
    for axis, mask in enumerate(is_mirrored):
        there = boxes.clone()
        there[..., axis] = side - boxes[..., axis + 2]
        there[..., axis + 2] = side - boxes[..., axis]
        boxes = torch.where(mask[:, None, None], there, boxes)
        images = torch.where(mask[:, None, None, None], images.flip(-1 - axis), images)
    return images, targets._replace(boxes=boxes)


def total_loss(detector: Detector, images: Tensor, targets: Targets) -> Tensor:
    """Compute the sum of the four losses of both stages."""
    sizes = torch.full((len(images), 2), SIZE)
    features = detector.features(images, sizes)
    raw = detector.rpn(features)
    proposals = detector.proposals(raw, sizes)
    rpn = detector.rpn_losses(raw, targets, torch.rand(raw.objectness.shape))
    candidates = proposals.boxes.shape[1] + targets.boxes.shape[1]
    keys = torch.rand(len(images), candidates)
    rois = detector.sample_rois(proposals, targets, keys)
    roi = detector.roi_losses(detector.roi_outputs(features, rois.boxes), rois, targets)
    return rpn.objectness + rpn.boxes + roi.classification + roi.boxes


@torch.no_grad()
def measure_norms(detector: Detector, images: Tensor) -> None:
    """Replace the running statistics by the plain mean over images; keep the weights."""
    backbone = detector.network.backbone
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # a mean of all batches
    backbone.train()
    for batch in torch.split(images, BATCH_SIZE * 4):
        detector.features(batch, torch.full((len(batch), 2), SIZE))


def save_backbone(detector: Detector, path: Path) -> None:
    """Write backbone and neck in half precision; raise an error if that loses a value."""
    tensors = {
        key: value.half().contiguous()
        for key, value in detector.network.backbone.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    lost = [key for key, value in tensors.items() if not value.isfinite().all()]
    if lost:
        raise ValueError(f"out of the range of half precision: {', '.join(lost)}")
    save_file(tensors, path, {"detector": detector.name})  # one key: several come in any order


if __name__ == "__main__":
    main()
