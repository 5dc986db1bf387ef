"""The parts of a step that methods have in common."""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from boxmend.detector import Detector, Features, Proposals, RoiSample, RpnOutput, Targets
from boxmend.methods.protocol import (
    BatchAnnotations,
    BoxScorer,
    Losses,
    Outcome,
    StepContext,
    TrainingProgress,
)


class FirstStage(NamedTuple):
    """What the first stage makes of a batch."""

    features: Features
    raw: RpnOutput
    proposals: Proposals


class TargetMethod(Protocol):
    """A method that changes what is trained on, and nothing else."""

    def refine(
        self,
        given: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        moment: TrainingProgress,
    ) -> Outcome:
        """Turn the annotations of a batch into what is trained on."""

    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, moment: TrainingProgress
    ) -> Tensor | None:
        """Soft targets [B, S, 1 + C] for the sampled RoIs, or None for those of `roi`.

        Called with the second stage's logits (detached) before its loss is computed.
        """


def first_stage(work: StepContext, detector: Detector | None = None) -> FirstStage:
    """Compute features and proposals, by the step's detector or by another one."""
    detector = detector or work.detector
    features = detector.features(work.images, work.given.sizes)
    raw = detector.rpn(features)
    return FirstStage(features, raw, detector.proposals(raw, work.given.sizes))


def detached(features: Features) -> Features:
    """The same features, through which no gradient flows."""
    return features._replace(maps={name: level.detach() for name, level in features.maps.items()})


def rpn_losses(
    work: StepContext, raw: RpnOutput, targets: Targets, detector: Detector | None = None
) -> Losses:
    """Compute the losses of the first stage on anchors drawn for this step."""
    keys = work.draw(raw.objectness.shape)
    found = (detector or work.detector).rpn_losses(raw, targets, keys)
    return {"rpn_objectness": found.objectness, "rpn_boxes": found.boxes}


def sampled_rois(
    work: StepContext, proposals: Proposals, targets: Targets, detector: Detector | None = None
) -> RoiSample:
    """Draw the RoIs that teach the second stage in this step."""
    number = proposals.boxes.shape[1] + targets.boxes.shape[1]
    keys = work.draw(torch.Size((len(work.images), number)))
    return (detector or work.detector).sample_rois(proposals, targets, keys)


def ordinary_losses(method: TargetMethod, work: StepContext) -> tuple[Outcome, Losses]:
    """Compute the losses of Faster R-CNN on what a method makes of the annotations."""
    detector = work.detector
    seen = first_stage(work)
    with torch.no_grad():
        scorer = work.scorer_on(detached(seen.features))
        outcome = method.refine(work.given, seen.proposals, scorer, work.moment)
    losses = rpn_losses(work, seen.raw, outcome.rpn)
    rois = sampled_rois(work, seen.proposals, outcome.roi)
    output = detector.roi_outputs(seen.features, rois.boxes)
    wanted = method.class_targets(output.logits.detach(), rois, outcome.roi, work.moment)
    found = detector.losses_of_rois(output, rois, outcome.roi, wanted)
    return outcome, {**losses, "roi_classes": found.classification, "roi_boxes": found.boxes}
