"""NOTE-RCNN without clean seeds: what fits best after plain training plays them.

A re-implementation after Gao, Wang, Dai, Li and Nevatia, "NOTE-RCNN: NOise Tolerant Ensemble RCNN
for Semi-Supervised Object Detection" (ICCV 2019, arXiv:1812.00124). It had a few images with clean
boxes, its seeds, and mined more in images of known classes. Here every annotation is noisy, so the
seeds are those of lowest classification loss, as Li et al. (arXiv:2003.01285) had it when they
compared with it. Of both only the idea was at hand; what is ours stands in docs/methods.

The training has two stages. The plain one is that of Faster R-CNN, and remembers the loss of each
annotation at its box. Then the model is frozen (the twin), seeds are chosen, and training goes on
with three classifiers on one representation, which predict by their mean:

- seed: learns from the seeds, and from the negatives of images that have nothing but seeds;
- mixed: learns from all annotations, from the same negatives, and from those of other images where
  no annotation is near and the frozen model is sure of background: noise makes false negatives;
- distilled: follows the frozen model's softened opinion.

Boxes are learnt from seeds alone. The first stage of the detector learns from everything.
"""

import math
from collections.abc import Hashable, Mapping
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

MOST_SEEDS = 0.5
MIXED, SEED, DISTILLED = range(3)  # the classifiers, in the detector's order
NAMES = ("roi_classes", "roi_seed", "roi_distilled")
"""Of their losses; the mixed one has the name that other methods' only one has."""
EVENLY, BY_THE_FIRST = (1 / 3, 1 / 3, 1 / 3), (1.0, 0.0, 0.0)
"""Shares of the classifiers in what moves the layers below them: as much as one would in all."""
ROUNDING = 1e-9  # a share of 0.4 of 5 is 2, whatever the product rounds to


class Seeds(NamedTuple):
    """Which annotations of a batch are trusted."""

    is_seed: Tensor  # [B, A]
    is_whole: Tensor  # [B] images that have nothing but seeds, or nothing at all


