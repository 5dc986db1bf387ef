"""Estimating box noise from how annotated and predicted boxes agree, and what follows from it.

An annotated edge is a = t + e and a predicted one p = t + d, in shares of the side: e is uniform
within -N .. N, and d is the detector's own error, of unknown scale. Only a - p is seen, but the
two have different shapes: a detector's errors pile up at zero and have long tails, uniform noise
has a flat top and falls off at N. So N and the scale of d are told apart by fitting the shape.

The residuals of a pass are gathered as counts in bins, which cost nothing to keep and need no
copy to the CPU; the fit is done once a pass.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

BINS = 100
BIN_WIDTH = 0.01  # shares of a side; a residual of a whole side or more is a mismatch
NOISES = [0.02 * number for number in range(31)]  # N from 0 to 0.6
SCALES = [0.015 * 10 ** (number / 31) for number in range(32)]  # of d, from 0.015 to 0.15
WIDE = 2.5  # hard objects: a part of the errors is that many times as wide
FEW_EDGES = 400  # of fewer nothing is concluded

_SPIKE = 3.0  # log odds in favour of no noise at all: repair has to be asked for
_EDGES_PER_BOX = 4  # whose errors go together, so that they count as one observation


class BoxNoise(NamedTuple):
    """An estimate of the box noise, in shares of the side."""

    noise: float  # N
    error: float  # the detector's own: the standard deviation of d


def edge_residuals(
    annotated: Tensor, predicted: Tensor, image_sizes: Tensor, border: float = 0.1
) -> tuple[Tensor, Tensor]:
    """Measure a - p for the four edges, in shares of the mean of both sides.

    Takes annotated and predicted [B, A, 4] and image_sizes [B, 2] as (height, width). Returns
    residuals [B, A, 4] and is_free [B, A, 4], false for edges predicted within `border` sides of
    the image's border, where clipping leaves little of the noise.
    """
    sides = (_sides(annotated) + _sides(predicted)) / 2  # [B, A, 2]
    sides = torch.cat([sides, sides], dim=-1).clamp(min=1e-6)
    limits = image_sizes.flip(-1)[:, None].to(predicted.dtype)  # (width, height), [B, 1, 2]
    room = torch.cat([predicted[..., :2], limits - predicted[..., 2:]], dim=-1)
    return (annotated - predicted) / sides, room > border * sides


def count_residuals(residuals: Tensor, is_counted: Tensor) -> Tensor:
    """Count absolute residuals in bins. Takes two of one shape. Returns [BINS], to be summed.

    Residuals of a side or more are left out: such boxes are not of one object.
    """
    sizes = torch.where(is_counted, residuals.abs(), torch.inf).reshape(-1)
    is_inside = sizes < BINS * BIN_WIDTH  # false for NaN
    places = torch.where(is_inside, sizes / BIN_WIDTH, BINS).long().clamp(max=BINS)
    counts = torch.zeros(BINS + 1, dtype=torch.float64, device=residuals.device)
    ones = torch.ones_like(places, dtype=torch.float64)
    return counts.scatter_add(0, places, ones)[:BINS]  # whole numbers: any order adds up alike


def fit_box_noise(counts: Tensor) -> BoxNoise:
    """Fit N and the scale of d to counted residuals [BINS].

    The density is that of U(-N, N) + d, where d is normal, a part of it WIDE times as wide, and
    some residuals are strays of any size. For every N and scale the three parts are found by
    expectation-maximisation; the estimate is the mean over N and scale, weighted by likelihood,
    with a prior for N = 0. Of too few edges nothing is concluded: N is 0.
    """
    counts = counts.double().cpu()
    if float(counts.sum()) < FEW_EDGES:
        return BoxNoise(0.0, 0.0)
    shapes = _shapes()  # [3, N, S, BINS]
    parts = _fitted_parts(shapes, counts)  # [3, N, S]
    density = (parts[..., None] * shapes).sum(0)
    fit = (density.log() * counts).sum(-1) / _EDGES_PER_BOX  # [N, S]
    fit[0] += _SPIKE
    weight = fit.flatten().softmax(0).reshape(fit.shape)
    noise = float((weight * torch.tensor(NOISES).double()[:, None]).sum())
    squares = torch.tensor(SCALES).double() ** 2
    narrow, wide, _ = parts
    variance = squares * (narrow + WIDE**2 * wide) / (narrow + wide)
    return BoxNoise(noise, math.sqrt(float((weight * variance).sum())))


def keep_share(estimate: BoxNoise, least: float = 0.4, off_above: float = 0.8) -> float:
    """Choose the share of the raw box in a mended one.

    The best mean of two measurements weighs them by precision: the raw box gets
    V_d / (V_d + N^2 / 3), the detector's variance over the sum of both. It never gets less than
    `least`, since targets made mostly of the model's own output confirm themselves; and above
    `off_above` there is next to nothing to gain, so repair switches itself off: the share is 1.
    """
    variance = estimate.noise**2 / 3  # of U(-N, N)
    if variance == 0:
        return 1.0
    share = estimate.error**2 / (estimate.error**2 + variance)
    return 1.0 if share > off_above else max(least, share)


def _sides(boxes: Tensor) -> Tensor:
    return boxes[..., 2:] - boxes[..., :2]


def _fitted_parts(shapes: Tensor, counts: Tensor, rounds: int = 100) -> Tensor:
    """The parts of narrow, wide and stray residuals for every N and scale; [3, N, S]."""
    share = counts / counts.sum()
    start = torch.tensor([0.9, 0.08, 0.02]).double()[:, None, None]
    parts = start.expand(shapes.shape[:3])
    for _ in range(rounds):
        ratio = share / (parts[..., None] * shapes).sum(0)  # [N, S, BINS]
        parts = parts * (shapes * ratio).sum(-1)
    return parts


@cache
def _shapes() -> Tensor:
    """Probabilities of the bins for each part of the mixture, N and scale; [3, N, S, BINS]."""
    edges = torch.arange(BINS + 1).double() * BIN_WIDTH
    noises = torch.tensor(NOISES).double()[:, None, None]
    scales = torch.tensor(SCALES).double()[:, None]
    narrow = 2 * _distribution(edges, noises, scales).diff(dim=-1)  # both signs
    wide = 2 * _distribution(edges, noises, WIDE * scales).diff(dim=-1)
    stray = torch.full_like(narrow, BIN_WIDTH)
    return torch.stack([narrow, wide, stray]).clamp(min=1e-12)


def _distribution(edges: Tensor, noises: Tensor, scales: Tensor) -> Tensor:
    """P(U(-N, N) + normal < x): the mean of the normal distribution over a window of 2 N."""
    width = noises.clamp(min=1e-3)  # narrower than a bin: as good as none
    upper, lower = (edges + width) / scales, (edges - width) / scales
    return scales / (2 * width) * (_ramp(upper) - _ramp(lower))


def _ramp(places: Tensor) -> Tensor:
    """The integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    bell = torch.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
    ramp: Tensor = places * torch.special.ndtr(places) + bell
    return ramp
