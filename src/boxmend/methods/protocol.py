"""What a method is to the training loop: a stage between proposals and losses."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from boxmend.detector import Proposals, RoiSample, Scores, Targets


class Given(NamedTuple):
    """The annotations of a batch as the dataset tells them, padded, in the network frame."""

    boxes: Tensor  # [B, A, 4]
    labels: Tensor  # [B, A], 0 .. C - 1
    is_box: Tensor  # [B, A] annotations to learn from and to mend
    is_ignored: Tensor  # [B, A] crowd and difficult ones: real, but not to be touched
    rows: Tensor  # [B, A] row of the annotation in the dataset; -1 where padded
    sizes: Tensor  # [B, 2] height and width of the images


class BoxScorer(Protocol):
    """The second stage on given boxes, over the features of the current batch, without gradient."""

    def __call__(self, boxes: Tensor, /) -> Scores:
        """Score boxes [B, K, 4]."""


@dataclass(frozen=True)
class Moment:
    """Where training stands when a batch is refined."""

    epoch: int
    step: int  # of all steps, from 0
    num_steps: int  # in all
    warm_up_left: int  # steps until refinement begins, this one included; 0 once it has

    @classmethod
    def at(cls, epoch: int, step: int, num_steps: int, warm_up: float) -> "Moment":
        """Tell the moment of a step, given the share of all steps that are warm-up."""
        return cls(epoch, step, num_steps, max(math.ceil(warm_up * num_steps) - step, 0))

    @property
    def is_warm_up(self) -> bool:
        """Whether refinement has not begun."""
        return self.warm_up_left > 0


class Outcome(NamedTuple):
    """What to train a batch on, and what to write into the ledger about it; all [B, A, ...]."""

    rpn: Targets
    roi: Targets
    verdict: Tensor  # a ledger Verdict; UNJUDGED in warm-up
    loss: Tensor
    threshold: Tensor  # a scalar, or [B, A]
    confidence: Tensor
    num_candidates: Tensor
    labels: Tensor  # the final ones
    matched: Tensor  # boxes after centre matching, network frame
    boxes: Tensor  # final boxes, network frame
    is_kept: Tensor  # trained on as an object
    metrics: dict[str, Tensor]  # scalars for the log, on the device


class Exchange(Protocol):
    """How a method's state stays one where several processes refine a part of each batch."""

    def gathered(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Join tensors [n, ...] of all processes along the first axis, in the batch's order."""

    def total(self, tensor: Tensor, /) -> Tensor:
        """Add up a tensor over all processes."""


class Alone:
    """The exchange of a process that has the whole batch."""

    def gathered(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Give the tensors as they are."""
        return tensors

    def total(self, tensor: Tensor, /) -> Tensor:
        """Give the tensor as it is."""
        return tensor


class Method(Protocol):
    """One row of the paper's tables; it may keep a state from batch to batch.

    What changes the state goes through `exchange`, so that it is the same in all processes.
    """

    exchange: Exchange

    def refine(
        self, given: Given, proposals: Proposals, scorer: BoxScorer, moment: Moment
    ) -> Outcome:
        """Turn the annotations of a batch into what is trained on; nothing waits for the device."""

    def phase(self, moment: Moment) -> Hashable:
        """Tell apart moments of a pass at which `refine` does different things."""

    def class_targets(self, logits: Tensor, rois: RoiSample, roi: Targets) -> Tensor | None:
        """Soft targets [B, S, 1 + C] for the sampled RoIs, or None for those of `roi`.

        Called with the second stage's logits (detached) before its loss is computed.
        """

    def end_epoch(self, epoch: int) -> Mapping[str, Any]:
        """Estimate anew what is estimated once a pass; returns figures for the log."""

    def report(self) -> Mapping[str, Any]:
        """Tell at the end what was found out about the dataset; see `Mend.report`."""

    def state_dict(self) -> dict[str, Any]:
        """All that the method remembers: tensors and plain numbers."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up what `state_dict` gave."""