class NoteRcnn(Method):
    """NOTE-RCNN on a detector of three classifiers and two networks.

    It remembers the last loss of every annotation in the plain stage, and then which are seeds.
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
        # The last row takes the padding. All is changed in place: a captured step has addresses.
        size = num_annotations + 1
        self._state: dict[str, Tensor] = {
            "losses": torch.full((size,), math.inf, device=device),
            "labels": torch.zeros(size, dtype=torch.int64, device=device),
            "is_seed": torch.zeros(size, dtype=torch.bool, device=device),
        }

    def prepare(self, detector: Detector) -> None:
        """Keep the twin, which is a memory, from the optimiser."""
        detector.twin.network.requires_grad_(False)

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Tell the plain stage from what follows."""
        return self._is_plain(progress)

    def clock(self, progress: TrainingProgress) -> tuple[int, int]:
        """Let the learning rate go through its whole course in each stage."""
        passes = num_plain_epochs(self.settings.plain_share, progress.num_epochs)
        plain = progress.num_steps // progress.num_epochs * passes
        if self._is_plain(progress):
            return progress.step, plain
        return progress.step - plain, progress.num_steps - plain

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of the stage that the training is in."""
        self._num_epochs = context.progress.num_epochs
        annotations, seen = neutralise_padding(context.annotations), run_first_stage(context)
        outcome = self._measure_losses(context, annotations, seen)
        losses = rpn_losses(context, seen.raw, outcome.rpn)
        rois = draw_rois(context, seen.proposals, outcome.roi)
        if self._is_plain(context.progress):
            return outcome, {**losses, **_plain_losses(context, seen, rois)}
        return outcome, {**losses, **self._ensemble_losses(context, annotations, seen, rois)}

    def begin_epoch(self, epoch: int, detector: Detector) -> None:
        """Freeze what the plain stage made, in the twin, before the first pass that follows."""
        if epoch and epoch == num_plain_epochs(self.settings.plain_share, self._num_epochs):
            frozen = detector.twin.network.state_dict()
            for key, tensor in tensors_without_twin(detector).items():
                frozen[key].copy_(tensor)

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Choose the seeds when the plain stage is over."""
        if epoch + 1 != num_plain_epochs(self.settings.plain_share, self._num_epochs):
            return {}
        state = self._state
        chosen = lowest_of_each_label(state["losses"], state["labels"], self.share, self.num_labels)
        state["is_seed"].copy_(chosen)
        num_seen = int(state["losses"].isfinite().sum())
        return {"seeds": int(chosen.sum()) / max(num_seen, 1)}

    def state_dict(self) -> dict[str, Any]:
        """Give losses, labels and seeds of all annotations."""
        tensors = {name: tensor.clone() for name, tensor in self._state.items()}
        return {**tensors, "num_epochs": self._num_epochs}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state made for as many annotations."""
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
        self, context: StepContext, annotations: BatchAnnotations, seen: FirstStage
    ) -> Outcome:
        """Measure the loss at each annotated box, and remember it in the plain stage.

        Nothing is judged. Seeds are trusted, but of the others nobody says that they are wrong;
        a verdict for seeds alone would make the least doubted the only ones with a doubt.
        """
        scores = context.scorer_on(detach_features(seen.features))(annotations.boxes).probabilities
        loss = label_losses(scores, annotations.labels, annotations.is_box)
        outcome = unchanged_outcome(annotations, loss)
        if self._is_plain(context.progress):
            self._remember(annotations, loss)
            return outcome
        confidence = torch.where(annotations.is_box, scores[..., 1:].float().amax(-1), torch.nan)
        return outcome._replace(confidence=confidence)

    def _remember(self, annotations: BatchAnnotations, loss: Tensor) -> None:
        """Keep the losses of a visit; the one of the last pass stays.

        A pass leaves out what does not fill its last batch. These keep an older loss, and what
        was never seen an infinite one.
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
        """Rows [B, A] in the memory; the last one for what is not learnt from."""
        is_known = annotations.is_box & (annotations.rows >= 0)
        return torch.where(is_known, annotations.rows.long(), len(self._state["losses"]) - 1)

    def _ensemble_losses(
        self, context: StepContext, annotations: BatchAnnotations, seen: FirstStage, rois: RoiSample
    ) -> Losses:
        """Teach each classifier what is its own, and the regression the seeds.

        All are divided by the number of sampled RoIs: one that counts weighs as in plain training.
        The layers below follow the mean of the three: by their sum they would be trained at three
        times the rate, at which a detector can collapse.
        """
        detector, settings = context.detector, self.settings
        taught = _frozen_logits(context, rois)  # [B, S, 1 + C]
        is_seed, is_from_seed = _seed_rois(rois, self._seeds(annotations))
        is_sure = taught.softmax(-1)[..., 0] > settings.mask_max_background
        is_far = ~is_near(rois.boxes, annotations, settings.mask_min_iou)
        is_mixed = rois.is_sampled & (rois.is_positive | is_from_seed | (is_sure & is_far))
        outputs = detector.head_outputs(seen.features, rois.boxes, EVENLY)
        number = count(rois.is_sampled, detector.sum_over_processes)
        columns = _columns(rois)
        deltas = outputs[MIXED].deltas.take_along_dim(columns[..., None, None], dim=2)[:, :, 0]
        distilled = distillation_loss(
            outputs[DISTILLED].logits, taught, rois.is_sampled, settings.temperature, number
        )
        found = (
            classification_loss(outputs[MIXED].logits, columns, is_mixed, number=number),
            classification_loss(outputs[SEED].logits, columns, is_from_seed, number=number),
            settings.distillation_weight * distilled,
        )
        kind = detector.numbers.box_loss
        boxes = box_loss(deltas, rois.deltas, is_seed, rois.is_sampled, kind, number)
        return {**dict(zip(NAMES, found, strict=True)), "roi_boxes": boxes}


def seed_share(settings: NoteRcnnSettings, rates: Rates) -> float:
    """Tell the share of seeds, rho = min(0.5, 1 - label noise) where it is not set."""
    if settings.seed_share is not None:
        return settings.seed_share
    return MOST_SEEDS if rates.label is None else min(MOST_SEEDS, 1 - rates.label)


def num_plain_epochs(share: float, num_epochs: int) -> int:
    """Tell how many of the passes are plain: at least one, without which there is no loss."""
    return max(round(share * num_epochs), min(num_epochs, 1))


