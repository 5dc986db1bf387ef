"""Predict the training images of an Ultralytics trainer without augmentation.

The images are read, resized and batched as for Ultralytics' own validation. Suppression runs on
the device for a whole batch at once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader

from boxmend.auditing.predictions import Predictions
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Rows, Singles
from boxmend.detector.nms import suppress
from boxmend.errors import UsageError
from boxmend.integrations.evaluating import evaluate_mode
from boxmend.integrations.ultralytics.labels import find_images, image_sizes

MIN_SCORE = 0.01  # a Mender needs weak detections, too
MAX_OVERLAP_IOU = 0.7  # of two detections of one class
MAX_CANDIDATES = 300  # per image, before suppression
MAX_DETECTIONS = 100  # per image
SUPPORTED_MODELS = "boxmend supports YOLOv8, YOLO11 and YOLO26 detection models, like yolo11n.yaml"


class DatasetDetections(NamedTuple):
    """Detections in the images of a dataset, one row each."""

    image_rows: Rows  # [m]
    boxes: Floats  # [m, 4] corners in pixels of the dataset's images
    labels: Rows  # [m]
    scores: Singles  # [m]
    class_scores: Singles  # [m, C]


class Predictor:
    """Predicts the images of a dataset with a trainer's model; keeps the list of images."""

    def __init__(self, trainer: Any, dataset: Dataset, images: Any = None):
        """Prepare the images in Ultralytics' validation mode.

        `images` are folders or lists of images, by default those that the trainer trains on.
        """
        self._batch_size = 2 * min(trainer.batch_size, len(trainer.train_loader.dataset))
        self._images = _build_plain_images(trainer, images, self._batch_size)
        self._dataset = dataset
        self._rows = find_images(self._images.im_files, dataset)
        self._sizes = image_sizes(self._images.labels, self._rows, dataset)

    def predict(self, trainer: Any) -> Predictions:
        """Return the detections of the trainer's averaged weights in all images."""
        found = self.detect(trainer, select_detections)
        return Predictions(
            self._dataset.images.ids[found.image_rows],
            found.boxes,
            found.labels,
            found.scores,
            label_names=self._dataset.label_names,
            class_scores=found.class_scores,
        )

    def detect(self, trainer: Any, select: "Select") -> DatasetDetections:
        """Return what `select` chooses from the output of the model, like `select_detections`."""
        model = trainer.ema.ema
        with evaluate_mode(model):
            parts = list(self._detect_in_batches(trainer, model, select))
        numbers, shares, *columns = (np.concatenate(column) for column in zip(*parts, strict=True))
        boxes = shares.astype(np.float64) * np.tile(self._sizes[numbers], 2)
        return DatasetDetections(self._rows[numbers], boxes, *columns)

    @torch.no_grad()
    def _detect_in_batches(
        self, trainer: Any, model: nn.Module, select: "Select"
    ) -> Iterator[list[NDArray[Any]]]:
        """Yield image numbers, boxes as shares of the image, labels, scores and class scores."""
        device, first = trainer.device, 0
        is_half = bool(trainer.amp) and device.type == "cuda"
        for batch in self._make_loader(trainer):
            images = batch["img"].to(device, non_blocking=True).float() / 255
            with torch.autocast(device.type, torch.float16, is_half), _precise_head(model):
                output = model(images)[0]
            found = select(output.float())
            shares = _to_image_shares(found.boxes, batch)
            columns = (shares, found.labels, found.scores, found.class_scores)
            numbers = found.is_used.nonzero()[:, 0] + first
            kept = (numbers, *(column[found.is_used] for column in columns))
            yield [column.cpu().numpy() for column in kept]
            first += len(images)

    def _make_loader(self, trainer: Any) -> DataLoader[Any]:
        """Return batches in the order of the files; its processes end with the pass."""
        return DataLoader(
            self._images,
            batch_size=self._batch_size,
            num_workers=trainer.train_loader.num_workers,
            collate_fn=self._images.collate_fn,
            pin_memory=trainer.device.type == "cuda",
        )


