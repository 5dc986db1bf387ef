"""DISCO: a box is corrected by how its proposals are distributed (Zhou et al., BMVC 2024).

A re-implementation of "Distribution-Aware Calibration for Object Detection with Noisy Bounding
Boxes" after the released code (github.com/Correr-Zhou/DISCO), on our detector. The decoded boxes
of a bag (see `bags`), weighted by their scores, are a Gaussian for each side. Boxes drawn from it
join the bag, the Gaussian is taken anew, and its mean, believed by its score, corrects the given
box. RoIs are then drawn and assigned a second time, to the corrected boxes. The losses of the
second stage are those of this second time, in which boxes are corrected once more for the
regression. The best score of each bag is trained besides, and so is an output that tells the
spread of the Gaussian.

Departures: testing has neither soft suppression nor voting by spread, so that figures can be
compared with those of all other methods here; the spread is one for all classes, and in shares of
the box's sides, so that it does not depend on the size of images (the released code divides the
variance by the side once); an annotation without positive RoIs keeps its box, where the released
code forgets it for the step; boxes are cut at the image on all sides; deltas are those of our
detector (centre and size, not corners); means are over the whole batch, not over each process's
part.
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

LEAST_VARIANCE = 1e-6  # in sides of the box; its logarithm is what the spread is trained to


class Gaussians(NamedTuple):
    """How the boxes of bags are distributed, by sides; zero where a bag is empty."""

    mean: Tensor  # [B, A, 4]
    std: Tensor  # [B, A, 4]


class Calibrated(NamedTuple):
    """What the bags of a batch say."""

    found: bags.BagResult
    std: Tensor  # [B, A, 4] of the distribution, in pixels
    best: Tensor  # [B, A] logarithm of the best score of each bag, with gradient


class Disco(Method):
    """Distribution-aware calibration; it remembers nothing."""

    def __init__(
        self,
        settings: DiscoSettings = DiscoSettings(),  # noqa: B008  # frozen
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Tell whether boxes are corrected."""
        return self._is_correcting(progress)

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN on corrected boxes, the bags' and the spread's."""
        detector, is_correcting = context.detector, self._is_correcting(context.progress)
        annotations = neutralise_padding(context.annotations)
        as_given = unchanged_outcome(annotations)
        seen = run_first_stage(context)
        losses = rpn_losses(context, seen.raw, as_given.rpn)
        targets = as_given.roi
        if is_correcting:
            targets = targets._replace(boxes=self._correct_boxes(context, annotations, seen))
        rois = draw_rois(context, seen.proposals, targets)
        output, spread = outputs_with_spread(detector, seen.features, rois.boxes)
        positives = bags.select_positives(rois, detector.numbers)
        second = self._calibrate(
            context,
            annotations._replace(boxes=targets.boxes),
            seen.features,
            positives,
            bags.select_first(output, positives),
        )
        if is_correcting:
            rois = bags.with_box_targets(second.found.boxes, rois, detector.numbers)
        ordinary = detector.roi_losses(output, rois, targets)
        weights = bags.even_weights(second.found.num_members > 0, self.exchange.all_sum)
        spread_loss = torch.zeros_like(ordinary.boxes)
        if is_correcting:
            spread_loss = _spread_loss(detector, spread, rois, second)
        outcome = bags.bag_outcome(annotations, second.found, is_changing=is_correcting)
        return outcome._replace(rpn=as_given.rpn, roi=targets), {
            **losses,
            "roi_classes": ordinary.classification,
            "roi_boxes": ordinary.boxes,
            "roi_bags": self.settings.bag_loss_weight * bags.weighted_sum(-second.best, weights),
            "roi_spread": self.settings.spread_loss_weight * spread_loss,
        }

    @torch.no_grad()
    def _correct_boxes(
        self, context: StepContext, annotations: BatchAnnotations, seen: FirstStage
    ) -> Tensor:
        """Correct the given boxes [B, A, 4] by the RoIs that are assigned to them."""
        detector = context.detector
        rois = draw_rois(context, seen.proposals, unchanged_outcome(annotations).roi)
        positives = bags.select_positives(rois, detector.numbers)  # the others have no say here
        output = detector.roi_outputs(seen.features, positives.boxes)
        return self._calibrate(context, annotations, seen.features, positives, output).found.boxes

    def _calibrate(
        self,
        context: StepContext,
        annotations: BatchAnnotations,
        features: Features,
        rois: RoiSample,
        output: RoiOutput,
    ) -> Calibrated:
        """Model the bags of positive RoIs [B, M], given the outputs of the head for them."""
        detector, settings, sizes = context.detector, self.settings, annotations.sizes
        is_member = bags.membership(rois, annotations.boxes.shape[1])  # [B, A, M]
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
        best = bags.best_of(scored, is_member).scores
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
    """Run the second stage on boxes [B, K, 4]; returns also its raw spread [B, K, 4]."""
    heads, shape = detector.network.roi_heads, boxes.shape[:2]
    pooled = heads.box_head(detector.pooled(features, boxes))
    logits, deltas, spread = heads.box_predictor.with_spread(pooled)
    output = RoiOutput(logits.float().view(*shape, -1), deltas.float().view(*shape, -1, 4))
    return output, spread.float().view(*shape, 4)


@torch.no_grad()
def fit_gaussians(
    boxes: Tensor, scores: Tensor, is_member: Tensor, temperature: float
) -> Gaussians:
    """Take mean and deviation of each bag's boxes, weighted by softmax(score / T) in the bag.

    Takes boxes [B, A, N, 4], scores and is_member [B, A, N].
    """
    logits = torch.where(is_member, scores.float() / temperature, -torch.inf)
    weights = logits.softmax(-1).nan_to_num(nan=0.0)[..., None]  # [B, A, N, 1]
    mean = (weights * boxes).sum(2)
    variance = (weights * (boxes - mean[:, :, None]) ** 2).sum(2)
    return Gaussians(mean, variance.sqrt())


@torch.no_grad()
def sample_boxes(bags_of: Gaussians, uniform: Tensor, has_bag: Tensor, sizes: Tensor) -> Tensor:
    """Draw K boxes from each Gaussian by numbers [B, A, K, 4] uniform in [0, 1), inside images."""
    steps = bags.normal_numbers(uniform.float())
    drawn = bags_of.mean[:, :, None] + bags_of.std[:, :, None] * steps
    is_box = has_bag[..., None].expand(drawn.shape[:3])
    inside = clipped_boxes(drawn.flatten(1, 2), is_box.flatten(1), sizes)
    return inside.view(drawn.shape)


def spread_targets(std: Tensor, boxes: Tensor) -> Tensor:
    """Tell the spread wanted: log((std / side)^2), at least log 1e-6; all [..., 4].

    The side of x is the width of the box, that of y the height.
    """
    return ((std / sides_of_edges(boxes)) ** 2).clamp(min=LEAST_VARIANCE).log()


def _spread_loss(
    detector: Detector, spread: Tensor, rois: RoiSample, calibrated: Calibrated
) -> Tensor:
    """Compare the spread [B, S, 4] of positive RoIs with that of their bags."""
    wanted = spread_targets(calibrated.std, calibrated.found.boxes)  # [B, A, 4]
    number = count(rois.is_sampled, detector.sum_over_processes)
    return box_loss(
        spread,
        bags.rows_of_annotations(wanted, rois),
        rois.is_positive,
        rois.is_sampled,
        detector.numbers.box_loss,
        number,
    )
