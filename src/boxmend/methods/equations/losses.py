"""Losses that know of label noise: cross-entropy through a transition matrix and on soft targets.

Both give one loss per row, so that the caller decides about weights and normalisers.
"""

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.methods.equations.evidence import TINY


def forward_corrected_loss(
    logits: Tensor, columns: Tensor, transition: Tensor, is_row: Tensor | None = None
) -> Tensor:
    """Cross-entropy of the annotated label under T applied to the prediction.

    For a region annotated as y it is -log sum_c s(c) T[c, y] with s the softmax over 1 + C
    classes; for background it is the plain -log s(background). Its gradient is that of
    cross-entropy against the posterior of the current prediction, q(c) ~ s(c) T[c, y].

    Takes logits [n, 1 + C], columns [n] (0 for background, y + 1 for label y), T [C, C] and
    is_row [n], false for padding, which gets loss and gradient 0. Returns [n].
    """
    logits, columns = _without_padding(logits, columns, is_row)
    # Background stays what it is: T framed by a row and a column of its own. TINY instead of 0
    # keeps a label that T calls impossible at a finite loss.
    framed = functional.pad(transition, (1, 0, 1, 0))
    framed[0, 0] = 1
    through = framed.clamp(min=TINY).log().T[columns]  # log T[c, y], [n, 1 + C]
    losses = -(logits.float().log_softmax(-1) + through).logsumexp(-1)
    return losses if is_row is None else torch.where(is_row, losses, 0)


def soft_cross_entropy(logits: Tensor, targets: Tensor, is_row: Tensor | None = None) -> Tensor:
    """Cross-entropy against distributions: -sum_c q(c) log s(c).

    Takes logits and targets [n, 1 + C] and is_row [n], false for padding, which gets loss and
    gradient 0. Returns [n].
    """
    logits, targets = _without_padding(logits, targets, is_row)
    losses: Tensor = -(targets * logits.float().log_softmax(-1)).sum(-1)
    return losses if is_row is None else torch.where(is_row, losses, 0)


def soft_targets(posteriors: Tensor) -> Tensor:
    """Put a background column of 0 before posteriors [..., C]. Returns [..., 1 + C]."""
    background = torch.zeros_like(posteriors[..., :1])
    return torch.cat([background, posteriors], dim=-1)


def _without_padding(
    logits: Tensor, targets: Tensor, is_row: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Replace padding before it is computed with: 0 times the gradient of a NaN is NaN."""
    if is_row is None:
        return logits, targets
    is_target = is_row if targets.dim() == 1 else is_row[:, None]
    return torch.where(is_row[:, None], logits, 0), torch.where(is_target, targets, 0)
