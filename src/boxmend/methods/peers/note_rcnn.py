"""NOTE-RCNN without clean seeds: the annotations of lowest loss after plain training replace them.

A re-implementation after Gao, Wang, Dai, Li and Nevatia, "NOTE-RCNN: NOise Tolerant Ensemble RCNN
for Semi-Supervised Object Detection" (ICCV 2019, arXiv:1812.00124). The source starts from a few
images with clean boxes, the seeds, and mines more boxes in images of known classes. Here every
annotation is noisy, so the seeds are those of lowest classification loss, as in the comparison by
Li et al. (arXiv:2003.01285). Only the ideas of both were available; docs/methods lists what
differs.

The training has two stages. The plain stage is that of Faster R-CNN and records the loss of each
annotation at its box. Then the model is copied (the frozen twin), seeds are selected, and training
continues with three classifiers on one representation, which predict by their mean:

- seed: trains on the seeds, and on the negatives of images whose annotations are all seeds;
- mixed: trains on all annotations, on the same negatives, and on those negatives of other images
  that are far from any annotation and that the frozen model scores as background, because noise
  causes false negatives;
- distilled: trains on the softened predictions of the frozen model.

The box regression trains on seeds only. The first stage of the detector trains on everything.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.detector import Detector, RoiSample
from boxmend.detector.boxes import pairwise_iou
from boxmend.detector.losses import box_loss, classification_loss, count
from boxmend.detector.weights import tensors_without_twin
from boxmend.errors import UsageError
from boxmend.methods.equations import label_losses
from boxmend.methods.outcomes import neutralise_padding, unchanged_outcome
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    Exchange,
    Losses,
    Method,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.methods.rates import Rates, check_rates
from boxmend.methods.steps import (
    FirstStage,
    detach_features,
    draw_rois,
    rpn_losses,
    run_first_stage,
)
from boxmend.runs.settings import NoteRcnnSettings

MIXED, SEED, DISTILLED = range(3)  # the classifiers, in the detector's order
LOSS_NAMES = ("roi_classes", "roi_seed", "roi_distilled")
"""By classifier; the first is the name of the classification loss in other methods."""
EQUAL_SHARES, FIRST_ONLY = (1 / 3, 1 / 3, 1 / 3), (1.0, 0.0, 0.0)
"""Shares of each classifier's gradient that reach the layers below; they add up to 1."""


@dataclass(frozen=True)
class NoteRcnnConstants:
    """The limits of the choice of seeds."""

    max_seed_share: float = 0.5  # of a label's annotations
    rounding_annotations: float = 1e-9  # so that a share of 0.4 of 5 is 2 in floating point


NOTE_RCNN = NoteRcnnConstants()


class Seeds(NamedTuple):
    """The trusted annotations of a batch."""

    is_seed: Tensor  # [B, A]
    is_whole: Tensor  # [B] images whose annotations are all seeds, or that have none


