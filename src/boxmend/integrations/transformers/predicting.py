"""Predict training images without augmentation."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from boxmend.auditing.predictions import Predictions
from boxmend.integrations.evaluating import evaluate_mode
from boxmend.integrations.transformers.images import TrainingImages

MIN_SCORE = 0.01  # a Mender needs weak detections, too
MAX_DETECTIONS = 100  # per image


@torch.no_grad()
def predict(
    model: Any, images: TrainingImages, batch_size: int = 8, num_workers: int = 0
) -> Predictions:
    """Return the detections of a model in all images, in pixels of the images as stored."""
    found: list[tuple[int, dict[str, Tensor]]] = []
    with evaluate_mode(model):
        for rows, inputs, sizes in _make_loader(images, batch_size, num_workers):
            outputs = _forward(model, inputs.to(model.device, model.dtype))
            detections = images.processor.post_process_object_detection(
                outputs, threshold=MIN_SCORE, target_sizes=sizes.to(model.device)
            )
            found += zip(rows, map(_select_best, detections), strict=True)
    image_rows = [row for row, detections in found for _ in detections["scores"]]
    boxes, labels, scores = (
        torch.cat([detections[name] for _, detections in found])
        for name in ("boxes", "labels", "scores")
    )
    dataset = images.dataset
    return Predictions(
        dataset.images.ids[image_rows], boxes, labels, scores, label_names=dataset.label_names
    )


def _make_loader(images: TrainingImages, batch_size: int, num_workers: int) -> DataLoader[Any]:
    return DataLoader(
        range(len(images)),  # type: ignore[arg-type]  # a sequence of rows
        batch_size,
        collate_fn=partial(_prepare, images),
        num_workers=num_workers,
    )


def _prepare(images: TrainingImages, rows: Sequence[int]) -> tuple[Sequence[int], Any, Tensor]:
    """Return rows, inputs of the model and the sizes of the frames, without augmentation."""
    pictures = [images.read(row) for row in rows]
    inputs = images.processor(images=pictures, return_tensors="pt")
    sizes = torch.tensor([(picture.height, picture.width) for picture in pictures])
    return rows, inputs, compute_frame_sizes(sizes, inputs.get("pixel_mask"))


def compute_frame_sizes(sizes: Tensor, pixel_mask: Tensor | None) -> Tensor:
    """Return height and width [n, 2] of the padded images, in pixels of the images as stored.

    `sizes` [n, 2] are those of the images; `pixel_mask` [n, H, W] is 0 in the padding. Boxes are
    shares of the padded image.
    """
    if pixel_mask is None:
        return sizes
    used = torch.stack([pixel_mask.amax(2).sum(1), pixel_mask.amax(1).sum(1)], dim=1)
    return sizes * torch.tensor(pixel_mask.shape[1:]) / used


def _forward(model: Any, inputs: Any) -> Any:
    """Return the output of a model without the mixed precision of a Trainer, which rounds boxes.

    A Trainer replaces `model.forward` for it.
    """
    return type(model).forward(model, **inputs)


def _select_best(detections: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the detections of an image with the highest scores, on the CPU."""
    best = detections["scores"].argsort(descending=True)[:MAX_DETECTIONS]
    selected = {name: column[best].cpu() for name, column in detections.items()}
    return {
        **selected,
        "boxes": selected["boxes"].float(),
        "scores": selected["scores"].float(),
    }
