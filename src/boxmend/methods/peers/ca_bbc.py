"""Class-agnostic box correction with two heads (CA-BBC), a re-implementation.

J. Li, C. Xiong, R. Socher, S. Hoi: Towards Noise-resistant Object Detection with Noisy
Annotations, 2020 (arXiv:2003.01285). There is no public code; equations and numbers are those known
from the literature. Two heads train on different RoIs. Each annotated box b takes one gradient step
that lowers the disagreement of the heads and their background probability, which gives b*. At b*,
label and heads give a soft label y*, and the regressions of both heads give a box b**.

Differences from the source: RoIAlign by `grid_sample` replaces precise RoI pooling. The step length
is in shares of the box and scaled by recent slopes; the source uses a factor in pixels, which
depends on the image size and vanishes as the heads become certain (`ca_bbc.step_unit`). The shift
of a side is limited. y* excludes background, because heads that see badly placed boxes as
background would otherwise end up with background everywhere (`ca_bbc.include_background`). A known
rate of 0 disables that half of the method, and an unknown box noise is estimated.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.detector import Detector, Features, RoiOutput, RoiSample, Targets
from boxmend.detector.boxes import clipped_boxes, sides_of_edges
from boxmend.detector.differentiable_pooling import pool_with_slopes
from boxmend.detector.losses import SMOOTH_L1_BETA, count
from boxmend.errors import UsageError
from boxmend.methods import equations
from boxmend.methods.equations import RefinedBatch, Roles, dual_heads
from boxmend.methods.noise_estimator import ESTIMATOR, EstimatingMethod, NoiseEstimator
from boxmend.methods.outcomes import merge_outcome, neutralise_padding, unchanged_outcome
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    Exchange,
    Losses,
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
from boxmend.runs.judgement import Judgement
from boxmend.runs.settings import CaBbcSettings

NUM_HEADS = 2
TINY = torch.finfo(torch.float32).tiny  # replaces a slope of 0


@dataclass(frozen=True)
class CaBbcConstants:
    """The step lengths, and the initial box noise."""

    initial_box_noise: float = 0.4  # until the first estimate, if it is unknown
    step_per_noise_sides: float = 0.15  # 3 % of the side at 20 % box noise, 6 % at 40 %
    step_per_noise_pixels: float = 500.0  # as published: a factor of 100 at 20 %, 200 at 40 %
    slope_quantile: float = 0.5  # of recent slopes, which scales a step


CA_BBC = CaBbcConstants()


class CaBbc(EstimatingMethod):
    """Box steps, soft labels and averaged regressions by two heads; its state is recent slopes."""

    def __init__(
        self,
        settings: CaBbcSettings = CaBbcSettings(),  # noqa: B008  # frozen
        rates: Rates = Rates(),  # noqa: B008  # a tuple
        device: torch.device | str = "cpu",
        estimator: NoiseEstimator | None = None,
        exchange: Exchange = SINGLE_PROCESS,
    ):
        """Keep the estimator, which is needed if the box noise is unknown."""
        super().__init__(estimator, exchange)
        self.settings = settings
        self.rates = check_rates(rates)
        self.mends_labels = rates.label != 0
        self.box_noise = CA_BBC.initial_box_noise if rates.box is None else rates.box
        # Changes are in place, because a captured step holds addresses.
        self.slopes = equations.empty_queue(settings.queue_length, device)

    @property
    def alpha(self) -> float:
        """The length of a step, in the unit of `ca_bbc.step_unit`."""
        if self.settings.alpha is not None:
            return self.settings.alpha
        is_relative = self.settings.step_unit == "relative"
        unit = CA_BBC.step_per_noise_pixels
        if is_relative:
            unit = CA_BBC.step_per_noise_sides
        return unit * self.box_noise

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Repair the annotations by the heads, and train each head on its own RoIs."""
        first_stage = run_first_stage(context)
        with torch.no_grad():
            outcome = self._outcome(context, first_stage)
        losses = rpn_losses(context, first_stage.raw, outcome.rpn)
        return outcome, {**losses, **losses_by_head(context, first_stage, outcome.roi)}

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return whether the step belongs to the warm-up."""
        return progress.is_warm_up

    def _own_state(self) -> dict[str, Any]:
        """Return the queue of slopes."""
        return {"slopes": self.slopes.clone()}

    def _load_own_state(self, state: Mapping[str, Any]) -> None:
        """Load a queue of slopes of the same length."""
        if state["slopes"].shape != self.slopes.shape:
            was, now = len(state["slopes"]), len(self.slopes)
            raise UsageError(
                f"the saved state has a queue of {was} slopes, but ca_bbc.queue_length is {now}; "
                "use the settings of the saved state"
            )
        self.slopes.copy_(state["slopes"])

    def _apply_estimates(self, estimator: NoiseEstimator) -> None:
        """Set the box noise to its estimate, if there is one; a negligible estimate counts as 0.

        The value stays on the host, so that no step waits for the device.
        """
        if estimator.is_estimated("box"):
            is_negligible = estimator.box.noise < ESTIMATOR.negligible_rate
            self.box_noise = 0.0 if is_negligible else estimator.box.noise

    def _outcome(self, context: StepContext, first_stage: FirstStage) -> Outcome:
        annotations, features = (
            neutralise_padding(context.annotations),
            detach_features(first_stage.features),
        )
        if self.estimator is not None:
            self.observe(annotations, first_stage.proposals, context.scorer_on(features))
        if context.progress.is_warm_up:
            outcome = unchanged_outcome(annotations)
            outcome.metrics["box_step"] = torch.zeros((), device=annotations.boxes.device)
            return outcome
        refined, soft = self._refine(context.detector, features, annotations)
        outcome = merge_outcome(
            annotations, refined, _all_of(annotations), soft if self.mends_labels else None
        )
        outcome.metrics["box_step"] = mean_box_step(annotations, refined.matched)
        return outcome

    def _refine(
        self, detector: Detector, features: Features, annotations: BatchAnnotations
    ) -> tuple[RefinedBatch, Tensor]:
        """Compute b*, and y* and b** at b*. Returns also y* [B, A, 1 + C], background first.

        An annotation whose label changes is RELABELLED, any other is KEPT.
        """
        matched = (
            self._step_boxes(detector, features, annotations)
            if self.box_noise
            else annotations.boxes
        )
        outputs = detector.head_outputs(features, matched)
        first, second = (
            detector.decode_output(output, matched, features.canvas, annotations.sizes)
            for output in outputs
        )
        chances = (first.probabilities, second.probabilities)
        soft = self._sharpen_labels(annotations.labels, *chances)
        boxes, labels = matched, self._labels(annotations, soft)
        if self.box_noise:
            regressed = equations.boxes_of_class((first.boxes + second.boxes) / 2, labels)
            mixed = torch.lerp(matched, regressed, self.settings.regression_share)
            boxes = clipped_boxes(mixed, annotations.is_box, annotations.sizes)
        loss = equations.label_losses(
            (chances[0] + chances[1]) / 2, annotations.labels, annotations.is_box
        )
        changed = torch.where(
            labels != annotations.labels, int(Judgement.RELABELLED), int(Judgement.KEPT)
        )
        unjudged = torch.full_like(changed, int(Judgement.UNJUDGED))
        refined = RefinedBatch(
            boxes=boxes,
            labels=labels,
            verdict=changed if self.mends_labels else unjudged,
            loss=loss,
            threshold=torch.full_like(loss, torch.nan),
            confidence=equations.pseudo_labels(soft)[1],
            num_candidates=torch.zeros_like(annotations.labels),
            matched=matched,
        )
        return refined, soft

    def _step_boxes(
        self, detector: Detector, features: Features, annotations: BatchAnnotations
    ) -> Tensor:
        """Return b*, one gradient step away from b, [B, A, 4]."""
        settings = self.settings
        gradient = box_gradient(detector, features, annotations, settings.objectness_weight)
        slopes = dual_heads.slopes_in_sides(annotations.boxes, gradient)
        if settings.step_unit == "pixels":
            # Converts the slopes back to pixels.
            unit = sides_of_edges(annotations.boxes).square().clamp(min=TINY)
        else:
            unit = self._typical(slopes, annotations.is_box)
        stepped = dual_heads.move_sides(
            annotations.boxes, -self.alpha * slopes / unit, settings.max_shift
        )
        return clipped_boxes(stepped, annotations.is_box, annotations.sizes)

    def _typical(self, slopes: Tensor, is_box: Tensor) -> Tensor:
        """Return the median of recent annotations' largest slopes, at first infinite; a scalar."""
        pushed = self.exchange.all_gather(slopes.abs().amax(-1), is_box)
        self.slopes.copy_(equations.push(self.slopes, *pushed))
        return equations.threshold(self.slopes, CA_BBC.slope_quantile).clamp(min=TINY)

    def _sharpen_labels(self, labels: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return y* [B, A, 1 + C]; its background is 0 unless the settings include it."""
        if not self.settings.include_background:
            first, second = (
                equations.soft_targets(equations.foreground_probabilities(probabilities))
                for probabilities in (first, second)
            )
        return dual_heads.sharpened_labels(labels, first, second, self.settings.temperature)

    def _labels(self, annotations: BatchAnnotations, soft: Tensor) -> Tensor:
        return equations.pseudo_labels(soft)[0] if self.mends_labels else annotations.labels


def box_gradient(
    detector: Detector, features: Features, annotations: BatchAnnotations, objectness: float
) -> Tensor:
    """Compute dL/db of annotated boxes, [B, A, 4] in float32; zero for padding.

    Takes features without gradient. The computation is always in float32, because L is a small
    difference of large numbers where the heads agree.
    """
    numbers, boxes = detector.numbers, annotations.boxes
    with torch.enable_grad(), torch.autocast(boxes.device.type, enabled=False):
        leaf = boxes.detach().float().requires_grad_()
        pooled = pool_with_slopes(
            [features.maps[name] for name in numbers.roi_levels],
            leaf,
            features.canvas,
            size=numbers.pool_size,
            samples=numbers.pool_samples,
        )
        outputs = detector.network.roi_heads.box_predictor.each(pooled)
        first, second = (logits.float().softmax(-1) for logits, _ in outputs)
        loss = dual_heads.region_loss(first, second, objectness)  # [B * A]
        total = torch.where(annotations.is_box.flatten(), loss, 0).sum()
        return torch.autograd.grad(total, leaf)[0]


def losses_by_head(context: StepContext, first_stage: FirstStage, targets: Targets) -> Losses:
    """Compute the second stage's losses, summed over both heads, each on its own RoIs."""
    detector = context.detector
    samples = [draw_rois(context, first_stage.proposals, targets) for _ in range(NUM_HEADS)]
    boxes = torch.stack([sample.boxes for sample in samples])  # [heads, B, S, 4]
    images, number = boxes.shape[1:3]
    pooled = detector.pool(first_stage.features, boxes.transpose(0, 1).flatten(1, 2))
    features = pooled.view(images, NUM_HEADS, number, *pooled.shape[1:])
    classes, regressions = [], []
    for index, rois in enumerate(samples):
        head = detector.network.roi_heads.box_predictor.heads[index]
        output = _as_output(head(features[:, index].flatten(0, 1)), images, number)
        head_losses = detector.roi_losses(output, rois, targets)
        classes.append(head_losses.classification)
        is_soft = targets.soft is not None and targets.soft.shape[1] > 0
        regressions.append(
            soft_box_loss(detector, output, rois, targets) if is_soft else head_losses.boxes
        )
    return {"roi_classes": torch.stack(classes).sum(), "roi_boxes": torch.stack(regressions).sum()}


def mean_box_step(annotations: BatchAnnotations, matched: Tensor) -> Tensor:
    """Return the mean over annotations of the largest shift of a side, in sides; a scalar.

    Sides below one pixel count as one pixel.
    """
    share = (
        (matched - annotations.boxes).abs() / sides_of_edges(annotations.boxes).clamp(min=1)
    ).amax(-1)
    total = torch.where(annotations.is_box, share, 0).sum()
    return total / annotations.is_box.sum().clamp(min=1)


def soft_box_loss(
    detector: Detector, output: RoiOutput, rois: RoiSample, targets: Targets
) -> Tensor:
    """Sum the regression losses of positive RoIs, weighted over classes by the soft label.

    The sum is divided by the number of sampled RoIs, as in `box_loss`. Needs soft targets.
    """
    assert targets.soft is not None
    is_positive = rois.is_positive & rois.is_sampled
    expected = torch.where(is_positive[..., None], rois.deltas, 0)[:, :, None]
    predicted = torch.where(is_positive[..., None, None], output.deltas, 0)
    if detector.numbers.box_loss == "l1":
        each = (predicted - expected).abs()
    else:
        expected = expected.expand_as(predicted)
        each = functional.smooth_l1_loss(predicted, expected, beta=SMOOTH_L1_BETA, reduction="none")
    soft = targets.soft.take_along_dim(rois.matched[..., None], dim=1)  # [B, S, 1 + C]
    loss = dual_heads.soft_regression_loss(each.sum(-1), soft)
    number = count(rois.is_sampled, detector.sum_over_processes)
    return torch.where(is_positive, loss, 0).sum() / number


def _as_output(output: tuple[Tensor, Tensor], images: int, number: int) -> RoiOutput:
    logits = output[0].float().view(images, number, -1)
    return RoiOutput(logits, output[1].float().view(*logits.shape, 4))


def _all_of(annotations: BatchAnnotations) -> Roles:
    """Return roles by which every annotation trains every part of the detector."""
    return Roles(annotations.is_box, annotations.is_box, torch.zeros_like(annotations.is_box))
