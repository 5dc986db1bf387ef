"""Train torchvision's FCOS on VOC with known noise, with or without a `Mender`, and score it.

    python benchmarks/fcos_training.py VOC --weights FILE --work FOLDER --out lines.jsonl
        [--method mender] [--labels symmetric:0.4] [--boxes uniform:0.4] [--seed 0]
        [--prescreen FILE] [--epochs 12] [--batch 16] [--lr 1e-4] [--box-bias 4]

VOC is a folder in VOC's layout with images of at most 320 pixels. The weights are those of a
ResNet-50 trained on ImageNet, without classifier. Network and losses are those of torchvision's
`fcos_resnet50_fpn`; stem and first stage are frozen. All images stay on the device, on canvases of
one size, and half of them are mirrored in every epoch. Difficult objects are left out. The result
is a line in the file `--out`. Nothing is downloaded.
"""

import argparse
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torchvision.models.detection import FCOS
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.image_list import ImageList
from torchvision.ops.feature_pyramid_network import LastLevelP6P7

from boxmend import Dataset, Mender, MenderSettings, Predictions
from boxmend.data.detections import Detections
from boxmend.data.images.decoding import convert_to_rgb, open_image, read_image
from boxmend.detector import build
from boxmend.detector.boxes import clip
from boxmend.detector.faster_rcnn import IMAGE_MEAN, IMAGE_STD
from boxmend.detector.nms import suppress
from boxmend.errors import DataError
from boxmend.repair.mender import MendedAnnotations
from boxmend.runs.settings import Optimisation
from boxmend.training.evaluation import score
from boxmend.training.optimisation import build_optimizer, clip_gradients, learning_rate_at
from other_trainers import (
    Mended,
    Stopwatch,
    add_options,
    append_line,
    get_cell,
    load_data,
    load_prescreen,
)

TRAINER = "fcos-voc320"
SIDE_PIXELS = 320  # of the canvas
MIN_SIDE_PIXELS = 0.1  # of an annotation; no anchor of FCOS lies in a smaller one
MAX_NORM = 35.0  # of the gradients
OPTIMISATION = Optimisation(
    optimizer="adamw", weight_decay=1e-4, schedule="step", drop_at=0.75, warm_up_steps=200
)
STEPS_PER_CHECK = 50  # of the loss; a check waits for the device
IMAGES_PER_BATCH = 64  # in inference
MENDER_MIN_SCORE, SCORED_MIN_SCORE = 0.1, 0.001
MAX_CANDIDATES, MAX_DETECTIONS = 1000, 100  # per image, before and after suppression
SUPPRESSION_ROUNDS = 60  # detections of an untrained FCOS form long chains of overlaps


def main() -> None:
    """Train and score once, and append the line of results."""
    options = _parse_options()
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data, stopwatch = load_data(options), Stopwatch()
    mender = None
    if options.method == "mender":
        with stopwatch.measure("prescreen"):
            mender = make_mender(options, data.noisy)
    with stopwatch.measure("decode"):
        pictures = load_pictures(data.noisy, device)
    torch.manual_seed(options.seed)  # equal first weights, whether there is a prescreen or not
    network = Network(options, len(data.noisy.label_names), device)
    run = None
    with stopwatch.measure("train"):
        train(Trainer(network, pictures, options), data.noisy, mender, stopwatch)
        if mender is not None:
            run = mender.finish()
    del pictures
    with stopwatch.measure("score"):
        found = detect(network, load_pictures(data.val, device), SCORED_MIN_SCORE)
        evaluation = score(found, data.val)
    mended = None if run is None else Mended(run, data.noisy, data.clean)
    append_line(options, TRAINER, data, evaluation, stopwatch, mended)
    print(", ".join(f"{name} {value:.1f} s" for name, value in stopwatch.seconds.items()))


