"""Faster R-CNN for padded batches, with torchvision's parameters and its own forward pass.

All tensors have fixed shapes and masks; nothing waits for the device or loops over images.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torchvision.models.detection.faster_rcnn import FasterRCNN

from boxmend.detector.anchors import anchors
from boxmend.detector.assignment import Targets, assign
from boxmend.detector.boxes import clamp_to_canvas, clip
from boxmend.detector.coding import decode, encode
from boxmend.detector.detections import PaddedDetections, SecondStageOutput, select
from boxmend.detector.folding import folded_maps, is_foldable
from boxmend.detector.losses import (
    SumOverProcesses,
    box_loss,
    classification_loss,
    count,
    objectness_loss,
)
from boxmend.detector.numbers import DetectorNumbers
from boxmend.detector.pooling import pool
from boxmend.detector.proposals import Proposals, RpnOutput, propose
from boxmend.detector.sampling import sample
from boxmend.errors import UsageError

IMAGE_MEAN = (0.485, 0.456, 0.406)  # of ImageNet, RGB in 0..1
IMAGE_STD = (0.229, 0.224, 0.225)
CANVAS_MULTIPLE = 32  # pixels: the largest stride of a backbone


class Features(NamedTuple):
    """The feature maps of a batch by level, and the canvas of its images."""

    maps: dict[str, Tensor]  # [B, channels, rows, columns] each
    canvas: tuple[int, int]  # height, width


class RoiOutput(NamedTuple):
    """The second stage's raw outputs for boxes [B, K, 4], float32."""

    logits: Tensor  # [B, K, 1 + C]
    deltas: Tensor  # [B, K, 1 + C, 4]; those of background are not used


class RoiSample(NamedTuple):
    """The RoIs that train the second stage, and their targets."""

    boxes: Tensor  # [B, S, 4]
    matched: Tensor  # [B, S] row of the annotation; arbitrary if not positive
    is_sampled: Tensor  # [B, S]
    is_positive: Tensor  # [B, S]
    labels: Tensor  # [B, S], 0 .. C - 1 if positive, otherwise 0
    deltas: Tensor  # [B, S, 4] target of the regression; zero if not positive


class RpnLosses(NamedTuple):
    """The losses of the region proposal network."""

    objectness: Tensor
    boxes: Tensor


class RoiLosses(NamedTuple):
    """The losses of the second stage."""

    classification: Tensor
    boxes: Tensor


