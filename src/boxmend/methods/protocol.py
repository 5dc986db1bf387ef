"""What a method is to the training loop: it turns the annotations of a batch into losses."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from boxmend.detector import Detector, Features, SecondStageOutput, Targets


class BatchAnnotations(NamedTuple):
    """The annotations of a batch as the dataset tells them, padded, in the network frame."""

    boxes: Tensor  # [B, A, 4]
    labels: Tensor  # [B, A], 0 .. C - 1
    is_box: Tensor  # [B, A] annotations to learn from and to mend
    is_ignored: Tensor  # [B, A] crowd and difficult ones: real, but not to be touched
    rows: Tensor  # [B, A] row of the annotation in the dataset; -1 where padded
    sizes: Tensor  # [B, 2] height and width of the images


class BoxScorer(Protocol):
    """The second stage on given boxes, over the features of the current batch, without gradient."""

    def __call__(self, boxes: Tensor, /) -> SecondStageOutput:
        """Score boxes [B, K, 4]."""


@dataclass(frozen=True)
class TrainingProgress:
    """Where training stands when a batch is refined."""

    epoch: int
    step: int  # of all steps, from 0
    num_steps: int  # in all
    warm_up_steps_left: int  # steps until refinement begins, this one included; 0 once it has
    num_epochs: int = 1

    @classmethod
    def at(
        cls, epoch: int, step: int, num_steps: int, warm_up: float, num_epochs: int = 1
    ) -> "TrainingProgress":
        """Tell the moment of a step, given the share of all steps that are warm-up."""
        left = max(math.ceil(warm_up * num_steps) - step, 0)
        return cls(epoch, step, num_steps, left, num_epochs)

    @property
    def is_warm_up(self) -> bool:
        """Whether refinement has not begun."""
        return self.warm_up_steps_left > 0


class Outcome(NamedTuple):
    """What to train a batch on, and what to write into the ledger about it; all [B, A, ...]."""

    rpn: Targets
    roi: Targets
    verdict: Tensor  # a Judgement; UNJUDGED in warm-up
    loss: Tensor
    threshold: Tensor  # a scalar, or [B, A]
    confidence: Tensor
    num_candidates: Tensor
    labels: Tensor  # the final ones
    matched: Tensor  # boxes after centre matching, network frame
    boxes: Tensor  # final boxes, network frame
    is_kept: Tensor  # trained on as an object
    metrics: dict[str, Tensor]  # scalars for the log, on the device


class BoxFeatures(NamedTuple):
    """All annotations to learn from, as the backbone sees them before training."""

    features: Tensor  # [n, D]
    labels: Tensor  # [n]
    folds: Tensor  # [n], the same for all annotations of an image
    rows: Tensor  # [n] of the annotations in the dataset


class Exchange(Protocol):
    """How a method's state stays one where several processes refine a part of each batch."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Join tensors [n, ...] of all processes along the first axis, in the batch's order."""

    def all_sum(self, tensor: Tensor, /) -> Tensor:
        """Add up a tensor over all processes."""


class SingleProcess:
    """The exchange of a process that has the whole batch."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Give the tensors as they are."""
        return tensors

    def all_sum(self, tensor: Tensor, /) -> Tensor:
        """Give the tensor as it is."""
        return tensor


SINGLE_PROCESS = SingleProcess()


@dataclass(frozen=True)
class StepContext:
    """What a step gives a method to compute the losses of a batch from."""

    detector: Detector
    images: Tensor  # [B, 3, H, W]
    annotations: BatchAnnotations
    progress: TrainingProgress
    draw: Callable[[torch.Size], Tensor]
    """Random numbers [B, ...] of this step, uniform in [0, 1); the calls of a step are the same
    ones in every step of a phase."""
    scorer_on: Callable[[Features], BoxScorer]
    """Whose opinion of annotations counts, given the detector's features without gradient."""


Losses = dict[str, Tensor]
"""Scalars by name, which add up to what is minimised; in one run always the same names."""


class Method(Protocol):
    """One row of the tables; it may keep a state from batch to batch.

    What changes the state goes through `exchange`, so that it is the same in all processes. What
    most methods need not do has a default here, which those that derive from this class have.
    """

    exchange: Exchange

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of a batch, and what became of its annotations.

        Nothing waits for the device. `steps.ordinary_losses` does it for a method that only
        changes targets.
        """

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Tell apart moments of a pass at which `losses` does different things."""

    def prepare(self, detector: Detector) -> None:
        """Arrange the detector once, before an optimiser sees its parameters."""
        return

    @property
    def wants_prescreen(self) -> bool:
        """Whether `prescreen` is to be called before the first step."""
        return False

    def prescreen(self, described: BoxFeatures) -> Mapping[str, Any]:
        """Judge all annotations by their features before training; returns figures for the log.

        In process 0 alone; the others take up the state that comes of it.
        """
        return {}

    def begin_epoch(self, epoch: int, detector: Detector) -> None:
        """Do what belongs between two passes, the same in all processes, before the first step."""
        return

    def clock(self, progress: TrainingProgress) -> tuple[int, int]:
        """Tell step and number of steps that the learning rate goes by."""
        return progress.step, progress.num_steps

    def models(self, detector: Detector) -> Mapping[str, Detector]:
        """Name the models to keep and score beside the detector itself."""
        return {}

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Update what the method estimates once an epoch; return figures for the log.

        `is_warm_up` says whether the last step of the epoch belonged to the warm-up. Only process
        0 calls this; the others load the state that results.
        """
        return {}

    def report(self) -> Mapping[str, Any]:
        """Tell at the end what was found out about the dataset; see `Mend.report`."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """All that the method remembers: tensors and plain numbers."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave, in place: a recorded step has addresses."""
        return