def make_mender(options: argparse.Namespace, dataset: Dataset) -> Mender:
    """Return a `Mender` with its run in the folder of the work."""
    return Mender(
        dataset,
        MenderSettings(**options.settings),
        out=options.work / "runs" / f"{TRAINER}-{get_cell(options).name}",
        prescreen=load_prescreen(options, dataset),
    )


@dataclass(frozen=True)
class Pictures:
    """The images of a dataset on a device, on canvases of one size."""

    pixels: Tensor  # [n, 3, SIDE_PIXELS, SIDE_PIXELS] uint8
    sizes: Tensor  # [n, 2] height and width
    mean: Tensor  # [3, 1, 1]
    std: Tensor  # [3, 1, 1]

    def make_batch(self, rows: Tensor, is_mirrored: Tensor | None = None) -> Tensor:
        """Return normalised canvases; some of them are mirrored."""
        batch = self.pixels[rows]
        if is_mirrored is not None:
            batch = torch.where(is_mirrored[:, None, None, None], batch.flip(3), batch)
        return ((batch / 255 - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def load_pictures(dataset: Dataset, device: torch.device) -> Pictures:
    """Decode the images of a dataset; the rest of a canvas has the mean colour of ImageNet."""
    paths = dataset.images.paths
    pixels = torch.empty(len(paths), 3, SIDE_PIXELS, SIDE_PIXELS, dtype=torch.uint8)
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGE_MEAN, IMAGE_STD))
    pixels[:] = (mean * 255).round()

    def decode(row: int) -> tuple[int, int]:
        with open_image(read_image(paths[row])) as image:
            values = torch.from_numpy(np.array(convert_to_rgb(image))).permute(2, 0, 1)
        height, width = values.shape[1:]
        if max(height, width) > SIDE_PIXELS:
            raise DataError(f"{paths[row]}: a side exceeds {SIDE_PIXELS} pixels; scale the images")
        pixels[row, :, :height, :width] = values
        return height, width

    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        sizes = torch.tensor(list(pool.map(decode, range(len(paths)))))
    return Pictures(*(column.to(device) for column in (pixels, sizes, mean, std)))


