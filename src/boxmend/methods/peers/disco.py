"""DISCO: the distribution of its proposals corrects a box (Zhou et al., BMVC 2024).

A re-implementation of "Distribution-Aware Calibration for Object Detection with Noisy Bounding
Boxes" after the released code (github.com/Correr-Zhou/DISCO), on the detector of this package. The
decoded boxes of a bag (see `bags`), weighted by their scores, define a Gaussian for each side.
Boxes sampled from it join the bag, and the Gaussian is fitted again. Its mean, weighted by its
score, corrects the annotated box. RoIs are then sampled and assigned again, to the corrected boxes.
The losses of the second stage use these RoIs, with boxes that are corrected once more as regression
targets. Further losses train the best score of each bag, and an output that predicts the spread of
the Gaussian.

Differences from the source: testing has neither soft suppression nor voting by spread, so that
results are comparable with those of the other methods; there is one spread for all classes, in
shares of the sides, so that it does not depend on the image size (the released code divides the
variance by the side once); an annotation without positive RoIs keeps its box, whereas the released
code ignores it in that step; boxes are clipped to the image on all sides; deltas encode centre and
size, not corners; means are over the whole batch, not over the part of each process.
"""

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import Detector, Features, RoiOutput, RoiSample
from boxmend.detector.boxes import clipped_boxes, sides_of_edges
from boxmend.detector.losses import box_loss, count
from boxmend.methods.outcomes import neutralise_padding, unchanged_outcome
from boxmend.methods.peers import bags
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
from boxmend.methods.steps import FirstStage, draw_rois, rpn_losses, run_first_stage
from boxmend.runs.settings import DiscoSettings

MIN_VARIANCE_SIDES = 1e-6  # of squared sides; the spread is trained to the logarithm


class Gaussians(NamedTuple):
    """The distribution of the boxes in bags, by sides; zero where a bag is empty."""

    mean: Tensor  # [B, A, 4]
    std: Tensor  # [B, A, 4]


class Calibrated(NamedTuple):
    """The calibrated boxes of a batch."""

    result: bags.BagResult
    std: Tensor  # [B, A, 4] of the distribution, in pixels
    best: Tensor  # [B, A] log of the best score in each bag, with gradient


