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
        annotations: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        progress: TrainingProgress,
    ) -> Outcome:
        """Turn the annotations of a batch into what is trained on."""

    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, progress: TrainingProgress
    ) -> Tensor | None:
        """Soft targets [B, S, 1 + C] for the sampled RoIs, or None for those of `roi`.

        Called with the second stage's logits (detached) before its loss is computed.
        """


def run_first_stage(context: StepContext, detector: Detector | None = None) -> FirstStage:
    """Compute features and proposals, by the step's detector or by another one."""
    detector = detector or context.detector
    features = detector.features(context.images, context.annotations.sizes)
    raw = detector.rpn(features)
    return FirstStage(features, raw, detector.proposals(raw, context.annotations.sizes))


def detach_features(features: Features) -> Features:
    """The same features, through which no gradient flows."""
    return features._replace(maps={name: level.detach() for name, level in features.maps.items()})


def rpn_losses(
    context: StepContext, raw: RpnOutput, targets: Targets, detector: Detector | None = None
) -> Losses:
    """Compute the losses of the first stage on anchors drawn for this step."""
    keys = context.draw(raw.objectness.shape)
    found = (detector or context.detector).rpn_losses(raw, targets, keys)
    return {"rpn_objectness": found.objectness, "rpn_boxes": found.boxes}


def draw_rois(
    context: StepContext, proposals: Proposals, targets: Targets, detector: Detector | None = None
) -> RoiSample:
    """Draw the RoIs that teach the second stage in this step."""
    number = proposals.boxes.shape[1] + targets.boxes.shape[1]
    keys = context.draw(torch.Size((len(context.images), number)))
    return (detector or context.detector).sample_rois(proposals, targets, keys)


def faster_rcnn_losses(method: TargetMethod, context: StepContext) -> tuple[Outcome, Losses]:
    """Compute the losses of Faster R-CNN on what a method makes of the annotations."""
    detector = context.detector
    seen = run_first_stage(context)
    with torch.no_grad():
        scorer = context.scorer_on(detach_features(seen.features))
        outcome = method.refine(context.annotations, seen.proposals, scorer, context.progress)
    losses = rpn_losses(context, seen.raw, outcome.rpn)
    rois = draw_rois(context, seen.proposals, outcome.roi)
    output = detector.roi_outputs(seen.features, rois.boxes)
    wanted = method.class_targets(output.logits.detach(), rois, outcome.roi, context.progress)
    found = detector.roi_losses(output, rois, outcome.roi, wanted)
    return outcome, {**losses, "roi_classes": found.classification, "roi_boxes": found.boxes}
