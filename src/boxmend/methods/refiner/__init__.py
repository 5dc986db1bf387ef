"""The refinement for a training loop of your own, around a Faster R-CNN like torchvision's.

`Refiner` stands between proposals and losses. It speaks torchvision's language (lists of tensors,
dicts of targets, labels from 1) and does by the same methods what `boxmend.train` does.
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
    as_given,
    as_lists,
    as_proposals,
    as_record,
    as_rois,
    pad,
    take_rows,
)
from boxmend.methods.refiner.scoring import Maps, make_scorer
from boxmend.methods.table import Mend, Outcome, PaperMethod, TrainingProgress, build_from
from boxmend.runs.settings import TrainSettings, resolve_settings

__all__ = ["Record", "RefinedTargets", "Refiner"]


class RefinedTargets(NamedTuple):
    """What to train a batch on."""

    rpn: list[TargetDict]  # for the losses of the first stage
    roi: list[TargetDict]  # for those of the second; "soft" [n, 1 + C] where labels are soft
    record: Record
    outcome: Outcome  # the same as the method gave it, padded, labels from 0
    places: list[Tensor]  # where the annotations of `roi` stood in the targets


class Refiner:
    """A method of refinement with all that it remembers.

    `step` counts its calls and `epoch` those of `end_epoch`, both from 0.
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
        """Take a model with torchvision's `roi_heads`, on its device, and the size of the dataset.

        Classes are counted without background. Of the settings count method, preset, label_noise,
        box_noise, warm_up (a share of `num_steps`), mend and published.
        """
        check_sizes(num_annotations=num_annotations, num_labels=num_labels, num_steps=num_steps)
        self._heads = second_stage_of(model)
        self._num_annotations, self._num_labels = num_annotations, num_labels
        self._num_steps = num_steps
        settings = resolve_settings(settings or TrainSettings())
        self._warm_up = settings.warm_up
        device = next(self._heads.parameters()).device
        made = build_from(settings, num_annotations, num_labels, device)
        if not isinstance(made, Mend | PaperMethod):
            raise UsageError(
                f"{settings.method} computes losses of its own, which a Refiner cannot; it serves "
                "mend, mend-paper and its parts. Use boxmend train"
            )
        if isinstance(made, Mend) and settings.mend.missing_min_score is not None:
            raise UsageError(
                "mend.missing_min_score leaves regions out of the background, which torchvision's "
                "losses cannot; leave it unset, or use boxmend train"
            )
        self._method = made
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
        """Refine the annotations of a batch; call it once a step, before the losses.

        Takes images and targets as `model.transform` gives them, the features of the backbone, and
        proposals with objectness as `model.rpn.filter_proposals` gives them. Each target has
        boxes [n, 4], labels [n] from 1 and rows [n]: which annotations of the whole dataset these
        are, from 0. Those with `iscrowd` are not touched, and left out of what is trained on.
        """
        sizes = images.image_sizes
        check_lists(len(sizes), proposals, targets)
        check_values(targets, self._num_annotations, self._num_labels)
        annotations = as_given(targets, sizes)
        scorer = make_scorer(self._heads, images, features, self._num_labels)
        outcome = self._method.refine(
            annotations, as_proposals(*proposals), scorer, self._progress(self.step)
        )
        self.step += 1
        is_object = torch.stack([outcome.rpn.is_real, outcome.roi.is_real]).cpu()  # [2, B, A]
        rpn_places, places = (
            [mask.nonzero()[:, 0].to(annotations.boxes.device) for mask in stage]
            for stage in is_object
        )
        return RefinedTargets(
            as_lists(targets, outcome.rpn, rpn_places),
            as_lists(targets, outcome.roi, places),
            as_record(targets, annotations, outcome),
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
        """Give the class targets [n, 1 + C] of sampled RoIs, to be compared by cross-entropy.

        Takes the second stage's logits [n, 1 + C], and labels and matched as
        `roi_heads.select_training_samples` gives them for `refined.roi`. They are soft where the
        method has soft labels, and in its warm-up; else they say what the labels say.
        """
        counts = [len(one) for one in labels]
        rows = [take_rows(*pair) for pair in zip(refined.places, matched, strict=True)]
        by_image = pad(torch.split(logits.detach().float(), counts))  # [B, S, 1 + C]
        rois, progress = (
            as_rois(labels, rows),
            self._progress(self.step - 1),
        )  # that of the last call
        wanted = self._method.class_targets(by_image, rois, refined.outcome.roi, progress)
        if wanted is not None:
            return torch.cat([some[:count] for some, count in zip(wanted, counts, strict=True)])
        columns = torch.cat(list(labels))
        hard = functional.one_hot(columns, 1 + self._num_labels).float()
        if refined.outcome.roi.soft is None:
            return hard
        soft = [take_rows(one["soft"], at) for one, at in zip(refined.roi, matched, strict=True)]
        return torch.where(columns[:, None] > 0, torch.cat(soft), hard)

    def _progress(self, step: int) -> TrainingProgress:
        return TrainingProgress.at(self.epoch, step, self._num_steps, self._warm_up)

    def end_epoch(self) -> Mapping[str, Any]:
        """Estimate the noise anew; call it after each pass. Returns figures for the log."""
        is_warm_up = self._progress(self.step - 1).is_warm_up
        figures = self._method.end_epoch(self.epoch, is_warm_up=is_warm_up)
        self.epoch += 1
        return figures

    def state_dict(self) -> dict[str, Any]:
        """Give all that a checkpoint needs: tensors and plain numbers."""
        return {"step": self.step, "epoch": self.epoch, "method": self._method.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave for the same dataset and method."""
        missing = [name for name in ("step", "epoch", "method") if name not in state]
        if missing:
            raise UsageError(f"no state of a Refiner: it has no {missing[0]!r}")
        try:
            self._method.load_state_dict(state["method"])
        except KeyError as error:
            raise UsageError(f"the state is of another method: it has no {error}") from error
        self.step, self.epoch = int(state["step"]), int(state["epoch"])
