"""Cross-iteration noise judgment (Sec. 3.3): a label is noisy if its loss is among the highest.

The queue Q is a tensor [N] of the most recent losses, oldest first. It starts with infinity, so
that every label is accepted until Q holds enough losses.
"""

import math
from typing import Literal

import torch
from torch import Tensor

from boxmend.methods.equations.evidence import foreground_probabilities

JudgedClasses = Literal["all", "foreground"]
"""The classes of the distribution s in Eq. 11 to 13: with background, or without it."""


def acceptance_from_rate(label_noise: float) -> float:
    """Return the acceptance rate r = max(1 - R, 0.5), as published for R of 20, 40 and 60 %."""
    return max(1 - label_noise, 0.5)


def empty_queue(length: int = 128, device: torch.device | str | None = None) -> Tensor:
    """Return a queue Q that accepts everything: N times infinity."""
    return torch.full((length,), torch.inf, device=device)


def judged_probabilities(probabilities: Tensor, classes: JudgedClasses) -> Tensor:
    """Return the distribution s that judges and replaces labels (Eq. 11 to 13).

    Takes probabilities [..., 1 + C], background first. "all" returns them unchanged. "foreground"
    is the softmax over the foreground classes alone: background gets 0, and the C classes sum to 1.
    """
    if classes == "all":
        return probabilities
    foreground = foreground_probabilities(probabilities)
    return torch.cat([torch.zeros_like(foreground[..., :1]), foreground], dim=-1)


def label_losses(probabilities: Tensor, labels: Tensor, is_box: Tensor) -> Tensor:
    """Compute L(b*, y) = -log s(y | b*), (Eq. 11).

    Takes probabilities s [..., 1 + C], background first, labels [...] and is_box [...]. Returns
    [...], 0 for padding. A probability of 0 counts as the smallest normal number, so every loss is
    finite.
    """
    column = torch.where(is_box, labels, 0)[..., None] + 1
    score = probabilities.float().gather(-1, column)[..., 0]
    loss = -score.clamp(min=torch.finfo(torch.float32).tiny).log()
    return torch.where(is_box, loss, 0)


def push(queue: Tensor, losses: Tensor, is_loss: Tensor) -> Tensor:
    """Append losses in their order and drop the oldest, so that the length stays the same.

    Takes queue [N], and losses and is_loss of one shape, read row by row. Only marked losses are
    pushed; of more than N the last N remain. Returns [N].
    """
    entries = torch.cat([queue, losses.reshape(-1)])  # [N + M]
    is_entry = torch.cat([torch.ones_like(queue, dtype=torch.bool), is_loss.reshape(-1)])
    order = is_entry.to(torch.uint8).argsort(stable=True)  # unmarked ones move to the front
    return entries[order[-len(queue) :]]


def threshold(queue: Tensor, acceptance: float) -> Tensor:
    """Return T, entry floor(r * N) of the sorted queue [N], counted from 1; a scalar.

    The number of the entry is limited to 1 .. N.
    """
    length = len(queue)
    number = math.floor(acceptance * length + 1e-9)  # in floating point 0.7 * 10 is below 7
    place = min(max(number - 1, 0), length - 1)
    return queue.sort().values[place]


def judge(losses: Tensor, limit: Tensor, is_box: Tensor) -> Tensor:
    """Mark the noisy labels: L > T, strictly.

    Takes losses and is_box [B, A] and a limit T that broadcasts to them. Returns [B, A].
    """
    return is_box & (losses > limit)


def judge_one_by_one(
    queue: Tensor, losses: Tensor, is_box: Tensor, acceptance: float
) -> tuple[Tensor, Tensor]:
    """Compute T for every object in the literal order: judge an object, push its loss, continue.

    Takes queue [N], losses [B, A] and is_box [B, A]. The order is that of images and, within an
    image, of annotations. Returns the thresholds [B, A] and the queue after the last object. This
    is a loop, because each judgement depends on the one before; `threshold` and `push` treat a
    whole batch at once.
    """
    limits = []
    for loss, is_real in zip(losses.reshape(-1, 1), is_box.reshape(-1, 1), strict=True):
        limits.append(threshold(queue, acceptance))
        queue = push(queue, loss, is_real)
    if not limits:
        return torch.zeros_like(losses), queue
    return torch.stack(limits).reshape(losses.shape), queue
