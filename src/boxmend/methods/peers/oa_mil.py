"""OA-MIL: the best of an annotation's own proposals corrects its box (Liu et al., ECCV 2022).

A re-implementation of "Robust Object Detection With Inaccurate Bounding Boxes" after the released
code (github.com/cxliu0/OA-MIL), on our detector. A bag holds the positive RoIs of an annotation.
Their regressions are scored by a second pass of the head; the best one, believed by its score,
moves the target of the regression loss. Assignment, classification and the first stage stay with
the given boxes. The bags' scores are trained besides: this makes a selector of the classifier.

Departures: starts are shares of the training in place of pass numbers; decoded boxes are cut at
the image on all sides, not at zero alone; a bag's annotation is known by its row, not by the sum of
its coordinates; deltas are those of our detector (centre and size, not corners); means are over
the whole batch, not over each process's part.
"""

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.detector import Features, RoiOutput, RoiSample
from boxmend.methods.outcomes import untouched, without_padding
from boxmend.methods.peers import bags
from boxmend.methods.protocol import (
    ALONE,
    BatchAnnotations,
    Exchange,
    Losses,
    Method,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.methods.steps import first_stage, rpn_losses, sampled_rois
from boxmend.runs.settings import OaMilSettings


class Round(NamedTuple):
    """Boxes of positive RoIs, decoded and scored."""

    boxes: Tensor  # [B, M, 4]
    log_scores: Tensor  # [B, M] of the annotations' labels, with gradient


class OaMil(Method):
    """Object-aware multiple instance learning; it remembers nothing."""

    def __init__(
        self,
        settings: OaMilSettings = OaMilSettings(),  # noqa: B008  # frozen
        exchange: Exchange = ALONE,
    ):
        self.settings = settings
        self.exchange = exchange

    def phase(self, moment: TrainingProgress) -> Hashable:
        """Tell apart whether boxes are chosen, and whether bags are extended."""
        return self._is_selecting(moment), self._is_extending(moment)

    def losses(self, work: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of Faster R-CNN with new targets of regression, and the bags'."""
        detector, numbers = work.detector, work.detector.numbers
        given = without_padding(work.given)
        as_given = untouched(given)
        seen = first_stage(work)
        losses = rpn_losses(work, seen.raw, as_given.rpn)
        rois = sampled_rois(work, seen.proposals, as_given.roi)
        output = detector.roi_outputs(seen.features, rois.boxes)
        positives = bags.positives_of(rois, numbers)
        is_member = bags.members(positives, given.boxes.shape[1])
        rounds = self._rounds(work, seen.features, positives, bags.first_of(output, positives))
        found = self._selected(given, rounds[0], is_member)
        is_selecting = self._is_selecting(work.moment)
        if is_selecting:
            rois = bags.regressing_to(found.boxes, rois, numbers)
        ordinary = detector.losses_of_rois(output, rois, as_given.roi)
        outcome = bags.outcome_of(given, found, is_changing=is_selecting)
        return outcome._replace(rpn=as_given.rpn, roi=as_given.roi), {
            **losses,
            "roi_classes": ordinary.classification,
            "roi_boxes": ordinary.boxes,
            "roi_bags": self._bag_loss(given, rounds, is_member, detector.num_labels),
        }

    def _rounds(
        self, work: StepContext, features: Features, rois: RoiSample, output: RoiOutput
    ) -> list[Round]:
        """Decode and score once, and again as often as bags are extended.

        Takes positive RoIs [B, M] and the outputs of the head for them. A further round starts
        from the boxes of the last one, or from the RoIs with its deltas.
        """
        detector, settings, rounds = work.detector, self.settings, list[Round]()
        references = rois.boxes
        for _ in range(1 + settings.extension_rounds * self._is_extending(work.moment)):
            boxes = bags.decoded(output, references, rois, work.given.sizes, detector.numbers)
            output = detector.roi_outputs(features, boxes)
            rounds.append(Round(boxes, bags.log_scores(output.logits, rois.labels)))
            references = boxes if settings.extension == "refine" else rois.boxes
        return rounds

    @torch.no_grad()
    def _selected(self, given: BatchAnnotations, first: Round, is_member: Tensor) -> bags.BagResult:
        """Choose the best box of each bag, and blend it with the given one."""
        best = bags.best_of(first.log_scores[:, None], is_member)
        chosen = first.boxes.take_along_dim(best.places[..., None], dim=1)  # [B, A, 4]
        share = bags.blend_share(best.scores.exp(), self.settings.gamma, self.settings.theta)
        num_members = is_member.sum(-1)
        boxes = bags.blended(given.boxes, chosen, share, num_members > 0)
        return bags.BagResult(chosen, best.scores, boxes, num_members)

    def _bag_loss(
        self, given: BatchAnnotations, rounds: list[Round], is_member: Tensor, num_labels: int
    ) -> Tensor:
        """lambda * (1 - S) with S the mean bag score, of the first round and of those after it.

        refine: 1 - S_0 + coefficient * (1 - mean of S_1 .. S_N); random: 1 - mean of S_0 .. S_N.
        """
        settings = self.settings
        weights = bags.class_weights(
            given.labels, is_member.any(-1), num_labels, self.exchange.total
        )
        each = [bags.best_of(one.log_scores[:, None], is_member).scores.exp() for one in rounds]
        first, *later = [bags.weighted_sum(1 - scores, weights) for scores in each]
        if not later:
            return settings.bag_loss_weight * first
        if settings.extension == "random":
            return settings.bag_loss_weight * torch.stack([first, *later]).mean()
        return settings.bag_loss_weight * (
            first + settings.extension_weight * torch.stack(later).mean()
        )

    def _is_selecting(self, moment: TrainingProgress) -> bool:
        return bags.has_begun(self.settings.selection_from, moment)

    def _is_extending(self, moment: TrainingProgress) -> bool:
        return bags.has_begun(self.settings.extension_from, moment)