class NoteRcnn(Method):
    """NOTE-RCNN on a detector with three classifiers and two networks.

    Its state is the last loss of every annotation in the plain stage, and then the seeds.
    """

    def __init__(
        self,
        num_annotations: int,
        num_labels: int,
        settings: NoteRcnnSettings = NoteRcnnSettings(),  # noqa: B008  # frozen
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange
        self.num_labels = num_labels
        self.share = seed_share(settings, check_rates(rates))
        self._num_epochs = 0  # not known before the first step
        # The last row is for padding. Changes are in place: a captured step holds addresses.
        size = num_annotations + 1
        self._state: dict[str, Tensor] = {
            "losses": torch.full((size,), math.inf, device=device),
            "labels": torch.zeros(size, dtype=torch.int64, device=device),
            "is_seed": torch.zeros(size, dtype=torch.bool, device=device),
        }

    def prepare(self, detector: Detector) -> None:
        """Exclude the twin, a frozen copy, from training."""
        detector.twin.network.requires_grad_(False)

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return whether the step belongs to the plain stage."""
        return self._is_plain(progress)

    def clock(self, progress: TrainingProgress) -> tuple[int, int]:
        """Give each stage the whole learning-rate schedule."""
        num_plain = num_plain_epochs(self.settings.plain_share, progress.num_epochs)
        plain = progress.num_steps // progress.num_epochs * num_plain
        if self._is_plain(progress):
            return progress.step, plain
        return progress.step - plain, progress.num_steps - plain

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of the current stage."""
        self._num_epochs = context.progress.num_epochs
        annotations, first = neutralise_padding(context.annotations), run_first_stage(context)
        outcome = self._measure_losses(context, annotations, first)
        losses = rpn_losses(context, first.raw, outcome.rpn)
        rois = draw_rois(context, first.proposals, outcome.roi)
        if self._is_plain(context.progress):
            return outcome, {**losses, **_plain_losses(context, first, rois)}
        return outcome, {**losses, **self._ensemble_losses(context, annotations, first, rois)}

    def begin_epoch(self, epoch: int, detector: Detector) -> None:
        """Copy the model into the frozen twin when the plain stage is over."""
        if epoch and epoch == num_plain_epochs(self.settings.plain_share, self._num_epochs):
            frozen = detector.twin.network.state_dict()
            for key, tensor in tensors_without_twin(detector).items():
                frozen[key].copy_(tensor)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Select the seeds when the plain stage is over."""
        if epoch + 1 != num_plain_epochs(self.settings.plain_share, self._num_epochs):
            return {}
        state = self._state
        chosen = lowest_of_each_label(state["losses"], state["labels"], self.share, self.num_labels)
        state["is_seed"].copy_(chosen)
        num_seen = int(state["losses"].isfinite().sum())
        return {"seeds": int(chosen.sum()) / max(num_seen, 1)}

    def state_dict(self) -> dict[str, Any]:
        """Return losses, labels and seeds of all annotations."""
        tensors = {name: tensor.clone() for name, tensor in self._state.items()}
        return {**tensors, "num_epochs": self._num_epochs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state with the same number of annotations."""
        for name, tensor in self._state.items():
            if state[name].shape != tensor.shape:
                was, now = len(state[name]) - 1, len(tensor) - 1
                raise UsageError(f"{name} of the state are of {was} annotations, there are {now}")
        for name, tensor in self._state.items():
            tensor.copy_(state[name])
        self._num_epochs = int(state["num_epochs"])

    def _is_plain(self, progress: TrainingProgress) -> bool:
        return progress.epoch < num_plain_epochs(self.settings.plain_share, progress.num_epochs)

    @torch.no_grad()
    def _measure_losses(
        self, context: StepContext, annotations: BatchAnnotations, first: FirstStage
    ) -> Outcome:
        """Compute the loss at each annotated box, and store it in the plain stage.

        All annotations are UNJUDGED: seeds are trusted, but nothing says that the others are wrong.
        """
        scores = context.scorer_on(detach_features(first.features))(annotations.boxes).probabilities
        loss = label_losses(scores, annotations.labels, annotations.is_box)
        outcome = unchanged_outcome(annotations, loss)
        if self._is_plain(context.progress):
            self._store_losses(annotations, loss)
            return outcome
        confidence = torch.where(annotations.is_box, scores[..., 1:].float().amax(-1), torch.nan)
        return outcome._replace(confidence=confidence)

    def _store_losses(self, annotations: BatchAnnotations, loss: Tensor) -> None:
        """Store the losses of a visit, which replace earlier ones.

        An epoch drops its last incomplete batch. These annotations keep an older loss, or an
        infinite one if they were never visited.
        """
        is_seen = annotations.is_box.reshape(-1)
        rows, losses, labels = self.exchange.all_gather(
            self._rows(annotations).reshape(-1),
            torch.where(is_seen, loss.reshape(-1), torch.inf),
            torch.where(is_seen, annotations.labels.reshape(-1), 0),
        )
        self._state["losses"].index_copy_(0, rows, losses)
        self._state["labels"].index_copy_(0, rows, labels)

    def _seeds(self, annotations: BatchAnnotations) -> Seeds:
        is_seed = self._state["is_seed"][self._rows(annotations)]
        return Seeds(is_seed, (is_seed | ~annotations.is_box).all(-1))

    def _rows(self, annotations: BatchAnnotations) -> Tensor:
        """Return the rows [B, A] of the memory; the last row for padding and ignored ones."""
        is_known = annotations.is_box & (annotations.rows >= 0)
        return torch.where(is_known, annotations.rows.long(), len(self._state["losses"]) - 1)

    def _ensemble_losses(
        self,
        context: StepContext,
        annotations: BatchAnnotations,
        first: FirstStage,
        rois: RoiSample,
    ) -> Losses:
        """Compute the loss of each classifier on its own RoIs, and of the regression on seeds.

        Each loss is divided by the number of sampled RoIs, so that a RoI has the same weight as in
        plain training. The layers below receive the mean gradient of the three classifiers; the
        sum would triple the learning rate, at which a detector can collapse.
        """
        detector, settings = context.detector, self.settings
        teacher_logits = _frozen_logits(context, rois)  # [B, S, 1 + C]
        is_seed, is_from_seed = _seed_rois(rois, self._seeds(annotations))
        is_sure = teacher_logits.softmax(-1)[..., 0] > settings.mask_max_background
        is_far = ~is_near(rois.boxes, annotations, settings.mask_min_iou)
        is_mixed = rois.is_sampled & (rois.is_positive | is_from_seed | (is_sure & is_far))
        outputs = detector.head_outputs(first.features, rois.boxes, EQUAL_SHARES)
        number = count(rois.is_sampled, detector.sum_over_processes)
        columns = _columns(rois)
        deltas = outputs[MIXED].deltas.take_along_dim(columns[..., None, None], dim=2)[:, :, 0]
        distilled = distillation_loss(
            outputs[DISTILLED].logits, teacher_logits, rois.is_sampled, settings.temperature, number
        )
        losses = (
            classification_loss(outputs[MIXED].logits, columns, is_mixed, number=number),
            classification_loss(outputs[SEED].logits, columns, is_from_seed, number=number),
            settings.distillation_weight * distilled,
        )
        kind = detector.numbers.box_loss
        boxes = box_loss(deltas, rois.deltas, is_seed, rois.is_sampled, kind, number)
        return {**dict(zip(LOSS_NAMES, losses, strict=True)), "roi_boxes": boxes}


def seed_share(settings: NoteRcnnSettings, rates: Rates) -> float:
    """Return the share of seeds: the setting, else rho = min(0.5, 1 - label noise)."""
    if settings.seed_share is not None:
        return settings.seed_share
    limit = NOTE_RCNN.max_seed_share
    return limit if rates.label is None else min(limit, 1 - rates.label)


def num_plain_epochs(share: float, num_epochs: int) -> int:
    """Return the number of plain epochs: at least one, because seeds need a loss."""
    return max(round(share * num_epochs), min(num_epochs, 1))


def lowest_of_each_label(losses: Tensor, labels: Tensor, share: float, num_labels: int) -> Tensor:
    """Mark the annotations of lowest loss for each label, a share of them, rounded up.

    Takes losses and labels [n]; rows without a finite loss do not count. Of equal losses the first
    is preferred. Waits for the device. Returns [n].
    """
    losses, labels = losses.detach().cpu(), labels.cpu()
    is_known = losses.isfinite()
    labels = torch.where(is_known, labels, num_labels)  # an extra label
    order = torch.where(is_known, losses, torch.inf).argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by label, then by loss
    sizes = labels.bincount(minlength=num_labels + 1)  # [C + 1]
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[order]]
    num_chosen = (share * sizes.double() - NOTE_RCNN.rounding_annotations).ceil()
    num_chosen[num_labels] = 0
    chosen = torch.zeros_like(is_known)
    chosen[order] = rank < num_chosen[labels[order]]
    return chosen


