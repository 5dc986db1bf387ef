"""The interface between the training loop and a method, which turns annotations into losses."""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from boxmend.detector import Detector, Features, SecondStageOutput, Targets


class BatchAnnotations(NamedTuple):
    """The original annotations of a batch, padded, in the coordinates of the network's input."""

    boxes: Tensor  # [B, A, 4]
    labels: Tensor  # [B, A], 0 .. C - 1
    is_box: Tensor  # [B, A] annotations to train on and to repair
    is_ignored: Tensor  # [B, A] crowd and difficult objects, which no method changes
    rows: Tensor  # [B, A] row of the annotation in the dataset; -1 for padding
    sizes: Tensor  # [B, 2] height and width of the images


class BoxScorer(Protocol):
    """The second stage on the features of the current batch, without gradient."""

    def __call__(self, boxes: Tensor, /) -> SecondStageOutput:
        """Score boxes [B, K, 4]."""


@dataclass(frozen=True)
class TrainingProgress:
    """The position of a step in the training."""

    epoch: int  # from 0
    step: int  # of the whole training, from 0
    num_steps: int  # of the whole training
    warm_up_steps_left: int  # this step included; 0 after warm-up
    num_epochs: int = 1

    @classmethod
    def at(
        cls, epoch: int, step: int, num_steps: int, warm_up: float, num_epochs: int = 1
    ) -> "TrainingProgress":
        """Return the progress at a step; `warm_up` is a share of all steps."""
        left = max(math.ceil(warm_up * num_steps) - step, 0)
        return cls(epoch, step, num_steps, left, num_epochs)

    @property
    def is_warm_up(self) -> bool:
        """Whether the step belongs to the warm-up, in which annotations are not refined."""
        return self.warm_up_steps_left > 0


class Outcome(NamedTuple):
    """The training targets of a batch, and its entries for the ledger; all [B, A, ...]."""

    rpn: Targets  # for the first stage
    roi: Targets  # for the second stage
    verdict: Tensor  # a Judgement; UNJUDGED in warm-up
    loss: Tensor
    threshold: Tensor  # a scalar, or [B, A]
    confidence: Tensor
    num_candidates: Tensor
    labels: Tensor  # final labels
    matched: Tensor  # boxes after centre matching
    boxes: Tensor  # final boxes
    is_kept: Tensor  # the annotation trains the second stage as an object
    metrics: dict[str, Tensor]  # scalars for the log, on the device


class BoxFeatures(NamedTuple):
    """Features of all annotations to train on, computed by the backbone before training."""

    features: Tensor  # [n, D]
    labels: Tensor  # [n]
    folds: Tensor  # [n], equal for all annotations of an image
    rows: Tensor  # [n] of the annotations in the dataset


class Exchange(Protocol):
    """The communication that keeps a method's state equal where processes share each batch."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Join tensors [n, ...] of all processes along the first axis, in the batch's order."""

    def all_sum(self, tensor: Tensor, /) -> Tensor:
        """Add up a tensor over all processes."""


class SingleProcess:
    """The exchange of a process that has the whole batch."""

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors unchanged."""
        return tensors

    def all_sum(self, tensor: Tensor, /) -> Tensor:
        """Return the tensor unchanged."""
        return tensor


SINGLE_PROCESS = SingleProcess()


@dataclass(frozen=True)
class StepContext:
    """The inputs from which a method computes the losses of a batch."""

    detector: Detector
    images: Tensor  # [B, 3, H, W]
    annotations: BatchAnnotations
    progress: TrainingProgress
    draw: Callable[[torch.Size], Tensor]
    """Returns random numbers [B, ...] of this step, uniform in [0, 1). All steps of a phase make
    the same calls."""
    scorer_on: Callable[[Features], BoxScorer]
    """Returns the model that judges annotations, for the detector's features without gradient."""


Losses = dict[str, Tensor]
"""Scalars by name; their sum is minimised. The names stay the same throughout a run."""


class Method(Protocol):
    """A training method, which may keep a state from batch to batch.

    All changes of the state go through `exchange`, so that it is equal in all processes. Optional
    hooks have defaults here, which subclasses inherit.
    """

    exchange: Exchange

    def losses(self, context: StepContext) -> tuple[Outcome, Losses]:
        """Compute the losses of a batch, and the outcome for its annotations.

        Nothing waits for the device. A method that only changes targets uses
        `steps.faster_rcnn_losses`.
        """

    def phase(self, progress: TrainingProgress) -> Hashable:
        """Return a key that changes within an epoch when `losses` starts to compute differently."""

    def prepare(self, detector: Detector) -> None:
        """Change the detector once, before the optimizer collects its parameters."""
        return

    @property
    def wants_prescreen(self) -> bool:
        """Whether the loop calls `prescreen` before the first step."""
        return False

    def prescreen(self, box_features: BoxFeatures) -> Mapping[str, Any]:
        """Judge all annotations by their features before training; return figures for the log.

        Only process 0 calls this; the others load the state that results.
        """
        return {}

    def begin_epoch(self, epoch: int, detector: Detector) -> None:
        """Prepare an epoch before its first step; all processes call this."""
        return

    def clock(self, progress: TrainingProgress) -> tuple[int, int]:
        """Return the step and the number of steps for the learning-rate schedule."""
        return progress.step, progress.num_steps

    def models(self, detector: Detector) -> Mapping[str, Detector]:
        """Return further models, by name, to save and evaluate beside the detector."""
        return {}

    def end_epoch(self, epoch: int, *, is_warm_up: bool) -> Mapping[str, Any]:
        """Update what the method estimates once an epoch; return figures for the log.

        `is_warm_up` says whether the last step of the epoch belonged to the warm-up. Only process
        0 calls this; the others load the state that results.
        """
        return {}

    def report(self) -> Mapping[str, Any]:
        """Return the findings about the dataset at the end of training."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the method's state: tensors and plain numbers."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, in place, because a captured step holds addresses."""
        return
