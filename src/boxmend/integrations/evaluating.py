"""Evaluation mode of a model for the time of a prediction."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluate_mode(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode, and restore the mode of each of its parts afterwards."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, is_training in modes:
            part.training = is_training
