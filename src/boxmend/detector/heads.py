"""Second stages of several heads, which predict as one by their mean.

torchvision's module calls `box_predictor(box_head(pooled))`; what stands here takes the place of
the predictor, or of both, so that all that detects works as with one head. Methods that train the
heads apart ask for `each`.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Output = tuple[Tensor, Tensor]
"""Logits [n, 1 + C] and deltas [n, (1 + C) * 4]."""


class WholeHeads(nn.Module):
    """Heads with layers of their own throughout, on the pooled features."""

    def __init__(self, make_head: Callable[[], nn.Module], number: int):
        super().__init__()
        self.heads = nn.ModuleList(make_head() for _ in range(number))

    def each(self, pooled: Tensor) -> list[Output]:
        """Compute the outputs of every head."""
        return [head(pooled) for head in self.heads]

    def forward(self, pooled: Tensor) -> Output:
        """Compute the mean of all heads."""
        return averaged(self.each(pooled))


class SeveralClassifiers(nn.Module):
    """Classifiers beside the one of a predictor, whose regression serves all, on its features."""

    def __init__(self, predictor: nn.Module, in_channels: int, num_columns: int, number: int):
        super().__init__()
        self.first = predictor
        self.more = nn.ModuleList(nn.Linear(in_channels, num_columns) for _ in range(number - 1))

    def each(self, features: Tensor, shares: Sequence[float] = ()) -> list[Output]:
        """Compute the logits of every classifier, each with the deltas of the one regression.

        `shares` tell how much of each classifier's gradient goes on into the features, where that
        is not all of it; that of the regression does.
        """
        logits, deltas = self.first(features)
        if not shares:
            return [(logits, deltas), *((one(features), deltas) for one in self.more)]
        first, *others = (dampened(features, share) for share in shares)
        pairs = zip(self.more, others, strict=True)
        return [(self.first(first)[0], deltas), *((one(given), deltas) for one, given in pairs)]

    def forward(self, features: Tensor) -> Output:
        """Compute the mean of all classifiers, and the regression."""
        return averaged(self.each(features))


class Spread(nn.Module):
    """A predictor with one more output: how unsure each side of a box is."""

    def __init__(self, predictor: nn.Module, in_channels: int):
        super().__init__()
        self.first = predictor
        self.spread = nn.Linear(in_channels, 4)

    def forward(self, features: Tensor) -> Output:
        """Compute what the predictor does."""
        found: Output = self.first(features)
        return found

    def with_spread(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute logits, deltas and the raw spread [n, 4]."""
        return (*self.forward(features), self.spread(features))


def dampened(tensor: Tensor, share: float) -> Tensor:
    """Give a tensor, to the last bit, through which only a share of the gradient goes back."""
    still = tensor.detach()
    return still + share * (tensor - still)


def averaged(outputs: Sequence[Output]) -> Output:
    """Average probabilities and deltas; the logits are the logarithms of mean probabilities."""
    logs = torch.stack([logits.float().log_softmax(-1) for logits, _ in outputs])
    logits = logs.logsumexp(0) - math.log(len(outputs))
    return logits, torch.stack([deltas.float() for _, deltas in outputs]).mean(0)
