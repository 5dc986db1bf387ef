"""The refinement for a custom training loop around a Faster R-CNN like torchvision's.

`Refiner` refines the annotations between proposals and losses, with the methods of `boxmend.train`.
It uses torchvision's conventions: lists of tensors, dicts of targets, labels from 1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection.image_list import ImageList

from boxmend.errors import UsageError
from boxmend.methods.refiner.checks import check_lists, check_sizes, check_values, second_stage_of
from boxmend.methods.refiner.lists import (
    Record,
    TargetDict,
    pad,
    take_rows,
    to_annotations,
    to_lists,
    to_proposals,
    to_record,
    to_rois,
)
from boxmend.methods.refiner.scoring import Maps, make_scorer
from boxmend.methods.table import Mend, Outcome, PaperMethod, TrainingProgress, build_from
from boxmend.runs.settings import TrainSettings, resolve_settings

__all__ = ["Record", "RefinedTargets", "Refiner"]


class RefinedTargets(NamedTuple):
    """The training targets of a batch."""

    rpn: list[TargetDict]  # for the losses of the first stage
    roi: list[TargetDict]  # for the second stage; with "soft" [n, 1 + C] if labels are soft
    record: Record
    outcome: Outcome  # of the method: padded, labels from 0
    places: list[Tensor]  # indices of the annotations of `roi` in the original targets


class Refiner:
    """A refinement method with its state.

    `step` counts the calls, `epoch` counts the calls of `end_epoch`; both start at 0.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        num_annotations: int,
        num_labels: int,
        num_steps: int,
        settings: TrainSettings | None = None,
    ):
        """Make a refiner for a model with torchvision's `roi_heads`, which is on its device.

        `num_labels` excludes background. These settings apply: method, preset, label_noise,
        box_noise, warm_up (a share of `num_steps`), mend and published.
        """
        check_sizes(num_annotations=num_annotations, num_labels=num_labels, num_steps=num_steps)
        self._heads = second_stage_of(model)
        self._num_annotations, self._num_labels = num_annotations, num_labels
        self._num_steps = num_steps
        settings = resolve_settings(settings or TrainSettings())
        self._warm_up = settings.warm_up
        device = next(self._heads.parameters()).device
        method = build_from(settings, num_annotations, num_labels, device)
        if not isinstance(method, Mend | PaperMethod):
            raise UsageError(
                f"a Refiner does not support {settings.method}, which computes its own losses; "
                "choose mend, mend-paper or one of its ablations, or use boxmend train"
            )
        if isinstance(method, Mend) and settings.mend.missing_min_score is not None:
            raise UsageError(
                "mend.missing_min_score leaves regions out of the background, which torchvision's "
                "losses cannot; leave it unset, or use boxmend train"
            )
        self._method = method
        self.step = 0
        self.epoch = 0

    @torch.no_grad()
    def __call__(
        self,
        images: ImageList,
        features: Maps,
        proposals: tuple[Sequence[Tensor], Sequence[Tensor]],
        targets: Sequence[TargetDict],
    ) -> RefinedTargets:
        """Refine the annotations of a batch; call this once a step, before the losses.

        Takes images and targets from `model.transform`, the features of the backbone, and proposals
        with objectness from `model.rpn.filter_proposals`. Each target has boxes [n, 4], labels [n]
        from 1 and rows [n], the indices of its annotations in the whole dataset, from 0.
        Annotations with `iscrowd` are not refined and not part of the training targets.
        """
        sizes = images.image_sizes
        check_lists(len(sizes), proposals, targets)
        check_values(targets, self._num_annotations, self._num_labels)
        annotations = to_annotations(targets, sizes)
        scorer = make_scorer(self._heads, images, features, self._num_labels)
        outcome = self._method.refine(
            annotations, to_proposals(*proposals), scorer, self._progress(self.step)
        )
        self.step += 1
        is_object = torch.stack([outcome.rpn.is_real, outcome.roi.is_real]).cpu()  # [2, B, A]
        rpn_places, places = (
            [mask.nonzero()[:, 0].to(annotations.boxes.device) for mask in stage]
            for stage in is_object
        )
        return RefinedTargets(
            to_lists(targets, outcome.rpn, rpn_places),
            to_lists(targets, outcome.roi, places),
            to_record(targets, annotations, outcome),
            outcome,
            places,
        )

    @torch.no_grad()
    def class_targets(
        self,
        refined: RefinedTargets,
        logits: Tensor,
        labels: Sequence[Tensor],
        matched: Sequence[Tensor],
    ) -> Tensor:
        """Return the class targets [n, 1 + C] of sampled RoIs, for a cross-entropy loss.

        Takes the second stage's logits [n, 1 + C], and labels and matched from
        `roi_heads.select_training_samples` for `refined.roi`. The targets are soft in warm-up and
        if the method has soft labels; otherwise they are one-hot labels.
        """
        counts = [len(labels_of_image) for labels_of_image in labels]
        rows = [take_rows(*pair) for pair in zip(refined.places, matched, strict=True)]
        by_image = pad(torch.split(logits.detach().float(), counts))  # [B, S, 1 + C]
        rois = to_rois(labels, rows)
        progress = self._progress(self.step - 1)  # of the last call
        targets = self._method.class_targets(by_image, rois, refined.outcome.roi, progress)
        if targets is not None:
            return torch.cat([row[:count] for row, count in zip(targets, counts, strict=True)])
        columns = torch.cat(list(labels))
        hard = functional.one_hot(columns, 1 + self._num_labels).float()
        if refined.outcome.roi.soft is None:
            return hard
        pairs = zip(refined.roi, matched, strict=True)
        soft = [take_rows(target["soft"], index) for target, index in pairs]
        return torch.where(columns[:, None] > 0, torch.cat(soft), hard)

    def _progress(self, step: int) -> TrainingProgress:
        return TrainingProgress.at(self.epoch, step, self._num_steps, self._warm_up)

    def end_epoch(self) -> Mapping[str, Any]:
        """Update the noise estimates; call this after each epoch. Returns figures for the log."""
        is_warm_up = self._progress(self.step - 1).is_warm_up
        figures = self._method.end_epoch(self.epoch, is_warm_up=is_warm_up)
        self.epoch += 1
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: tensors and plain numbers."""
        return {"step": self.step, "epoch": self.epoch, "method": self._method.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned for the same dataset and method."""
        missing = [name for name in ("step", "epoch", "method") if name not in state]
        if missing:
            raise UsageError(
                f"the state has no {missing[0]!r}; pass what Refiner.state_dict returned"
            )
        try:
            self._method.load_state_dict(state["method"])
        except KeyError as error:
            raise UsageError(
                f"the state belongs to another method, because it has no {error}; make the Refiner "
                "with the settings of the saved state"
            ) from error
        self.step, self.epoch = int(state["step"]), int(state["epoch"])
