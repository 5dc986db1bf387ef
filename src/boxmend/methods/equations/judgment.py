"""Cross-iteration noise judgment: is a label's loss too high among the recent ones? (Sec. 3.3)

The queue Q is a tensor [N] of the most recent losses, the oldest first. It starts with infinity,
so that everything is accepted until enough losses have come in.
"""

import math

import torch
from torch import Tensor


def acceptance_from_rate(label_noise: float) -> float:
    """Choose r for a rate of label noise: r = max(1 - R, 0.5), as published for 20, 40 and 60 %."""
    return max(1 - label_noise, 0.5)


def empty_queue(length: int = 128, device: torch.device | str | None = None) -> Tensor:
    """Make a queue that accepts everything: infinity, N times."""
    return torch.full((length,), torch.inf, device=device)


def label_losses(probabilities: Tensor, labels: Tensor, is_box: Tensor) -> Tensor:
    """Compute L(b*, y) = -log s(y | b*), background in the denominator (Eq. 11).

    Takes probabilities [..., 1 + C], background first, labels [...] and is_box [...]. Returns
    [...], 0 for padding. A probability of 0 counts as the smallest normal number, so that no
    loss is infinite.
    """
    column = torch.where(is_box, labels, 0)[..., None] + 1
    score = probabilities.float().gather(-1, column)[..., 0]
    loss = -score.clamp(min=torch.finfo(torch.float32).tiny).log()
    return torch.where(is_box, loss, 0)


def push(queue: Tensor, losses: Tensor, is_loss: Tensor) -> Tensor:
    """Append losses in their order and drop the oldest, so that the length stays.

    Takes queue [N] and losses and is_loss of one shape, read row by row; only those marked are
    pushed, and of more than N the last N stay. Returns [N].
    """
    entries = torch.cat([queue, losses.reshape(-1)])  # [N + M]
    is_entry = torch.cat([torch.ones_like(queue, dtype=torch.bool), is_loss.reshape(-1)])
    order = is_entry.to(torch.uint8).argsort(stable=True)  # what is no entry moves to the front
    return entries[order[-len(queue) :]]


def threshold(queue: Tensor, acceptance: float) -> Tensor:
    """Read T off the sorted queue: its entry number floor(r * N), counted from 1.

    The number is kept within 1 .. N. Takes queue [N]. Returns a scalar.
    """
    length = len(queue)
    number = math.floor(acceptance * length + 1e-9)  # 0.7 * 10 is not quite 7
    place = min(max(number - 1, 0), length - 1)
    return queue.sort().values[place]


def judge(losses: Tensor, limit: Tensor, is_box: Tensor) -> Tensor:
    """Call a label noisy where its loss exceeds T: L > T, strictly.

    Takes losses and is_box [B, A] and a limit that broadcasts to them. Returns [B, A].
    """
    return is_box & (losses > limit)


def judge_one_by_one(
    queue: Tensor, losses: Tensor, is_box: Tensor, acceptance: float
) -> tuple[Tensor, Tensor]:
    """Find the T of every object in the literal order: judge one, push it, go on to the next.

    Takes queue [N], losses [B, A] and is_box [B, A], in the order of images and, within them, of
    annotations. Returns the thresholds [B, A] and the queue after the last object. Each verdict
    depends on the one before, so this is a loop; `threshold` and `push` serve whole batches.
    """
    limits = []
    for loss, is_real in zip(losses.reshape(-1, 1), is_box.reshape(-1, 1), strict=True):
        limits.append(threshold(queue, acceptance))
        queue = push(queue, loss, is_real)
    if not limits:
        return torch.zeros_like(losses), queue
    return torch.stack(limits).reshape(losses.shape), queue