def _build_plain_images(trainer: Any, images: Any, batch_size: int) -> Any:
    """Return Ultralytics' dataset of images, by default those of the training, unaugmented.

    Training images that the trainer keeps in memory are shared with it.
    """
    arguments = trainer.args
    trainer.args = copy(arguments)
    trainer.args.cache = False
    try:
        dataset = trainer.build_dataset(
            images or trainer.data["train"], mode="val", batch=batch_size
        )
    finally:
        trainer.args = arguments
    source = trainer.train_loader.dataset
    if source.cache == "ram" and images is None:
        numbers = {file: number for number, file in enumerate(source.im_files)}
        order = [numbers[file] for file in dataset.im_files]
        for name in ("ims", "im_hw0", "im_hw"):
            column = getattr(source, name)
            setattr(dataset, name, [column[number] for number in order])
    return dataset


@contextmanager
def _precise_head(model: nn.Module) -> Iterator[None]:
    """Compute the last module in full precision, since half of it rounds boxes to 0.25 pixels."""
    head = list(model.model.children())[-1]  # type: ignore[union-attr]
    scope = torch.autocast(next(head.parameters()).device.type, enabled=False)

    def enter(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        scope.__enter__()  # type: ignore[no-untyped-call]
        return ([level.float() for level in inputs[0]], *inputs[1:])

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        scope.__exit__(None, None, None)

    hooks = head.register_forward_pre_hook(enter), head.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class BatchDetections(NamedTuple):
    """The detections of a batch, padded to n per image."""

    boxes: Tensor  # [B, n, 4] corners
    labels: Tensor  # [B, n]
    scores: Tensor  # [B, n]
    class_scores: Tensor  # [B, n, C], or [B, n, 0]
    is_used: Tensor  # [B, n] false for padding and suppressed detections


Select = Callable[[Tensor], BatchDetections]


def select_detections(output: Tensor) -> BatchDetections:
    """Return the detections in the output of a YOLOv8, YOLO11 or YOLO26 head.

    `output` [B, 4 + C, A] has centers, sizes and class scores at each anchor. The head of YOLO26
    can predict negative sizes; these boxes are dropped.
    """
    scores, labels = output[:, 4:].max(dim=1)
    scores, anchors = scores.topk(min(MAX_CANDIDATES, scores.shape[1]), dim=1)
    labels = labels.gather(1, anchors)
    columns = output.gather(2, anchors[:, None].expand(-1, output.shape[1], -1)).transpose(1, 2)
    centers, sides, vectors = columns[..., :2], columns[..., 2:4], columns[..., 4:]
    boxes = torch.cat([centers - sides / 2, centers + sides / 2], dim=-1)
    is_valid = (scores >= MIN_SCORE) & (sides > 0).all(dim=-1)
    keep, _ = suppress(boxes, is_valid, overlap=MAX_OVERLAP_IOU, groups=labels)
    keep = keep & (keep.cumsum(1) <= MAX_DETECTIONS)
    return BatchDetections(boxes, labels, scores, vectors, keep)


def _to_image_shares(boxes: Tensor, batch: dict[str, Any]) -> Tensor:
    """Return corners [B, n, 4] in a padded batch as shares of each image, clipped to it."""
    frames = [
        (left, top, width * ratio_w, height * ratio_h)
        for (height, width), ((ratio_h, ratio_w), (left, top)) in zip(
            batch["ori_shape"], batch["ratio_pad"], strict=True
        )
    ]
    left, top, width, height = torch.tensor(frames, device=boxes.device).T[:, :, None]
    origin = torch.stack([left, top, left, top], dim=-1)
    return ((boxes - origin) / torch.stack([width, height, width, height], dim=-1)).clamp(0, 1)


def ensure_supported_model(model: nn.Module) -> None:
    """Raise a UsageError if the model's last module does not return scores at each anchor."""
    head = list(model.model.children())[-1]  # type: ignore[union-attr]
    kind = type(head).__name__
    if kind != "Detect" or getattr(head, "end2end", False):
        raise UsageError(
            f"the model ends with {kind}{' without suppression' if kind == 'Detect' else ''}; "
            f"{SUPPORTED_MODELS}; YOLO26 needs a recent Ultralytics, like 8.4.190"
        )