def lowest_of_each_label(losses: Tensor, labels: Tensor, share: float, num_labels: int) -> Tensor:
    """Mark the share of each label's annotations whose losses are lowest, rounded up.

    Takes losses and labels [n]; a loss that is not finite is of no annotation. Of equal losses the
    first come first. Waits for the device. Returns [n].
    """
    losses, labels = losses.detach().cpu(), labels.cpu()
    is_known = losses.isfinite()
    labels = torch.where(is_known, labels, num_labels)  # a label of their own, the last one
    order = torch.where(is_known, losses, torch.inf).argsort(stable=True)
    order = order[labels[order].argsort(stable=True)]  # by label, then by loss
    sizes = labels.bincount(minlength=num_labels + 1)  # [C + 1]
    rank = torch.arange(len(labels)) - (sizes.cumsum(0) - sizes)[labels[order]]
    wanted = (share * sizes.double() - ROUNDING).ceil()
    wanted[num_labels] = 0
    chosen = torch.zeros_like(is_known)
    chosen[order] = rank < wanted[labels[order]]
    return chosen


def is_near(boxes: Tensor, annotations: BatchAnnotations, overlap: float) -> Tensor:
    """Mark boxes [B, S, 4] whose IoU with any annotation, ignored or not, reaches `overlap`."""
    is_real = annotations.is_box | annotations.is_ignored
    overlaps = pairwise_iou(annotations.boxes.float(), boxes)  # [B, A, S]
    return (is_real[..., None] & (overlaps >= overlap)).any(1)


def distillation_loss(
    logits: Tensor, taught: Tensor, is_sampled: Tensor, temperature: float, number: Tensor
) -> Tensor:
    """Sum T^2 KL(p || q) over the sampled rows and divide it by `number`.

    p and q are the softmax of taught / T and of logits / T, both [..., 1 + C]. T^2 keeps the size
    of the gradient (Hinton et al. 2015).
    """
    here = torch.where(is_sampled[..., None], logits.float(), 0)
    there = torch.where(is_sampled[..., None], taught.float(), 0)
    wanted = (there / temperature).log_softmax(-1)
    found = (here / temperature).log_softmax(-1)
    each = functional.kl_div(found, wanted, reduction="none", log_target=True).sum(-1)
    return temperature**2 * torch.where(is_sampled, each, 0).sum() / number


def _plain_losses(context: StepContext, seen: FirstStage, rois: RoiSample) -> Losses:
    """Teach all classifiers the same, so that their mean is sensible from the start.

    The gradient of the first alone goes on into the representation, which is that of a detector
    with one classifier; the others read from it what they can.
    """
    detector = context.detector
    outputs = detector.head_outputs(seen.features, rois.boxes, BY_THE_FIRST)
    number, columns = count(rois.is_sampled, detector.sum_over_processes), _columns(rois)
    found = [
        classification_loss(one.logits, columns, rois.is_sampled, number=number) for one in outputs
    ]
    deltas = outputs[MIXED].deltas.take_along_dim(columns[..., None, None], dim=2)[:, :, 0]
    kind = detector.numbers.box_loss
    boxes = box_loss(deltas, rois.deltas, rois.is_positive, rois.is_sampled, kind, number)
    return {**dict(zip(NAMES, found, strict=True)), "roi_boxes": boxes}


@torch.no_grad()
def _frozen_logits(context: StepContext, rois: RoiSample) -> Tensor:
    """Logits [B, S, 1 + C] of the plain stage's model, from features of its own."""
    twin = context.detector.twin
    features = twin.features(context.images, context.annotations.sizes)
    return twin.roi_outputs(features, rois.boxes).logits


def _seed_rois(rois: RoiSample, seeds: Seeds) -> tuple[Tensor, Tensor]:
    """RoIs [B, S] of seeds, and these with the negatives of images that have nothing but seeds."""
    padded_seeds = functional.pad(
        seeds.is_seed, (0, 1)
    )  # a row to match where there are none at all
    is_of_seed = rois.is_positive & padded_seeds.gather(1, rois.matched)
    is_background = rois.is_sampled & ~rois.is_positive & seeds.is_whole[:, None]
    return is_of_seed, is_of_seed | is_background


def _columns(rois: RoiSample) -> Tensor:
    """Columns [B, S] of the classifiers that RoIs should have: label + 1, or 0 for background."""
    return torch.where(rois.is_positive, rois.labels + 1, 0)
