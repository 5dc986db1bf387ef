"""The optimiser, its learning rate at every step, and the moving average of the weights."""

import copy
import math
from collections.abc import Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn

from boxmend.runs.settings import Optimisation

Network = TypeVar("Network", bound=nn.Module)


def build_optimizer(
    parameters: Iterable[nn.Parameter], settings: Optimisation, lr: float
) -> torch.optim.Optimizer:
    """Return the optimiser of the parameters that require gradients."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(trained, lr=lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        trained, lr=lr, momentum=settings.momentum, weight_decay=settings.weight_decay, foreach=True
    )


def learning_rate_at(step: int, num_steps: int, lr: float, settings: Optimisation) -> float:
    """Return the learning rate of a step; it depends on the step only, also in a resumed run."""
    warm = min(settings.warm_up_steps, num_steps // 10)
    if step < warm:
        return lr * (0.001 + 0.999 * step / warm)
    if settings.schedule == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(num_steps - warm, 1)))
    return lr * (0.1 if step >= settings.drop_at * num_steps else 1.0)


def copy_for_average(network: Network) -> Network:
    """Copy a network for its moving average, which `update_average` updates."""
    average = copy.deepcopy(network)
    return average.requires_grad_(False)


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, decay: float) -> None:
    """Update the moving average: average = decay * average + (1 - decay) * network."""
    targets = [value for value in average.state_dict().values() if value.is_floating_point()]
    sources = [value for value in network.state_dict().values() if value.is_floating_point()]
    torch._foreach_lerp_(targets, sources, 1 - decay)


def average_decay_at(step: int, decay: float) -> float:
    """Return the decay at a step; it starts low, so the first random weights fade quickly."""
    return min(decay, (1 + step) / (10 + step))


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale gradients to a norm of at most `max_norm`; return their norm before."""
    limit = max_norm or math.inf
    return nn.utils.clip_grad_norm_(parameters, limit, foreach=True)