class Disco(Method):
    """Distribution-aware calibration; it has no state."""

    def __init__(
        self,
        settings: DiscoSettings = DiscoSettings(),  # noqa: B008  # frozen
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return whether boxes are corrected."""
        return self._is_correcting(progress)

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on corrected boxes, of the bags and of the spread."""
        detector, is_correcting = context.detector, self._is_correcting(context.progress)
        annotations = neutralise_padding(context.annotations)
        unchanged = unchanged_outcome(annotations)
        first = run_first_stage(context)
        losses = rpn_losses(context, first.raw, unchanged.rpn)
        targets = unchanged.roi
        if is_correcting:
            targets = targets._replace(boxes=self._correct_boxes(context, annotations, first))
        rois = draw_rois(context, first.proposals, targets)
        output, spread = outputs_with_spread(detector, first.features, rois.boxes)
        positives = bags.select_positives(rois, detector.numbers)
        second = self._calibrate(
            context,
            annotations._replace(boxes=targets.boxes),
            first.features,
            positives,
            bags.select_first(output, positives),
        )
        if is_correcting:
            rois = bags.with_box_targets(second.result.boxes, rois, detector.numbers)
        roi_losses = detector.roi_losses(output, rois, targets)
        weights = bags.even_weights(second.result.num_members > 0, self.exchange.all_sum)
        spread_loss = torch.zeros_like(roi_losses.boxes)
        if is_correcting:
            spread_loss = _spread_loss(detector, spread, rois, second)
        outcome = bags.bag_outcome(annotations, second.result, is_changing=is_correcting)
        return outcome._replace(rpn=unchanged.rpn, roi=targets), {
            **losses,
            "roi_classes": roi_losses.classification,
            "roi_boxes": roi_losses.boxes,
            "roi_bags": self.settings.bag_loss_weight * bags.weighted_sum(-second.best, weights),
            "roi_spread": self.settings.spread_loss_weight * spread_loss,
        }

    @torch.no_grad()
    def _correct_boxes(
        self, context: StepContext, annotations: BatchAnnotations, first: FirstStage
    ) -> Tensor:
        """Correct the annotated boxes [B, A, 4] by the RoIs that are assigned to them."""
        detector = context.detector
        rois = draw_rois(context, first.proposals, unchanged_outcome(annotations).roi)
        positives = bags.select_positives(rois, detector.numbers)  # the others do not matter here
        output = detector.roi_outputs(first.features, positives.boxes)
        return self._calibrate(context, annotations, first.features, positives, output).result.boxes

    def _calibrate(
        self,
        context: StepContext,
        annotations: BatchAnnotations,
        features: Features,
        rois: RoiSample,
        output: RoiOutput,
    ) -> Calibrated:
        """Calibrate boxes by bags of positive RoIs [B, M], given the head's outputs for them."""
        detector, settings, sizes = context.detector, self.settings, annotations.sizes
        is_member = bags.mark_members(rois, annotations.boxes.shape[1])  # [B, A, M]
        has_bag, shape = is_member.any(-1), is_member.shape
        boxes = bags.decode_boxes(output, rois.boxes, rois, sizes, detector.numbers)  # [B, M, 4]
        scored = bags.log_scores(detector.roi_outputs(features, boxes).logits, rois.labels)
        boxes, scored = boxes[:, None].expand(*shape, 4), scored[:, None].expand(shape)

        rough = fit_gaussians(boxes, scored.detach().exp(), is_member, settings.temperature)
        uniform = context.draw(torch.Size((*has_bag.shape, settings.samples, 4)))
        samples = sample_boxes(rough, uniform, has_bag, sizes)  # [B, A, K, 4]
        is_sample = has_bag[..., None].expand(samples.shape[:3])
        labels = annotations.labels[..., None].expand(samples.shape[:3])
        logits = detector.roi_outputs(features, samples.flatten(1, 2)).logits
        more = bags.log_scores(logits, labels.flatten(1)).view(samples.shape[:3])

        boxes, scored = torch.cat([boxes, samples], dim=2), torch.cat([scored, more], dim=2)
        is_member = torch.cat([is_member, is_sample], dim=2)  # [B, A, M + K]
        best = bags.find_best(scored, is_member).scores
        with torch.no_grad():
            fine = fit_gaussians(boxes, scored.exp(), is_member, settings.temperature)
            mean = clipped_boxes(fine.mean, has_bag, sizes)
            score = bags.log_scores(detector.roi_outputs(features, mean).logits, annotations.labels)
            share = bags.blend_share(score.exp(), settings.exponent, settings.mean_box_max_weight)
            corrected = bags.blend_boxes(annotations.boxes, mean, share, has_bag)
        num_members = is_member[..., : shape[2]].sum(-1)
        return Calibrated(bags.BagResult(mean, score, corrected, num_members), fine.std, best)

    def _is_correcting(self, progress: TrainingProgress) -> bool:
        return bags.has_begun(self.settings.correction_from, progress)


def outputs_with_spread(
    detector: Detector, features: Features, boxes: Tensor
) -> tuple[RoiOutput, Tensor]:
    """Run the second stage on boxes [B, K, 4]; return its output and its raw spread [B, K, 4]."""
    heads, shape = detector.network.roi_heads, boxes.shape[:2]
    pooled = heads.box_head(detector.pool(features, boxes))
    logits, deltas, spread = heads.box_predictor.with_spread(pooled)
    output = RoiOutput(logits.float().view(*shape, -1), deltas.float().view(*shape, -1, 4))
    return output, spread.float().view(*shape, 4)


@torch.no_grad()
def fit_gaussians(
    boxes: Tensor, scores: Tensor, is_member: Tensor, temperature: float
) -> Gaussians:
    """Compute mean and standard deviation of each bag's boxes, weighted by softmax(score / T).

    Takes boxes [B, A, N, 4], scores and is_member [B, A, N].
    """
    logits = torch.where(is_member, scores.float() / temperature, -torch.inf)
    weights = logits.softmax(-1).nan_to_num(nan=0.0)[..., None]  # [B, A, N, 1]
    mean = (weights * boxes).sum(2)
    variance = (weights * (boxes - mean[:, :, None]) ** 2).sum(2)
    return Gaussians(mean, variance.sqrt())


@torch.no_grad()
def sample_boxes(bags_of: Gaussians, uniform: Tensor, has_bag: Tensor, sizes: Tensor) -> Tensor:
    """Sample K boxes from each Gaussian by uniform numbers [B, A, K, 4], clipped to the images."""
    steps = bags.normal_numbers(uniform.float())
    samples = bags_of.mean[:, :, None] + bags_of.std[:, :, None] * steps
    is_box = has_bag[..., None].expand(samples.shape[:3])
    inside = clipped_boxes(samples.flatten(1, 2), is_box.flatten(1), sizes)
    return inside.view(samples.shape)


def spread_targets(std: Tensor, boxes: Tensor) -> Tensor:
    """Return the targets of the spread: log((std / side)^2), at least log 1e-6; all [..., 4].

    The side is the width of the box for x and the height for y.
    """
    return ((std / sides_of_edges(boxes)) ** 2).clamp(min=MIN_VARIANCE_SIDES).log()


def _spread_loss(
    detector: Detector, spread: Tensor, rois: RoiSample, calibrated: Calibrated
) -> Tensor:
    """Compute the loss of the spread [B, S, 4] of positive RoIs against that of their bags."""
    targets_of_spread = spread_targets(calibrated.std, calibrated.result.boxes)  # [B, A, 4]
    number = count(rois.is_sampled, detector.sum_over_processes)
    return box_loss(
        spread,
        bags.rows_of_annotations(targets_of_spread, rois),
        rois.is_positive,
        rois.is_sampled,
        detector.numbers.box_loss,
        number,
    )
