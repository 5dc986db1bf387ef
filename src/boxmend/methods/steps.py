"""The parts of a training step that methods share."""

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
    """The output of the first stage for a batch."""

    features: Features
    raw: RpnOutput
    proposals: Proposals


class TargetMethod(Protocol):
    """A method that only changes the training targets."""

    def refine(
        self,
        annotations: BatchAnnotations,
        proposals: Proposals,
        scorer: BoxScorer,
        progress: TrainingProgress,
    ) -> Outcome:
        """Turn the annotations of a batch into training targets."""

    def class_targets(
        self, logits: Tensor, rois: RoiSample, roi: Targets, progress: TrainingProgress
    ) -> Tensor | None:
        """Return soft class targets [B, S, 1 + C] for the sampled RoIs, or None to use `roi`.

        Takes the second stage's logits without gradient, before its loss is computed.
        """


def run_first_stage(context: StepContext, detector: Detector | None = None) -> FirstStage:
    """Compute features and proposals with the step's detector or another one."""
    detector = detector or context.detector
    features = detector.features(context.images, context.annotations.sizes)
    raw = detector.rpn(features)
    return FirstStage(features, raw, detector.proposals(raw, context.annotations.sizes))


def detach_features(features: Features) -> Features:
    """Return the features without gradient."""
    return features._replace(maps={name: level.detach() for name, level in features.maps.items()})


def rpn_losses(
    context: StepContext, raw: RpnOutput, targets: Targets, detector: Detector | None = None
) -> Losses:
    """Compute the losses of the first stage on anchors drawn for this step."""
    keys = context.draw(raw.objectness.shape)
    losses = (detector or context.detector).rpn_losses(raw, targets, keys)
    return {"rpn_objectness": losses.objectness, "rpn_boxes": losses.boxes}


def draw_rois(
    context: StepContext, proposals: Proposals, targets: Targets, detector: Detector | None = None
) -> RoiSample:
    """Draw the RoIs that train the second stage in this step."""
    number = proposals.boxes.shape[1] + targets.boxes.shape[1]
    keys = context.draw(torch.Size((len(context.images), number)))
    return (detector or context.detector).sample_rois(proposals, targets, keys)


def faster_rcnn_losses(method: TargetMethod, context: StepContext) -> tuple[Outcome, Losses]:
    """Compute the losses of Faster R-CNN on the targets of a method."""
    detector = context.detector
    first = run_first_stage(context)
    with torch.no_grad():
        scorer = context.scorer_on(detach_features(first.features))
        outcome = method.refine(context.annotations, first.proposals, scorer, context.progress)
    losses = rpn_losses(context, first.raw, outcome.rpn)
    rois = draw_rois(context, first.proposals, outcome.roi)
    output = detector.roi_outputs(first.features, rois.boxes)
    class_targets = method.class_targets(
        output.logits.detach(), rois, outcome.roi, context.progress
    )
    second = detector.roi_losses(output, rois, outcome.roi, class_targets)
    return outcome, {**losses, "roi_classes": second.classification, "roi_boxes": second.boxes}