@dataclass(eq=False)
class Detector:
    """A two-stage detector for C classes.

    All parameters are in `network`, torchvision's module; train, save, move and average that.
    `network(images)` computes the same detections as `detect`, image by image. Losses are divided
    by the number of samples in the whole batch, which `sum_over_processes` adds up.
    """

    name: str
    network: FasterRCNN
    num_labels: int
    numbers: DetectorNumbers
    sum_over_processes: SumOverProcesses = lambda number: number

    @property
    def twin(self) -> "Detector":
        """The second network of a detector with two networks, as a detector."""
        numbers = replace(self.numbers, networks=1)
        return replace(self, network=self.network.twin, numbers=numbers)

    def features(self, images: Tensor, sizes: Tensor) -> Features:
        """Normalise images and compute their feature maps.

        Takes images [B, 3, H, W], uint8 or float in 0 .. 1, H and W multiples of 32, with each
        image at the top left, and sizes [B, 2], their heights and widths. Pixels outside an image
        are zero after normalisation.
        """
        height, width = images.shape[-2:]
        if height % CANVAS_MULTIPLE or width % CANVAS_MULTIPLE:
            raise UsageError(
                f"the canvas is {height} x {width}; expected multiples of {CANVAS_MULTIPLE}"
            )
        whole, backbone, device = normalise(images, sizes), self.network.backbone, images.device
        if torch.is_autocast_enabled(device.type) and is_foldable(backbone):
            maps = folded_maps(backbone, whole, torch.get_autocast_dtype(device.type))
        else:
            maps = backbone(whole)
        return Features(maps, (height, width))

    def rpn(self, features: Features) -> RpnOutput:
        """Compute objectness and deltas of all N anchors, in the order of `anchors`."""
        maps = [features.maps[name] for name in self.numbers.rpn_levels]
        objectness, deltas = self.network.rpn.head(maps)
        shapes = [(level.shape[-2], level.shape[-1]) for level in maps]
        numbers = self.numbers
        return RpnOutput(
            torch.cat([_by_anchor(level, 1) for level in objectness], dim=1)[..., 0],
            torch.cat([_by_anchor(level, 4) for level in deltas], dim=1),
            anchors(
                features.canvas,
                shapes,
                numbers.anchor_sizes,
                numbers.anchor_ratios,
                maps[0].device,
            ),
            tuple(level.shape[1:].numel() for level in objectness),
        )

    def proposals(self, raw: RpnOutput, sizes: Tensor, *, training: bool = True) -> Proposals:
        """Select proposals with the numbers for training or testing, without gradient."""
        numbers = self.numbers
        return propose(
            raw,
            sizes,
            pre_nms=numbers.pre_nms_training if training else numbers.pre_nms_testing,
            post_nms=numbers.post_nms_training if training else numbers.post_nms_testing,
            overlap=numbers.proposal_overlap,
            rounds=numbers.nms_rounds,
        )

    def roi_outputs(self, features: Features, boxes: Tensor) -> RoiOutput:
        """Pool boxes [B, K, 4] and run the second stage on them; the mean of several heads.

        Padding gives finite values.
        """
        heads = self.network.roi_heads
        logits, deltas = heads.box_predictor(heads.box_head(self.pool(features, boxes)))
        return self._as_output(logits, deltas, boxes)

    def head_outputs(
        self, features: Features, boxes: Tensor, shares: Sequence[float] = ()
    ) -> list[RoiOutput]:
        """Pool boxes [B, K, 4] and run each of several heads on them.

        For classifiers, `shares` are the shares of each one's gradient that reach the shared
        layers; without them all of it does.
        """
        heads = self.network.roi_heads
        shared = heads.box_head(self.pool(features, boxes))
        predictor = heads.box_predictor
        outputs = predictor.each(shared, shares) if shares else predictor.each(shared)
        return [self._as_output(logits, deltas, boxes) for logits, deltas in outputs]

    def pool(self, features: Features, boxes: Tensor) -> Tensor:
        """Pool boxes [B, K, 4] into [B * K, channels, size, size], without gradient to boxes."""
        return pool(
            [features.maps[name] for name in self.numbers.roi_levels],
            boxes,
            features.canvas,
            size=self.numbers.pool_size,
            samples=self.numbers.pool_samples,
        )

    def _as_output(self, logits: Tensor, deltas: Tensor, boxes: Tensor) -> RoiOutput:
        shape = (boxes.shape[0], boxes.shape[1], 1 + self.num_labels)
        return RoiOutput(logits.float().view(shape), deltas.float().view(*shape, 4))

    def score(self, features: Features, boxes: Tensor, sizes: Tensor) -> SecondStageOutput:
        """Classify boxes [B, K, 4] and regress them for each class, clipped to their images."""
        return self.decode_output(self.roi_outputs(features, boxes), boxes, features.canvas, sizes)

    def decode_output(
        self, output: RoiOutput, boxes: Tensor, canvas: tuple[int, int], sizes: Tensor
    ) -> SecondStageOutput:
        """Convert the second stage's outputs for boxes [B, K, 4] to probabilities and boxes."""
        references = clamp_to_canvas(boxes.float(), canvas)[:, :, None]  # [B, K, 1, 4]
        regressed = decode(output.deltas[:, :, 1:], references, self.numbers.delta_weights)
        return SecondStageOutput(output.logits, output.logits.softmax(-1), clip(regressed, sizes))

    def rpn_losses(self, raw: RpnOutput, targets: Targets, keys: Tensor) -> RpnLosses:
        """Compute the first stage's losses on anchors drawn by `keys` [B, N], uniform in [0, 1)."""
        numbers = self.numbers
        assigned = assign(
            raw.anchors[None],
            targets,
            thresholds=numbers.rpn_thresholds,
            low_quality=numbers.rpn_low_quality,
            ignore_from=numbers.ignore_overlap,
        )
        chosen = sample(
            assigned.is_positive,
            assigned.is_negative,
            keys,
            number=numbers.rpn_samples,
            positive_share=numbers.rpn_positive_share,
        )
        matched = assigned.matched.gather(1, chosen.rows)  # [B, S]
        target_deltas = encode(_rows(targets.boxes, matched), raw.anchors[chosen.rows])
        logits = raw.objectness.gather(1, chosen.rows)
        deltas = raw.deltas.take_along_dim(chosen.rows[..., None], dim=1)
        is_sampled, is_positive = chosen.is_sampled, chosen.is_positive
        number = count(is_sampled, self.sum_over_processes)
        return RpnLosses(
            objectness_loss(logits, is_positive, is_sampled, number),
            box_loss(deltas, target_deltas, is_positive, is_sampled, numbers.box_loss, number),
        )

    @torch.no_grad()
    def sample_rois(self, proposals: Proposals, targets: Targets, keys: Tensor) -> RoiSample:
        """Draw RoIs from the P proposals and the A annotated boxes by `keys` [B, P + A]."""
        numbers = self.numbers
        candidates = torch.cat([proposals.boxes, targets.boxes.float()], dim=1)  # [B, P + A, 4]
        assigned = assign(
            candidates,
            targets,
            thresholds=numbers.roi_thresholds,
            ignore_from=numbers.ignore_overlap,
            is_candidate=torch.cat([proposals.is_proposal, targets.is_real], dim=1),
        )
        chosen = sample(
            assigned.is_positive,
            assigned.is_negative,
            keys,
            number=numbers.roi_samples,
            positive_share=numbers.roi_positive_share,
        )
        boxes = candidates.take_along_dim(chosen.rows[..., None], dim=1)  # [B, S, 4]
        boxes = torch.where(chosen.is_sampled[..., None], boxes, 0)
        matched = assigned.matched.gather(1, chosen.rows)
        target_deltas = encode(
            _rows(targets.regression_targets, matched), boxes, numbers.delta_weights
        )
        is_positive = chosen.is_positive
        return RoiSample(
            boxes=boxes,
            matched=matched,
            is_sampled=chosen.is_sampled,
            is_positive=is_positive,
            labels=torch.where(is_positive, _rows(targets.labels, matched), 0),
            deltas=torch.where(is_positive[..., None], target_deltas, 0),
        )

    def roi_losses(
        self,
        output: RoiOutput,
        rois: RoiSample,
        targets: Targets,
        class_targets: Tensor | None = None,
    ) -> RoiLosses:
        """Compute the second stage's losses for sampled RoIs.

        The class target of a positive RoI is its annotation's label, or its row of `targets.soft`,
        with the weight `targets.weights`; all other RoIs are background of weight 1. Soft
        `class_targets` [B, S, 1 + C] replace both. The box loss uses the regression of the label.
        """
        columns = torch.where(rois.is_positive, rois.labels + 1, 0)  # [B, S]
        class_target, weights = columns, None
        if targets.soft is not None:
            background = torch.zeros_like(output.logits)
            background[..., 0] = 1
            soft = _rows(targets.soft, rois.matched).float()
            class_target = torch.where(rois.is_positive[..., None], soft, background)
        if class_targets is not None:
            class_target = class_targets
        if targets.weights is not None:
            weights = torch.where(rois.is_positive, _rows(targets.weights, rois.matched), 1)
        deltas = output.deltas.take_along_dim(columns[..., None, None], dim=2)[:, :, 0]  # [B, S, 4]
        is_sampled = rois.is_sampled
        kind = self.numbers.box_loss if targets.beta is None else targets.beta
        number = count(is_sampled, self.sum_over_processes)
        return RoiLosses(
            classification_loss(output.logits, class_target, is_sampled, weights, number),
            box_loss(deltas, rois.deltas, rois.is_positive, is_sampled, kind, number),
        )

    @torch.no_grad()
    def detect(
        self,
        images: Tensor,
        sizes: Tensor,
        *,
        score_threshold: float = 0.05,
        nms: float = 0.5,
        max_detections: int = 100,
    ) -> PaddedDetections:
        """Detect objects in images [B, 3, H, W] of sizes [B, 2]."""
        features = self.features(images, sizes)
        proposals = self.proposals(self.rpn(features), sizes, training=False)
        detections = select(
            self.score(features, proposals.boxes, sizes),
            proposals.is_proposal,
            score_threshold=score_threshold,
            overlap=nms,
            max_detections=max_detections,
            nms_limits=(self.numbers.detection_candidates, self.numbers.nms_rounds),
        )
        return detections._replace(is_inexact=detections.is_inexact | proposals.is_inexact)


