"""Sampling of a fixed number of rows from each image, positives up to a share."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Sample(NamedTuple):
    """The sampled rows of each image, positives first, padded to one length."""

    rows: Tensor  # [B, S] indices into the N rows; any valid index in padding
    is_sampled: Tensor  # [B, S]
    is_positive: Tensor  # [B, S]


def sample(
    is_positive: Tensor,
    is_negative: Tensor,
    keys: Tensor,
    *,
    number: int,
    positive_share: float,
) -> Sample:
    """Sample `number` of N rows: positives up to a share of them, and negatives for the rest.

    Takes masks [B, N] and random keys [B, N], uniform in [0, 1); rows with a higher key come first.
    Of p positives and n negatives it samples P = min(p, int(number * positive_share)) and
    min(n, number - P).
    """
    total = keys.shape[1]
    most = min(int(number * positive_share), total)
    best, index = torch.where(is_positive, keys, -1).topk(most, dim=1)  # [B, most]
    chosen = torch.zeros_like(is_positive).scatter(1, index, best >= 0)
    # Chosen positives rank above all negatives, and these above everything else.
    rank = torch.where(chosen, keys + 1, torch.where(is_negative, keys, -1))
    best, index = rank.topk(min(number, total), dim=1)  # [B, S]
    is_sampled = best >= 0
    is_chosen = chosen.gather(1, index)
    missing = number - index.shape[1]
    return Sample(
        F.pad(index, (0, missing)), F.pad(is_sampled, (0, missing)), F.pad(is_chosen, (0, missing))
    )
