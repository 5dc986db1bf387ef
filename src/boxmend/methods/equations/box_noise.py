"""Estimating box noise from how annotated and predicted boxes agree, and what follows from it.

An annotated edge is a = t + e and a predicted one p = t + d, in shares of the side: e is uniform
within -N .. N, and d is the detector's own error, of unknown scale. Only a - p is seen, but the
two have different shapes: a detector's errors pile up at zero and have long tails, uniform noise
has a flat top and falls off at N. So N and the scale of d are told apart by fitting the shape.

The scale of d is bounded and most of it is narrow: left free, it would take the shape of the
noise itself. On clean VOC boxes the narrow part was .59 to .65 of it after every pass from the
third to the twelfth, with a scale from .09 down to .04.

Predictions are chosen by their closeness to the annotated box, so they follow it a little, by the
share `pull`, and a - p shows only (1 - pull) of e. Moving boxes on purpose shows how large it is.

The residuals of a pass are gathered as counts in bins, which cost nothing to keep and need no
copy to the CPU; the fit is done once a pass.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.detector.boxes import side_lengths

BINS = SHARED.num_bins
BIN_WIDTH = SHARED.bin_width_sides
NOISES = SHARED.noises_sides  # N
SCALES = [0.01 * 15 ** (number / 119) for number in range(120)]  # of d, 0.01 to 0.15 by 2.3 %
NARROWS = SHARED.narrow_shares  # of d, that have this scale
WIDE = SHARED.wide_factor  # times as wide are the others
STRAYS = [0.0, 0.01, 0.03, 0.08]  # shares of residuals of any size
MOST_PULL = SHARED.max_pull
FEW_EDGES = 400  # of fewer nothing is concluded

NARROW = 0.65  # of d has the narrow scale where that is not fitted
TYPICAL_ERROR = 0.13  # standard deviation of d where it was not measured
TRULY_AT_BORDER = 0.5  # of the edges annotated there, on VOC at 40 % noise: .45 to .51
MANY_AT_BORDER = 0.6  # by `border_share`: .77 to .94 on VOC, .31 to .48 where no edge ends there
STRAY_DENSITY = 1e-6  # of d at any distance: who is that far away speaks of another object

_SPIKE = SHARED.no_noise_log_odds
_EDGES_PER_BOX = SHARED.edges_per_box


class BoxNoise(NamedTuple):
    """An estimate of the box noise, in shares of the side."""

    noise: float  # N
    error: float  # the detector's own: the standard deviation of d
    low: float = 0.0  # the bounds of N, at 95 %
    high: float = 0.0


def edge_residuals(
    annotated: Tensor, predicted: Tensor, image_sizes: Tensor, border: float = SHARED.border_sides
) -> tuple[Tensor, Tensor]:
    """Measure a - p for the four edges, in shares of the predicted sides.

    Takes annotated and predicted [B, A, 4] and image_sizes [B, 2] as (height, width). Returns
    residuals [B, A, 4] and is_free [B, A, 4], false for edges predicted within `border` sides of
    the image's border, where clipping leaves little of the noise.
    """
    sides = side_lengths(predicted)  # [B, A, 2]
    sides = torch.cat([sides, sides], dim=-1).clamp(min=1e-6)
    return (annotated - predicted) / sides, _room(predicted, image_sizes) > border * sides


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


def pull_sums(shifts: Tensor, answers: Tensor, is_counted: Tensor) -> Tensor:
    """Sum shift * answer and shift^2, whose ratio is how far answers follow; [2], to be summed.

    Takes shifts of annotated edges, the shifts of the predicted edges that follow from them, and
    a mask, all of one shape. Answers beyond one shift are jumps to another object: cut to it.
    """
    limit = shifts.abs()
    followed = torch.minimum(torch.maximum(answers.nan_to_num(), -limit), limit)
    products = torch.stack([shifts * followed, shifts**2], dim=-1).double()
    return torch.where(is_counted[..., None], products, 0).reshape(-1, 2).sum(0)


def fit_box_noise(counts: Tensor, pull: Tensor | None = None) -> BoxNoise:
    """Fit N and the scale of d to counted residuals [BINS]; `pull` are sums by `pull_sums`.

    The density is that of U(-N, N) + d, where d is normal, a part of it WIDE times as wide, and
    some residuals are strays of any size. The estimate is the mean over N and the shapes of d,
    weighted by likelihood, with a prior for N = 0; N is then divided by (1 - pull). Of too few
    edges nothing is concluded: N is 0.
    """
    counts = counts.double().cpu()
    if float(counts.sum()) < FEW_EDGES:
        return BoxNoise(0.0, 0.0, 0.0, NOISES[-1])
    fit = torch.stack([_fit(counts, share) for share in NARROWS])  # [narrow, N, S]
    fit[:, 0] += _SPIKE
    weight = fit.flatten().softmax(0).reshape(fit.shape)
    chances = weight.sum((0, 2))  # of every N
    noise = float((chances * torch.tensor(NOISES).double()).sum())
    narrow = torch.tensor(NARROWS).double()[:, None]
    variances = torch.tensor(SCALES).double() ** 2 * (narrow + (1 - narrow) * WIDE**2)
    error = math.sqrt(float((weight.sum(1) * variances).sum()))
    low, high = _interval(chances)
    shown = 1 - _pull(pull)
    return BoxNoise(noise / shown, error, low / shown, high / shown)


def raw_box_share(estimate: BoxNoise, least: float = 0.4, off_above: float = 0.8) -> float:
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


def expected_boxes(
    boxes: Tensor, voted: Tensor, noise: float | Tensor, error: float | Tensor
) -> Tensor:
    """Put each edge where the annotated and the voted one together let it be expected.

    The annotated edge is off by e, uniform within -N .. N, so t = a - e; the vote p = t + d is
    off by d, normal, a part of it WIDE times as wide. Given x = p - a, u = t - a has the density
    of d at x - u within -N .. N, and its mean is what a moves by. Where the two nearly agree the
    edge goes a part of the way; where they differ by more than N can explain, the vote is wrong
    too, and the edge ends at N or, farther out, stays. Shares of the voted side, as they were
    measured: the vote errs less than the annotation.

    Takes boxes and voted [..., 4], N and the standard deviation of d. Returns [..., 4].
    """
    sides = side_lengths(voted).clamp(min=1)
    sides = torch.cat([sides, sides], dim=-1)
    apart = (voted - boxes) / sides
    return boxes + sides * _expected_shift(apart.double(), noise, error).to(boxes.dtype)


def count_at_border(annotated: Tensor, image_sizes: Tensor, is_box: Tensor) -> Tensor:
    """Count the edges at the image's border, then those inside by their distance from it.

    Takes annotated [B, A, 4], image_sizes [B, 2] and is_box [B, A]. Distances are in bins, in
    shares of the annotated side. Returns [1 + BINS], to be summed.
    """
    sides = side_lengths(annotated).clamp(min=1)
    shares = _room(annotated, image_sizes) / torch.cat([sides, sides], dim=-1)
    is_there = _at_border(annotated, image_sizes)
    number = (is_there & is_box[..., None]).sum().double()
    return torch.cat([number[None], count_residuals(shares, ~is_there & is_box[..., None])])


def border_share(counts: Tensor, noise: float) -> float:
    """Estimate how many of the edges annotated at the border truly end there.

    Of those, noise within N moves one half out, which the border cuts off, and the other half to
    within N of it. Of edges spread evenly it cuts off N / 4 (those inside by u, with the chance
    (N - u) / 2 N) and leaves 3 N / 4 within N. So with c at the border and n within N of it,
    3 c - n edges end there, half of which are among the c: the share is (3 - n / c) / 2.

    Takes counts [1 + BINS] by `count_at_border`. Edges are not that evenly spread, and sides are
    known with their noise: on datasets whose truth is known the share came out .2 to .5 too
    high. So it tells many from few, and no more. Without edges it is 0.
    """
    counts = counts.double().cpu()
    if float(counts[0]) == 0:
        return 0.0
    within = float(counts[1 : 1 + round(noise / BIN_WIDTH)].sum())
    return min(max((3 - within / float(counts[0])) / 2, 0.0), 1.0)


def border_hold_share(counts: Tensor, noise: float) -> float:
    """Choose the share of `held_at_border`: a half where many edges truly end there, else 0."""
    return TRULY_AT_BORDER if border_share(counts, noise) > MANY_AT_BORDER else 0.0


def hold_at_border(
    boxes: Tensor, annotated: Tensor, image_sizes: Tensor, held: float | Tensor
) -> Tensor:
    """Hold edges that are annotated at the image's border back, by the share `held` of their way.

    An edge is annotated there because the object ends there, or because noise moved it out and
    the border cut it off. The vote, which sees borders too far inside, hardly tells one from the
    other, so an edge belongs between both.

    Takes mended boxes and annotated ones [B, A, 4], image_sizes [B, 2] as (height, width).
    Returns [B, A, 4].
    """
    between = boxes + (annotated - boxes) * held
    return torch.where(_at_border(annotated, image_sizes), between, boxes)


def extend_past_border(
    boxes: Tensor, annotated: Tensor, image_sizes: Tensor, outside: float | Tensor
) -> Tensor:
    """Put edges that the image's border cut off where they were in the mean.

    Noise moves edges of an object at the border in and out alike, but annotations end at the
    border. So the mean of such edges lies inside, and who learns it draws boxes too small. An
    edge annotated within a pixel of the border is taken to have been `outside` of it, in shares
    of the annotated side: N / 2 for noise within N, times the share of the annotated box.

    Takes boxes and annotated [B, A, 4], image_sizes [B, 2] as (height, width). Returns [B, A, 4].
    """
    away = side_lengths(annotated) * outside
    away = torch.cat([-away, away], dim=-1)
    return boxes + torch.where(_at_border(annotated, image_sizes), away, 0)


def _at_border(annotated: Tensor, image_sizes: Tensor) -> Tensor:
    """Whether edges lie within a pixel of the border; [B, A, 4]."""
    return _room(annotated, image_sizes) <= 1


def _room(boxes: Tensor, image_sizes: Tensor) -> Tensor:
    """How far edges lie inside of the border; [B, A, 4]."""
    limits = image_sizes.flip(-1)[:, None].to(boxes.dtype)  # (width, height), [B, 1, 2]
    return torch.cat([boxes[..., :2], limits - boxes[..., 2:]], dim=-1)


def _expected_shift(apart: Tensor, noise: float | Tensor, error: float | Tensor) -> Tensor:
    """The mean of u under the normal parts of d at `apart` - u, u within -N .. N; same shape."""
    width = torch.as_tensor(noise, dtype=torch.float64, device=apart.device).clamp(min=1e-3)
    narrow = error / math.sqrt(NARROW + (1 - NARROW) * WIDE**2)
    size = apart.abs()  # tails of the normal distribution are exact on one side alone
    chance = 2 * width * STRAY_DENSITY
    moved = torch.zeros_like(size)
    for share, scale in ((NARROW, narrow), (1 - NARROW, WIDE * narrow)):
        near, far = (size - width) / scale, (size + width) / scale
        part = torch.special.ndtr(-near) - torch.special.ndtr(-far)
        chance = chance + share * part
        moved = moved + share * (size * part - scale * (_bell(near) - _bell(far)))
    return apart.sign() * (moved / chance).clamp(min=0)


def _pull(sums: Tensor | None) -> float:
    if sums is None or float(sums[1]) == 0:
        return 0.0
    return min(max(float(sums[0] / sums[1]), 0.0), MOST_PULL)


def _interval(chances: Tensor) -> tuple[float, float]:
    """The middle 95 % of N, to the outer edges of its cells."""
    half = (NOISES[1] - NOISES[0]) / 2
    below = chances.cumsum(0)
    first = int((below > 0.025).nonzero()[0])
    last = int((below >= 0.975).nonzero()[0])
    return max(NOISES[first] - half, 0.0), NOISES[last] + half


def _fit(counts: Tensor, narrow: float) -> Tensor:
    """The log-likelihood of every N and scale with the best share of strays; [N, S]."""
    shapes = _shapes()  # [2, N, S, BINS]
    errors = narrow * shapes[0] + (1 - narrow) * shapes[1]
    densities = [((1 - share) * errors + share * BIN_WIDTH).clamp(min=1e-12) for share in STRAYS]
    return torch.stack([density.log() @ counts for density in densities]).amax(0) / _EDGES_PER_BOX


@cache
def _shapes() -> Tensor:
    """Probabilities of the bins for narrow and wide errors, N and scale; [2, N, S, BINS]."""
    edges = torch.arange(BINS + 1).double() * BIN_WIDTH
    noises = torch.tensor(NOISES).double()[:, None, None]
    scales = torch.tensor(SCALES).double()[:, None]
    both = [_distribution(edges, noises, factor * scales) for factor in (1, WIDE)]
    return 2 * torch.stack(both).diff(dim=-1)  # both signs


def _distribution(edges: Tensor, noises: Tensor, scales: Tensor) -> Tensor:
    """P(U(-N, N) + normal < x): the mean of the normal distribution over a window of 2 N."""
    width = noises.clamp(min=1e-3)  # narrower than a bin: as good as none
    upper, lower = (edges + width) / scales, (edges - width) / scales
    return scales / (2 * width) * (_ramp(upper) - _ramp(lower))


def _ramp(places: Tensor) -> Tensor:
    """The integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    ramp: Tensor = places * torch.special.ndtr(places) + _bell(places)
    return ramp


def _bell(places: Tensor) -> Tensor:
    """The density of the standard normal distribution."""
    return torch.exp(-(places**2) / 2) / math.sqrt(2 * math.pi)
