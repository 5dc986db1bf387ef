"""From judged annotations to what is trained on, with the ignored ones passed through untouched."""

import torch
from torch import Tensor

from boxmend.detector import Targets
from boxmend.detector.boxes import inert_boxes
from boxmend.methods.equations import RefinedBatch, Roles
from boxmend.methods.protocol import BatchAnnotations, Outcome
from boxmend.runs.judgement import Judgement


def neutralise_padding(annotations: BatchAnnotations) -> BatchAnnotations:
    """Make padding harmless (the box (0, 0, 1, 1), label 0) and `is_box` and `is_ignored` disjoint.

    What is both, is ignored.
    """
    is_real = annotations.is_box | annotations.is_ignored
    return annotations._replace(
        boxes=inert_boxes(annotations.boxes, is_real),
        labels=torch.where(is_real, annotations.labels, 0),
        is_box=annotations.is_box & ~annotations.is_ignored,
    )


def unchanged_outcome(annotations: BatchAnnotations, loss: Tensor | None = None) -> Outcome:
    """Train on the annotations as given and judge nothing; takes them without padding.

    The loss [B, A] is for the ledger alone; what was not measured is NaN.
    """
    targets = _targets(annotations, annotations.boxes, annotations.labels, annotations.is_box)
    nothing = torch.full_like(annotations.boxes[..., 0], torch.nan)  # [B, A]
    return Outcome(
        rpn=targets,
        roi=targets,
        verdict=torch.full_like(annotations.labels, int(Judgement.UNJUDGED)),
        loss=nothing if loss is None else torch.where(annotations.is_box, loss, torch.nan),
        threshold=nothing,
        confidence=nothing,
        num_candidates=torch.zeros_like(annotations.labels),
        labels=annotations.labels,
        matched=annotations.boxes,
        boxes=annotations.boxes,
        is_kept=annotations.is_box,
        metrics=share_metrics(annotations),
    )


def merge_outcome(
    annotations: BatchAnnotations, refined: RefinedBatch, roles: Roles, soft: Tensor | None = None
) -> Outcome:
    """Put a method's results for `given.is_box` beside the annotations that nothing may touch.

    Ignored rows stay as given, UNJUDGED, and become ignored rows of the targets; takes the
    annotations without padding. `soft` [B, A, 1 + C] is for the second stage.
    """
    is_box = annotations.is_box
    boxes = torch.where(is_box[..., None], refined.boxes, annotations.boxes)
    labels = torch.where(is_box, refined.labels, annotations.labels)
    roi = _targets(annotations, boxes, labels, roles.head, roles.ignored)
    return Outcome(
        rpn=_targets(annotations, boxes, labels, roles.rpn),
        roi=roi._replace(soft=soft),
        verdict=torch.where(is_box, refined.verdict, int(Judgement.UNJUDGED)),
        loss=torch.where(is_box, refined.loss, torch.nan),
        threshold=torch.where(is_box, refined.threshold, torch.nan),
        confidence=torch.where(is_box, refined.confidence, torch.nan),
        num_candidates=torch.where(is_box, refined.num_candidates, 0),
        labels=labels,
        matched=torch.where(is_box[..., None], refined.matched, annotations.boxes),
        boxes=boxes,
        is_kept=roles.head,
        metrics=share_metrics(annotations, refined.verdict, refined.num_candidates),
    )


def share_metrics(
    annotations: BatchAnnotations,
    verdict: Tensor | None = None,
    num_candidates: Tensor | None = None,
) -> dict[str, Tensor]:
    """Count verdicts and matches [B, A] as shares of the annotations to learn from.

    The keys are always the same: relabelled, unsure (DISCARDED) and matched (has a candidate).
    """
    number = annotations.is_box.sum().clamp(min=1)

    def share(mask: Tensor) -> Tensor:
        return (mask & annotations.is_box).sum() / number

    none = torch.zeros_like(annotations.is_box)
    return {
        "relabelled": share(none if verdict is None else verdict == int(Judgement.RELABELLED)),
        "unsure": share(none if verdict is None else verdict == int(Judgement.DISCARDED)),
        "matched": share(none if num_candidates is None else num_candidates > 0),
    }


def _targets(
    annotations: BatchAnnotations,
    boxes: Tensor,
    labels: Tensor,
    is_object: Tensor,
    is_avoided: Tensor | None = None,
) -> Targets:
    """Objects, and the regions that teach nothing: ignored annotations and those to be avoided."""
    is_ignored = (
        annotations.is_ignored if is_avoided is None else annotations.is_ignored | is_avoided
    )
    return Targets(boxes, labels, is_object | is_ignored, is_ignored)
