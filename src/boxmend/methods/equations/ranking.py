"""Selection of the highest scores of masked rows, in fixed shapes and with a rule for ties."""

import torch
from torch import Tensor
from torch.nn import functional


def best(scores: Tensor, is_eligible: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the `count` highest eligible scores of each row, best first.

    Takes scores [..., P] and is_eligible [..., P]. Returns indices [..., count] and is_found [...,
    count], which is true for a leading part of each row; where it is false, the index is 0. Of
    equal scores the lower index comes first on every device, which `topk` does not guarantee.
    """
    lowest = torch.finfo(scores.dtype).min  # keeps every eligible score above padding
    ranked = torch.where(is_eligible, scores.clamp(min=lowest), -torch.inf)
    missing = max(0, count - scores.shape[-1])
    ranked = functional.pad(ranked, (0, missing), value=-torch.inf)
    places = ranked.argsort(dim=-1, descending=True, stable=True)[..., :count]
    is_found = ranked.gather(-1, places) > -torch.inf
    return torch.where(is_found, places, 0), is_found
