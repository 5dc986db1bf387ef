"""OA-MIL: the best regressed RoI of an annotation corrects its box (Liu et al., ECCV 2022).

A re-implementation of "Robust Object Detection With Inaccurate Bounding Boxes" after the released
code (github.com/cxliu0/OA-MIL), on the detector of this package. A bag contains the positive RoIs
of an annotation. A second forward pass of the head scores their regressions. The best one, weighted
by its score, moves the regression target. Assignment, classification and the first stage use the
annotated boxes. A loss on the bags' scores trains the classifier to select.

Differences from the source: starts are shares of the training instead of epoch numbers; decoded
boxes are clipped to the image on all sides, not only at zero; a bag is identified by its
annotation's row, not by the sum of its coordinates; deltas encode centre and size, not corners;
means are over the whole batch, not over the part of each process.
"""

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import Features, RoiOutput, RoiSample
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
from boxmend.methods.steps import draw_rois, rpn_losses, run_first_stage
from boxmend.runs.settings import OaMilSettings


class Round(NamedTuple):
    """Decoded boxes of positive RoIs, and their scores."""

    boxes: Tensor  # [B, M, 4]
    log_scores: Tensor  # [B, M] of the annotations' labels, with gradient


class OaMil(Method):
    """Object-aware multiple instance learning; it has no state."""

    def __init__(
        self,
        settings: OaMilSettings = OaMilSettings(),  # noqa: B008  # frozen
        exchange: Exchange = SINGLE_PROCESS,
    ):
        self.settings = settings
        self.exchange = exchange

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return whether boxes are selected, and whether bags are extended."""
        return self._is_selecting(progress), self._is_extending(progress)

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN with new regression targets, and the bag loss."""
        detector, numbers = context.detector, context.detector.numbers
        annotations = neutralise_padding(context.annotations)
        unchanged = unchanged_outcome(annotations)
        first = run_first_stage(context)
        losses = rpn_losses(context, first.raw, unchanged.rpn)
        rois = draw_rois(context, first.proposals, unchanged.roi)
        output = detector.roi_outputs(first.features, rois.boxes)
        positives = bags.select_positives(rois, numbers)
        is_member = bags.mark_members(positives, annotations.boxes.shape[1])
        rounds = self._rounds(
            context, first.features, positives, bags.select_first(output, positives)
        )
        selected = self._select(annotations, rounds[0], is_member)
        is_selecting = self._is_selecting(context.progress)
        if is_selecting:
            rois = bags.with_box_targets(selected.boxes, rois, numbers)
        roi_losses = detector.roi_losses(output, rois, unchanged.roi)
        outcome = bags.bag_outcome(annotations, selected, is_changing=is_selecting)
        return outcome._replace(rpn=unchanged.rpn, roi=unchanged.roi), {
            **losses,
            "roi_classes": roi_losses.classification,
            "roi_boxes": roi_losses.boxes,
            "roi_bags": self._bag_loss(annotations, rounds, is_member, detector.num_labels),
        }

    def _rounds(
        self, context: StepContext, features: Features, rois: RoiSample, output: RoiOutput
    ) -> list[Round]:
        """Decode and score the RoIs once, and once more per extension of the bags.

        Takes positive RoIs [B, M] and the outputs of the head for them. A further round decodes its
        outputs relative to the boxes of the last round ("refine") or to the RoIs ("random").
        """
        detector, settings, rounds = context.detector, self.settings, list[Round]()
        references = rois.boxes
        for _ in range(1 + settings.extension_rounds * self._is_extending(context.progress)):
            boxes = bags.decode_boxes(
                output, references, rois, context.annotations.sizes, detector.numbers
            )
            output = detector.roi_outputs(features, boxes)
            rounds.append(Round(boxes, bags.log_scores(output.logits, rois.labels)))
            references = boxes if settings.extension == "refine" else rois.boxes
        return rounds

    @torch.no_grad()
    def _select(
        self, annotations: BatchAnnotations, first: Round, is_member: Tensor
    ) -> bags.BagResult:
        """Select the best box of each bag, and blend it with the annotated box."""
        best = bags.find_best(first.log_scores[:, None], is_member)
        chosen = first.boxes.take_along_dim(best.places[..., None], dim=1)  # [B, A, 4]
        share = bags.blend_share(best.scores.exp(), self.settings.gamma, self.settings.theta)
        num_members = is_member.sum(-1)
        boxes = bags.blend_boxes(annotations.boxes, chosen, share, num_members > 0)
        return bags.BagResult(chosen, best.scores, boxes, num_members)

    def _bag_loss(
        self, annotations: BatchAnnotations, rounds: list[Round], is_member: Tensor, num_labels: int
    ) -> Tensor:
        """Return the bag loss lambda * (1 - S), with S_i the mean bag score of round i.

        "refine": 1 - S_0 + weight * (1 - mean of S_1 .. S_N). "random": 1 - mean of S_0 .. S_N.
        """
        settings = self.settings
        weights = bags.class_weights(
            annotations.labels, is_member.any(-1), num_labels, self.exchange.all_sum
        )
        best_scores = [
            bags.find_best(each.log_scores[:, None], is_member).scores.exp() for each in rounds
        ]
        first, *later = [bags.weighted_sum(1 - scores, weights) for scores in best_scores]
        if not later:
            return settings.bag_loss_weight * first
        if settings.extension == "random":
            return settings.bag_loss_weight * torch.stack([first, *later]).mean()
        return settings.bag_loss_weight * (
            first + settings.extension_weight * torch.stack(later).mean()
        )

    def _is_selecting(self, progress: TrainingProgress) -> bool:
        return bags.has_begun(self.settings.selection_from, progress)

    def _is_extending(self, progress: TrainingProgress) -> bool:
        return bags.has_begun(self.settings.extension_from, progress)
