"""Losses over samples of fixed size; masks mark what counts, and padding may hold anything."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from boxmend.errors import UsageError

SMOOTH_L1_BETA = 1 / 9  # below it torchvision's loss is quadratic, above it linear
BOX_BETAS = {"smooth_l1": SMOOTH_L1_BETA, "l1": 0.0}


SumOverProcesses = Callable[[Tensor], Tensor]
"""Adds up a number of samples over the processes that share a batch."""


def objectness_loss(
    logits: Tensor, is_positive: Tensor, is_sampled: Tensor, number: Tensor | None = None
) -> Tensor:
    """Compute the mean binary cross-entropy of the sampled logits; all arguments are [B, S].

    In all losses here, `number` replaces the number of samples as the divisor.
    """
    safe = torch.where(is_sampled, logits.float(), 0)
    each = F.binary_cross_entropy_with_logits(safe, is_positive.float(), reduction="none")
    return torch.where(is_sampled, each, 0).sum() / _divisor(is_sampled, number)


def classification_loss(
    logits: Tensor,
    targets: Tensor,
    is_sampled: Tensor,
    weights: Tensor | None = None,
    number: Tensor | None = None,
) -> Tensor:
    """Compute the mean cross-entropy -sum_c t(c) log p(c) of the sampled RoIs.

    Takes logits [..., 1 + C]; targets, either integer columns [...] (0 for background, y + 1 for
    label y) or probabilities [..., 1 + C]; and is_sampled [...]. `weights` [...] scale the losses
    of RoIs, but not the divisor.
    """
    log_probabilities = torch.where(is_sampled[..., None], logits.float(), 0).log_softmax(-1)
    if targets.dim() == logits.dim():
        each = -(targets.float() * log_probabilities).sum(-1)
    else:
        columns = torch.where(is_sampled, targets, 0)
        each = -log_probabilities.take_along_dim(columns[..., None], dim=-1)[..., 0]
    if weights is not None:
        each = each * weights.float()
    return torch.where(is_sampled, each, 0).sum() / _divisor(is_sampled, number)


def box_loss(
    deltas: Tensor,
    targets: Tensor,
    is_positive: Tensor,
    is_sampled: Tensor,
    kind: str | float,
    number: Tensor | None = None,
) -> Tensor:
    """Sum the regression loss of positive samples and divide it by the number of all samples.

    Takes deltas and targets [..., 4]. With d the difference of a coordinate, "l1" is |d| and
    "smooth_l1" is d^2 / (2 beta) below beta = 1/9 and |d| - beta / 2 above. A number as `kind` is
    another beta.
    """
    if kind not in BOX_BETAS and not isinstance(kind, float):
        raise UsageError(f"unknown box loss {kind!r}; known: {', '.join(BOX_BETAS)}")
    beta = kind if isinstance(kind, float) else BOX_BETAS[kind]
    is_counted = (is_positive & is_sampled)[..., None]
    predicted = torch.where(is_counted, deltas.float(), 0)
    expected = torch.where(is_counted, targets.float(), 0)
    total = F.smooth_l1_loss(predicted, expected, beta=beta, reduction="sum")  # l1 if beta is 0
    return total / _divisor(is_sampled, number)


def count(mask: Tensor, sum_over_processes: SumOverProcesses = lambda number: number) -> Tensor:
    """Count the true entries in the whole batch, at least 1, as a divisor on the device."""
    return sum_over_processes(mask.sum()).clamp(min=1)


def _divisor(is_sampled: Tensor, number: Tensor | None) -> Tensor:
    return count(is_sampled) if number is None else number
