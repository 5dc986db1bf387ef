"""Second stages with several heads, which predict by their mean.

torchvision's module calls `box_predictor(box_head(pooled))`. The modules here replace the
predictor, or both, so that detection works as with one head. Methods that train the heads
separately call `each`.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Output = tuple[Tensor, Tensor]
"""Logits [n, 1 + C] and deltas [n, (1 + C) * 4]."""


class WholeHeads(nn.Module):
    """Complete heads without shared layers, on the pooled features."""

    def __init__(self, make_head: Callable[[], nn.Module], number: int):
        super().__init__()
        self.heads = nn.ModuleList(make_head() for _ in range(number))

    def each(self, pooled: Tensor) -> list[Output]:
        """Compute the outputs of every head."""
        return [head(pooled) for head in self.heads]

    def forward(self, pooled: Tensor) -> Output:
        """Compute the mean of all heads."""
        return average_outputs(self.each(pooled))


class SeveralClassifiers(nn.Module):
    """A predictor with further classifiers on its features, and one regression for all."""

    def __init__(self, predictor: nn.Module, in_channels: int, num_columns: int, number: int):
        super().__init__()
        self.first = predictor
        self.more = nn.ModuleList(nn.Linear(in_channels, num_columns) for _ in range(number - 1))

    def each(self, features: Tensor, shares: Sequence[float] = ()) -> list[Output]:
        """Compute the logits of every classifier, each with the deltas of the shared regression.

        `shares` are the shares of each classifier's gradient that reach the features; without them
        all of it does. The regression's gradient always does.
        """
        logits, deltas = self.first(features)
        if not shares:
            return [(logits, deltas), *((classifier(features), deltas) for classifier in self.more)]
        first, *others = (dampen(features, share) for share in shares)
        pairs = zip(self.more, others, strict=True)
        return [
            (self.first(first)[0], deltas),
            *((classifier(dampened), deltas) for classifier, dampened in pairs),
        ]

    def forward(self, features: Tensor) -> Output:
        """Compute the mean of all classifiers, and the regression."""
        return average_outputs(self.each(features))


class Spread(nn.Module):
    """A predictor with a further output, the uncertainty of each side of a box."""

    def __init__(self, predictor: nn.Module, in_channels: int):
        super().__init__()
        self.first = predictor
        self.spread = nn.Linear(in_channels, 4)

    def forward(self, features: Tensor) -> Output:
        """Compute the predictor's output."""
        output: Output = self.first(features)
        return output

    def with_spread(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute logits, deltas and the raw spread [n, 4]."""
        return (*self.forward(features), self.spread(features))


def dampen(tensor: Tensor, share: float) -> Tensor:
    """Return an equal tensor, to the last bit, that passes only a share of the gradient back."""
    constant = tensor.detach()
    return constant + share * (tensor - constant)


def average_outputs(outputs: Sequence[Output]) -> Output:
    """Average probabilities and deltas; the logits are the logarithms of the mean probabilities."""
    logs = torch.stack([logits.float().log_softmax(-1) for logits, _ in outputs])
    logits = logs.logsumexp(0) - math.log(len(outputs))
    return logits, torch.stack([deltas.float() for _, deltas in outputs]).mean(0)