class Network:
    """torchvision's FCOS for batches of canvases."""

    def __init__(self, options: argparse.Namespace, num_labels: int, device: torch.device):
        body = build("resnet50", num_labels, options.weights).network.backbone.body
        levels, channels = {"layer2": "0", "layer3": "1", "layer4": "2"}, [512, 1024, 2048]
        backbone = BackboneWithFPN(body, levels, channels, 256, LastLevelP6P7(256, 256))
        backbone.body.to(memory_format=torch.channels_last)
        self.model = FCOS(backbone, num_labels).to(device)
        torch.nn.init.constant_(self.model.head.regression_head.bbox_reg.bias, options.box_bias)
        self.num_labels, self.device = num_labels, device
        self._precision = torch.bfloat16 if options.precision == "bf16" else torch.float32
        self._make_anchors()

    @torch.no_grad()
    def _make_anchors(self) -> None:
        """Compute the anchors [A, 4], which are those of every canvas."""
        canvas = torch.zeros(1, 3, SIDE_PIXELS, SIDE_PIXELS, device=self.device)
        levels = list(self.model.backbone(canvas).values())
        images = ImageList(canvas, [(SIDE_PIXELS, SIDE_PIXELS)])
        self._anchors: Tensor = self.model.anchor_generator(images, levels)[0]
        self._anchors_per_level = [level.shape[2] * level.shape[3] for level in levels]

    def compute_outputs(self, batch: Tensor) -> dict[str, Tensor]:
        """Return the outputs of the head in full precision."""
        is_mixed = self._precision != torch.float32
        with torch.autocast(self.device.type, torch.bfloat16, is_mixed):
            outputs = self.model.head(list(self.model.backbone(batch).values()))
        return {name: values.float() for name, values in outputs.items()}

    def compute_loss(self, batch: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
        """Return the sum of torchvision's losses."""
        outputs, anchors = self.compute_outputs(batch), [self._anchors] * len(batch)
        losses = self.model.compute_loss(targets, outputs, anchors, self._anchors_per_level)
        return torch.stack(list(losses.values())).sum()

    def detect(self, batch: Tensor, sizes: Tensor, min_score: float) -> list[Tensor]:
        """Return places in the batch, labels, scores and boxes of all detections.

        torchvision limits the candidates of every level and loops over images; here the limit
        counts for the image.
        """
        outputs = self.compute_outputs(batch)
        scores = (outputs["cls_logits"].sigmoid() * outputs["bbox_ctrness"].sigmoid()).sqrt()
        anchors = self._anchors.expand(len(batch), -1, -1)
        boxes = self.model.box_coder.decode(outputs["bbox_regression"], anchors)
        scores, candidates = scores.flatten(1).topk(MAX_CANDIDATES)
        places, labels = candidates // self.num_labels, candidates % self.num_labels
        boxes = clip(boxes.gather(1, places[..., None].expand(-1, -1, 4)), sizes)
        is_valid = (scores > min_score) & (boxes[..., 2:] > boxes[..., :2]).all(-1)
        overlap = self.model.nms_thresh
        keep, _ = suppress(
            boxes, is_valid, overlap=overlap, groups=labels, rounds=SUPPRESSION_ROUNDS
        )
        keep = keep & (keep.cumsum(1) <= MAX_DETECTIONS)
        images, ranks = keep.nonzero(as_tuple=True)
        return [images, *(column[images, ranks] for column in (labels, scores, boxes))]


@torch.no_grad()
def detect(network: Network, pictures: Pictures, min_score: float) -> Detections:
    """Return the detections in all images."""
    parts = []
    all_rows = torch.arange(len(pictures.pixels), device=network.device)
    for rows in torch.split(all_rows, IMAGES_PER_BATCH):
        batch = pictures.make_batch(rows)
        places, *columns = network.detect(batch, pictures.sizes[rows], min_score)
        parts.append([rows[places], *columns])
    images, labels, scores, boxes = (
        torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)
    )
    return Detections(images, labels, scores, boxes)


class Targets:
    """The annotations to train on, by image, as they are and mirrored."""

    def __init__(self, annotations: Dataset | MendedAnnotations, pictures: Pictures):
        columns, device = annotations, pictures.pixels.device
        boxes = columns.boxes.astype(np.float32)
        has_area = (boxes[:, 2:] - boxes[:, :2] >= MIN_SIDE_PIXELS).all(axis=1)  # false for NaN
        is_known = (columns.labels >= 0) & (columns.image_rows >= 0)
        is_used = ~columns.is_ignored if isinstance(columns, Dataset) else columns.weights > 0
        kept = np.flatnonzero(is_used & has_area & is_known)
        kept = kept[np.argsort(columns.image_rows[kept], kind="stable")]
        images = np.arange(len(pictures.pixels) + 1)
        self._starts = np.searchsorted(columns.image_rows[kept], images).tolist()
        self._labels = torch.from_numpy(columns.labels[kept]).to(device)
        plain = torch.from_numpy(boxes[kept]).to(device)
        x1, y1, x2, y2 = plain.unbind(1)
        mirrored = torch.stack([SIDE_PIXELS - x2, y1, SIDE_PIXELS - x1, y2], dim=1)
        self._boxes = plain, mirrored

    def of_image(self, row: int, is_mirrored: bool) -> dict[str, Tensor]:
        """Return the target of one image, as torchvision expects it."""
        rows = slice(self._starts[row], self._starts[row + 1])
        return {"boxes": self._boxes[is_mirrored][rows], "labels": self._labels[rows]}


