"""Conversion of judged annotations to training targets; ignored annotations are not changed."""

import torch
from torch import Tensor

from boxmend.detector import Targets
from boxmend.detector.boxes import inert_boxes
from boxmend.methods.equations import RefinedBatch, Roles
from boxmend.methods.protocol import BatchAnnotations, Outcome
from boxmend.runs.judgement import Judgement


def neutralise_padding(annotations: BatchAnnotations) -> BatchAnnotations:
    """Replace padding by inert values: the box (0, 0, 1, 1) and label 0.

    Also make `is_box` and `is_ignored` disjoint; an annotation that is both becomes ignored.
    """
    is_real = annotations.is_box | annotations.is_ignored
    return annotations._replace(
        boxes=inert_boxes(annotations.boxes, is_real),
        labels=torch.where(is_real, annotations.labels, 0),
        is_box=annotations.is_box & ~annotations.is_ignored,
    )


def unchanged_outcome(annotations: BatchAnnotations, loss: Tensor | None = None) -> Outcome:
    """Return an outcome that trains on the original annotations without judging them.

    Takes annotations with neutral padding. The loss [B, A] is for the ledger only; what was not
    measured is NaN there.
    """
    targets = _targets(annotations, annotations.boxes, annotations.labels, annotations.is_box)
    not_measured = torch.full_like(annotations.boxes[..., 0], torch.nan)  # [B, A]
    return Outcome(
        rpn=targets,
        roi=targets,
        verdict=torch.full_like(annotations.labels, int(Judgement.UNJUDGED)),
        loss=not_measured if loss is None else torch.where(annotations.is_box, loss, torch.nan),
        threshold=not_measured,
        confidence=not_measured,
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
    """Merge a method's results for `annotations.is_box` with the ignored annotations.

    Ignored annotations keep their values, are UNJUDGED, and become ignored rows of the targets.
    Takes annotations with neutral padding. `soft` [B, A, 1 + C] holds the class targets of the
    second stage.
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
    """Compute the shares of annotations that are relabelled, unsure (DISCARDED) and matched.

    Takes judgements and numbers of candidates [B, A]; an annotation with a candidate is matched.
    Without an argument its share is 0.
    """
    number = annotations.is_box.sum().clamp(min=1)

    def share(mask: Tensor) -> Tensor:
        return (mask & annotations.is_box).sum() / number

    no_annotations = torch.zeros_like(annotations.is_box)
    return {
        "relabelled": share(
            no_annotations if verdict is None else verdict == int(Judgement.RELABELLED)
        ),
        "unsure": share(no_annotations if verdict is None else verdict == int(Judgement.DISCARDED)),
        "matched": share(no_annotations if num_candidates is None else num_candidates > 0),
    }


def _targets(
    annotations: BatchAnnotations,
    boxes: Tensor,
    labels: Tensor,
    is_object: Tensor,
    is_avoided: Tensor | None = None,
) -> Targets:
    """Return targets with objects and with ignored regions: `is_ignored` and `is_avoided`."""
    is_ignored = (
        annotations.is_ignored if is_avoided is None else annotations.is_ignored | is_avoided
    )
    return Targets(boxes, labels, is_object | is_ignored, is_ignored)
