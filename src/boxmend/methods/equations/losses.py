"""Losses under label noise: forward-corrected cross-entropy and cross-entropy on soft targets.

Both return one loss per row; the caller applies weights and normalisers.
"""

import torch
from torch import Tensor
from torch.nn import functional

from boxmend.methods.equations.evidence import TINY


def forward_corrected_loss(
    logits: Tensor, columns: Tensor, transition: Tensor, is_row: Tensor | None = None
) -> Tensor:
    """Compute the forward-corrected cross-entropy -log sum_c s(c) T[c, y] of regions with label y.

    s is the softmax over 1 + C classes. The loss of background is -log s(background). The gradient
    equals that of cross-entropy against the posterior of the prediction, q(c) ~ s(c) T[c, y].

    Takes logits [n, 1 + C], columns [n] (0 for background, y + 1 for label y), T [C, C] and
    is_row [n], false for padding, which gets loss and gradient 0. Returns [n].
    """
    logits, columns = _neutralise_padding(logits, columns, is_row)
    # Background has a row and a column of its own. TINY instead of 0 keeps the loss finite for a
    # label that T makes impossible.
    extended = functional.pad(transition, (1, 0, 1, 0))
    extended[0, 0] = 1
    log_noise = extended.clamp(min=TINY).log().T[columns]  # log T[c, y], [n, 1 + C]
    losses = -(logits.float().log_softmax(-1) + log_noise).logsumexp(-1)
    return losses if is_row is None else torch.where(is_row, losses, 0)


def soft_cross_entropy(logits: Tensor, targets: Tensor, is_row: Tensor | None = None) -> Tensor:
    """Compute the cross-entropy against distributions, -sum_c q(c) log s(c).

    Takes logits and targets [n, 1 + C] and is_row [n], false for padding, which gets loss and
    gradient 0. Returns [n].
    """
    logits, targets = _neutralise_padding(logits, targets, is_row)
    losses: Tensor = -(targets * logits.float().log_softmax(-1)).sum(-1)
    return losses if is_row is None else torch.where(is_row, losses, 0)


def soft_targets(posteriors: Tensor) -> Tensor:
    """Prepend a background column of 0 to posteriors [..., C]. Returns [..., 1 + C]."""
    background = torch.zeros_like(posteriors[..., :1])
    return torch.cat([background, posteriors], dim=-1)


def _neutralise_padding(
    logits: Tensor, targets: Tensor, is_row: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Replace padding before the loss is computed, because 0 times the gradient of a NaN is NaN."""
    if is_row is None:
        return logits, targets
    is_target = is_row if targets.dim() == 1 else is_row[:, None]
    return torch.where(is_row[:, None], logits, 0), torch.where(is_target, targets, 0)