class Trainer:
    """The training of a network on images that stay the same while annotations may change."""

    def __init__(self, network: Network, pictures: Pictures, options: argparse.Namespace):
        self.network, self.pictures, self.epochs = network, pictures, options.epochs
        self._batch, self._lr = options.batch, options.lr
        self._parameters = [p for p in network.model.parameters() if p.requires_grad]
        self._optimizer = build_optimizer(self._parameters, OPTIMISATION, options.lr)
        self._random = torch.Generator().manual_seed(options.seed)
        self._num_steps = options.epochs * -(-len(pictures.pixels) // options.batch)
        self._step = 0

    def train_epoch(self, targets: Targets) -> float:
        """Train on every image once, in random order; return the mean loss."""
        order = torch.randperm(len(self.pictures.pixels), generator=self._random)
        is_mirrored = torch.rand(len(order), generator=self._random) < 0.5
        device = self.network.device
        pairs = list(zip(order.tolist(), is_mirrored.tolist(), strict=True))
        order, is_mirrored = order.to(device), is_mirrored.to(device)
        total, first = torch.zeros((), device=device), self._step
        for start in range(0, len(pairs), self._batch):
            part = slice(start, start + self._batch)
            images = self.pictures.make_batch(order[part], is_mirrored[part])
            total += self._train_step(images, [targets.of_image(*pair) for pair in pairs[part]])
            if self._step % STEPS_PER_CHECK == 0:
                self._ensure_finite(total)
        self._ensure_finite(total)
        return float(total) / (self._step - first)

    def _train_step(self, images: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
        """Make one step; return its loss without waiting for the device."""
        rate = learning_rate_at(self._step, self._num_steps, self._lr, OPTIMISATION)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = self.network.compute_loss(images, targets)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_gradients(self._parameters, MAX_NORM)
        self._optimizer.step()
        self._step += 1
        return loss.detach()

    def _ensure_finite(self, total: Tensor) -> None:
        if not bool(total.isfinite()):
            raise FloatingPointError(
                f"the loss is not finite after {self._step} of {self._num_steps} steps; try again "
                "with a lower --lr"
            )


def train(trainer: Trainer, dataset: Dataset, mender: Mender | None, stopwatch: Stopwatch) -> None:
    """Train all epochs; a `Mender` revises the annotations after each of them."""
    for epoch in range(trainer.epochs):
        start = time.perf_counter()
        annotations = dataset if mender is None else mender.annotations()
        loss = trainer.train_epoch(Targets(annotations, trainer.pictures))
        speed = len(dataset.images) / (time.perf_counter() - start)
        text = f"epoch {epoch + 1} of {trainer.epochs}: loss {loss:.3f}, {speed:.0f} images/s"
        if mender is not None:
            with stopwatch.measure("updates"):
                text += f", {update(mender, epoch, trainer)}"
        print(text, flush=True)


def update(mender: Mender, epoch: int, trainer: Trainer) -> str:
    """Update a `Mender` by the detections in the unaugmented training images; describe it.

    FCOS scores are the root of class probability times centerness; a `Mender` expects the product.
    """
    dataset = mender.dataset
    found = detect(trainer.network, trainer.pictures, MENDER_MIN_SCORE)
    predictions = Predictions(
        dataset.images.ids[found.image_rows],
        found.boxes,
        found.labels,
        found.scores**2,
        label_names=dataset.label_names,
    )
    result = mender.update(epoch, predictions)
    return (
        f"{len(found.labels)} detections, {result.num_relabelled} relabelled, "
        f"{result.num_moved} moved, {result.num_spurious} spurious, label noise "
        f"{result.label_noise.value:.2f}, box noise {result.box_noise.value:.2f}"
    )


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_options(parser)
    parser.add_argument("--weights", type=Path, required=True, help="ResNet-50, safetensors")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=16, help="images per step")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument(
        "--box-bias",
        type=float,
        default=4.0,  # with 0, the rectifier after the regression dies of 40 % box noise
        help="bias of the box regression at the start, in strides; torchvision's is 0",
    )
    parser.add_argument("--precision", choices=("tf32", "bf16"), default="bf16")
    return parser.parse_args()


if __name__ == "__main__":
    main()