def is_near(boxes: Tensor, annotations: BatchAnnotations, overlap: float) -> Tensor:
    """Mark boxes [B, S, 4] whose IoU with any annotation, ignored or not, reaches `overlap`."""
    is_real = annotations.is_box | annotations.is_ignored
    overlaps = pairwise_iou(annotations.boxes.float(), boxes)  # [B, A, S]
    return (is_real[..., None] & (overlaps >= overlap)).any(1)


def distillation_loss(
    logits: Tensor, teacher_logits: Tensor, is_sampled: Tensor, temperature: float, number: Tensor
) -> Tensor:
    """Sum T^2 KL(p || q) over the sampled rows and divide it by `number`.

    p and q are the softmax of teacher_logits / T and of logits / T, both [..., 1 + C]. T^2 keeps
    the size of the gradient (Hinton et al. 2015).
    """
    student = torch.where(is_sampled[..., None], logits.float(), 0)
    teacher = torch.where(is_sampled[..., None], teacher_logits.float(), 0)
    target = (teacher / temperature).log_softmax(-1)
    prediction = (student / temperature).log_softmax(-1)
    losses_of_rows = functional.kl_div(prediction, target, reduction="none", log_target=True).sum(
        -1
    )
    return temperature**2 * torch.where(is_sampled, losses_of_rows, 0).sum() / number


def _plain_losses(context: StepContext, first: FirstStage, rois: RoiSample) -> Losses:
    """Train all classifiers on the same RoIs, so that their mean is sensible from the start.

    Only the gradient of the first classifier reaches the representation, which is then that of a
    detector with one classifier.
    """
    detector = context.detector
    outputs = detector.head_outputs(first.features, rois.boxes, FIRST_ONLY)
    number, columns = count(rois.is_sampled, detector.sum_over_processes), _columns(rois)
    losses = [
        classification_loss(output.logits, columns, rois.is_sampled, number=number)
        for output in outputs
    ]
    deltas = outputs[MIXED].deltas.take_along_dim(columns[..., None, None], dim=2)[:, :, 0]
    kind = detector.numbers.box_loss
    boxes = box_loss(deltas, rois.deltas, rois.is_positive, rois.is_sampled, kind, number)
    return {**dict(zip(LOSS_NAMES, losses, strict=True)), "roi_boxes": boxes}


@torch.no_grad()
def _frozen_logits(context: StepContext, rois: RoiSample) -> Tensor:
    """Return the frozen model's logits [B, S, 1 + C], from its own features."""
    twin = context.detector.twin
    features = twin.features(context.images, context.annotations.sizes)
    return twin.roi_outputs(features, rois.boxes).logits


def _seed_rois(rois: RoiSample, seeds: Seeds) -> tuple[Tensor, Tensor]:
    """Mark the RoIs [B, S] of seeds, and these plus the negatives of images with only seeds."""
    padded_seeds = functional.pad(seeds.is_seed, (0, 1))  # never empty
    is_of_seed = rois.is_positive & padded_seeds.gather(1, rois.matched)
    is_background = rois.is_sampled & ~rois.is_positive & seeds.is_whole[:, None]
    return is_of_seed, is_of_seed | is_background


def _columns(rois: RoiSample) -> Tensor:
    """Return the target columns [B, S] of RoIs: label + 1, or 0 for background."""
    return torch.where(rois.is_positive, rois.labels + 1, 0)