def normalise(images: Tensor, sizes: Tensor) -> Tensor:
    """Normalise images [B, 3, H, W] by ImageNet's mean and deviation; zero outside sizes [B, 2]."""
    mean, std = _normalisation(images.device)
    values = images.float() if images.is_floating_point() else images.float() / 255
    rows = torch.arange(images.shape[2], device=images.device)
    columns = torch.arange(images.shape[3], device=images.device)
    inside = (rows < sizes[:, :1])[:, :, None] & (columns < sizes[:, 1:])[:, None]  # [B, H, W]
    return torch.where(inside[:, None], (values - mean) / std, 0)


@lru_cache(maxsize=16)
def _normalisation(device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False):
        mean = torch.tensor(IMAGE_MEAN, device=device).view(3, 1, 1)
        return mean, torch.tensor(IMAGE_STD, device=device).view(3, 1, 1)


def _by_anchor(level: Tensor, channels: int) -> Tensor:
    """Reshape a head's output [B, anchors * channels, rows, columns] to [B, n, channels]."""
    batch, _, rows, columns = level.shape
    by_anchor = level.float().view(batch, -1, channels, rows, columns)
    return by_anchor.permute(0, 3, 4, 1, 2).reshape(batch, -1, channels)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Return rows index [B, S] of values [B, A, ...]; zeros if there are no rows."""
    if values.shape[1] == 0:
        return values.new_zeros(*index.shape, *values.shape[2:])
    return values.take_along_dim(index.reshape(*index.shape, *[1] * (values.dim() - 2)), dim=1)
