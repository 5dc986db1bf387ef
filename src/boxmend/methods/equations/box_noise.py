"""Estimation of the box noise N from residuals, and the box repair that N implies.

Model: with t the true edge, an annotated edge is a = t + e and a predicted edge is p = t + d, in
shares of the side. The annotation error e is uniform within -N .. N; d is the detector's own error
of unknown scale. Only the residual a - p is observed. Its shape separates the two: detector errors
peak at zero and have long tails, uniform noise has a flat top and drops at N.

d is a mixture of a narrow and a wide normal distribution. Its scale is bounded, because a free
scale would absorb the noise. On clean VOC boxes the narrow component had a share of 0.59 to 0.65
after each epoch from the third to the twelfth, with a scale that fell from 0.09 to 0.04.

The annotation error may also be normally distributed. N is then that of uniform noise with the same
standard deviation, N / sqrt(3), so both shapes share one grid of N.

A prediction is selected by its overlap with the annotated box, so it follows that box by a small
share, the pull, and a - p shows only (1 - pull) of e. Shifting boxes on purpose measures the pull.

The residuals of an epoch are kept as counts in bins, which stay on the device. The fit runs once an
epoch.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.detector.boxes import side_lengths

NUM_BINS = SHARED.num_bins

Shape = Literal["uniform", "gaussian", "auto"]
"""The shape of the annotation error; auto is the one that explains the residuals better."""


@dataclass(frozen=True)
class BoxNoiseConstants:
    """The constants of the fit and the repair beside `BOX_NOISE_MODEL`; in shares of the side."""

    # Scales of d: 0.01 to 0.15 in steps of 2.3 %.
    scales_sides: tuple[float, ...] = tuple(0.01 * 15 ** (number / 119) for number in range(120))
    stray_shares: tuple[float, ...] = (0.0, 0.01, 0.03, 0.08)  # of residuals of any size
    min_edges: int = 400  # with fewer residuals the estimate is N = 0
    narrow_share: float = 0.65  # of d, where it is not fitted
    typical_error_sides: float = 0.13  # standard deviation of d, where it was not measured
    # Density of d at any distance: a vote that far away belongs to another object.
    stray_density: float = 1e-6
    # Log odds from which on noise counts as Gaussian. Trainings on the embedded dataset reached 9.8
    # and 9.5 under Gaussian noise of 0.25, and 3.6 and 6.6 under uniform noise of 0.4.
    min_gaussian_log_odds: float = 7.0
    min_noise_sides: float = 1e-3  # instead of N = 0, by which the densities are divided
    min_density: float = 1e-12  # of a bin, whose logarithm is taken
    interval_probabilities: tuple[float, float] = (0.025, 0.975)  # of N below `low` and `high`
    at_border_pixels: float = 1.0  # an edge that near to the border counts as at the border
    # Share of the edges annotated at the border that truly end there: 0.45 to 0.51 on VOC at 40 %.
    border_hold_share: float = 0.5
    # `border_share` is 0.77 to 0.94 on VOC, and 0.31 to 0.48 where no object reaches the border.
    min_border_share: float = 0.6


BOX_NOISE = BoxNoiseConstants()


class BoxNoise(NamedTuple):
    """An estimate of the box noise, in shares of the side."""

    noise: float  # N
    error: float  # standard deviation of d, the detector's own error
    low: float = 0.0  # 95 % interval of N
    high: float = 0.0
    is_gaussian: bool = False  # the shape; uniform noise otherwise
    gaussian_log_odds: float = 0.0  # log of the evidence for Gaussian over that for uniform noise


def edge_residuals(
    annotated: Tensor, predicted: Tensor, image_sizes: Tensor, border: float = SHARED.border_sides
) -> tuple[Tensor, Tensor]:
    """Compute the residuals a - p of the four edges, in shares of the predicted sides.

    Takes annotated and predicted [B, A, 4] and image_sizes [B, 2] as (height, width). Returns
    residuals [B, A, 4] and is_free [B, A, 4], which is false for edges predicted within `border`
    sides of the image's border, where clipping hides most of the noise.
    """
    sides = side_lengths(predicted)  # [B, A, 2]
    sides = torch.cat([sides, sides], dim=-1).clamp(min=1e-6)
    is_free = _distance_to_border(predicted, image_sizes) > border * sides
    return (annotated - predicted) / sides, is_free


def count_residuals(residuals: Tensor, is_counted: Tensor) -> Tensor:
    """Count absolute residuals in bins. Takes two tensors of one shape. Returns [NUM_BINS].

    Counts of several calls may be added up. Residuals of a whole side or more are left out,
    because the two boxes then belong to different objects.
    """
    sizes = torch.where(is_counted, residuals.abs(), torch.inf).reshape(-1)
    is_inside = sizes < NUM_BINS * SHARED.bin_width_sides  # false for NaN
    places = torch.where(is_inside, sizes / SHARED.bin_width_sides, NUM_BINS)
    places = places.long().clamp(max=NUM_BINS)
    counts = torch.zeros(NUM_BINS + 1, dtype=torch.float64, device=residuals.device)
    ones = torch.ones_like(places, dtype=torch.float64)
    return counts.scatter_add(0, places, ones)[:NUM_BINS]  # whole numbers: exact in any order


def pull_sums(shifts: Tensor, responses: Tensor, is_counted: Tensor) -> Tensor:
    """Sum shift * response and shift^2; their ratio is the pull. Returns [2].

    Takes the shifts of annotated edges, the resulting shifts of predicted edges, and a mask, all of
    one shape. A response beyond the shift is a jump to another object and is clipped to the shift.
    Sums of several calls may be added up.
    """
    limit = shifts.abs()
    followed = torch.minimum(torch.maximum(responses.nan_to_num(), -limit), limit)
    products = torch.stack([shifts * followed, shifts**2], dim=-1).double()
    return torch.where(is_counted[..., None], products, 0).reshape(-1, 2).sum(0)


def fit_box_noise(counts: Tensor, pull: Tensor | None = None, shape: Shape = "uniform") -> BoxNoise:
    """Fit N and the scale of d to counts [NUM_BINS]; `pull` holds the sums of `pull_sums`.

    The density of a residual is that of e + d, plus a share of stray residuals of any size. The
    estimate is the posterior mean over a grid of N and shapes of d, with prior odds for N = 0; N is
    then divided by (1 - pull). With fewer than `min_edges` residuals N is 0. "auto" is Gaussian
    only if that is clearly more likely, because a detector's errors with long tails make uniform
    noise look Gaussian.
    """
    noises, narrow_shares = SHARED.noises_sides, SHARED.narrow_shares
    counts = counts.double().cpu()
    if float(counts.sum()) < BOX_NOISE.min_edges:
        return BoxNoise(0.0, 0.0, 0.0, noises[-1], is_gaussian=shape == "gaussian")
    fits = {is_gaussian: _fit_grid(counts, is_gaussian) for is_gaussian in _SHAPES[shape]}
    evidence = {is_gaussian: float(fit.logsumexp((0, 1, 2))) for is_gaussian, fit in fits.items()}
    log_odds = evidence[True] - evidence[False] if len(fits) > 1 else 0.0
    is_gaussian = shape == "gaussian" or log_odds > BOX_NOISE.min_gaussian_log_odds
    fit = fits[is_gaussian]
    weight = fit.flatten().softmax(0).reshape(fit.shape)
    probabilities = weight.sum((0, 2))  # of every N
    noise = float((probabilities * torch.tensor(noises).double()).sum())
    narrow = torch.tensor(narrow_shares).double()[:, None]
    scales = torch.tensor(BOX_NOISE.scales_sides).double()
    variances = scales**2 * (narrow + (1 - narrow) * SHARED.wide_factor**2)
    error = math.sqrt(float((weight.sum(1) * variances).sum()))
    low, high = _interval(probabilities)
    visible = 1 - _pull(pull)
    return BoxNoise(noise / visible, error, low / visible, high / visible, is_gaussian, log_odds)


def raw_box_share(estimate: BoxNoise, min_share: float = 0.4, disable_above: float = 0.8) -> float:
    """Choose the weight of the annotated box b in the repaired box.

    Inverse-variance weighting gives b the weight V_d / (V_d + N^2 / 3), with V_d the variance of
    the detector. The weight is at least `min_share`, because targets that are mostly the model's
    own output confirm themselves. Above `disable_above` there is little to gain: the weight is 1,
    which disables the repair.
    """
    variance = estimate.noise**2 / 3  # of U(-N, N)
    if variance == 0:
        return 1.0
    share = estimate.error**2 / (estimate.error**2 + variance)
    return 1.0 if share > disable_above else max(min_share, share)


def expected_boxes(
    boxes: Tensor,
    voted: Tensor,
    noise: float | Tensor,
    error: float | Tensor,
    is_gaussian: bool | Tensor = False,
) -> Tensor:
    """Move each annotated edge a to its posterior mean, given the voted edge p.

    With e uniform within -N .. N, the true edge is t = a - e and the vote is p = t + d. Given
    x = p - a, the shift u = t - a has the density of d at x - u, restricted to -N .. N; a moves by
    the mean of u. If both nearly agree, the edge moves part of the way. If they differ by more than
    N explains, the vote is wrong too: the edge moves by N or, farther out, not at all. Shifts are
    shares of the voted side, because the vote errs less than the annotation.

    With Gaussian e there is no sharp end: with s, n and w the standard deviations of e and of the
    narrow and wide part of d, an edge moves by a share of x between s^2 / (s^2 + w^2) and
    s^2 / (s^2 + n^2).

    Takes boxes and voted [..., 4], N, the standard deviation of d, and the shape of e. Returns
    [..., 4].
    """
    sides = side_lengths(voted).clamp(min=1)
    sides = torch.cat([sides, sides], dim=-1)
    difference = ((voted - boxes) / sides).double()
    shift = _expected_shift(difference, noise, error)
    if is_gaussian is not False:
        gaussian = _expected_gaussian_shift(difference, noise, error)
        shift = torch.where(torch.as_tensor(is_gaussian, device=shift.device), gaussian, shift)
    return boxes + sides * shift.to(boxes.dtype)


def mean_noise(noise: float, *, is_gaussian: bool) -> float:
    """Return the mean absolute error of an edge: N / 2, or sqrt(2 / pi) standard deviations."""
    return noise * math.sqrt(2 / (3 * math.pi)) if is_gaussian else noise / 2


def count_at_border(annotated: Tensor, image_sizes: Tensor, is_box: Tensor) -> Tensor:
    """Count the edges at the image's border, and all others by their distance from it in bins.

    Takes annotated [B, A, 4], image_sizes [B, 2] and is_box [B, A]. Distances are in shares of the
    annotated side. Returns [1 + NUM_BINS], which may be added up over calls.
    """
    sides = side_lengths(annotated).clamp(min=1)
    distances = _distance_to_border(annotated, image_sizes) / torch.cat([sides, sides], dim=-1)
    is_at_border = _is_at_border(annotated, image_sizes)
    number = (is_at_border & is_box[..., None]).sum().double()
    return torch.cat([number[None], count_residuals(distances, ~is_at_border & is_box[..., None])])


def border_share(counts: Tensor, noise: float) -> float:
    """Estimate the share of the edges annotated at the border that truly end there.

    Noise moves half of the edges that end at the border outwards, where the border clips them, and
    the other half to within N of it. Of edges spread evenly inside, it clips N / 4 (an edge at
    distance u with probability (N - u) / 2 N) and leaves 3 N / 4 within N. So with c edges at the
    border and n within N of it, 3 c - n edges end there, half of them among the c: the share is
    (3 - n / c) / 2.

    Takes counts [1 + NUM_BINS] of `count_at_border`. The result is 0 without edges. It only
    separates many from few: edges are not spread evenly and sides are noisy, so on datasets with
    known truth the share was 0.2 to 0.5 too high.
    """
    counts = counts.double().cpu()
    if float(counts[0]) == 0:
        return 0.0
    within = float(counts[1 : 1 + round(noise / SHARED.bin_width_sides)].sum())
    return min(max((3 - within / float(counts[0])) / 2, 0.0), 1.0)


def border_hold_share(counts: Tensor, noise: float) -> float:
    """Choose the share for `hold_at_border`: 0.5 if many edges truly end at the border, else 0."""
    has_many = border_share(counts, noise) > BOX_NOISE.min_border_share
    return BOX_NOISE.border_hold_share if has_many else 0.0


def hold_at_border(
    boxes: Tensor, annotated: Tensor, image_sizes: Tensor, share: float | Tensor
) -> Tensor:
    """Move edges that are annotated at the image's border back towards it, by `share` of the way.

    Such an edge is there because the object ends at the border, or because noise moved it outside
    and the border clipped it. The vote places both too far inside and hardly separates them, so
    the edge is put in between.

    Takes repaired and annotated boxes [B, A, 4] and image_sizes [B, 2] as (height, width). Returns
    [B, A, 4].
    """
    between = boxes + (annotated - boxes) * share
    return torch.where(_is_at_border(annotated, image_sizes), between, boxes)


def extend_past_border(
    boxes: Tensor, annotated: Tensor, image_sizes: Tensor, outside: float | Tensor
) -> Tensor:
    """Move edges that the image's border clipped to their mean position outside of the image.

    Noise moves edges at the border inwards and outwards, but annotations end at the border. The
    mean of such edges lies inside, so a detector trained on them predicts boxes that are too small.
    An edge annotated within one pixel of the border is moved outwards by `outside`, in shares of
    the annotated side: the mean noise (`mean_noise`) times the weight of the annotated box.

    Takes boxes and annotated [B, A, 4], image_sizes [B, 2] as (height, width). Returns [B, A, 4].
    """
    offsets = side_lengths(annotated) * outside
    offsets = torch.cat([-offsets, offsets], dim=-1)
    return boxes + torch.where(_is_at_border(annotated, image_sizes), offsets, 0)


def _is_at_border(annotated: Tensor, image_sizes: Tensor) -> Tensor:
    """Mark the edges within one pixel of the border; [B, A, 4]."""
    return _distance_to_border(annotated, image_sizes) <= BOX_NOISE.at_border_pixels


def _distance_to_border(boxes: Tensor, image_sizes: Tensor) -> Tensor:
    """Return how many pixels each edge lies inside the image; [B, A, 4]."""
    limits = image_sizes.flip(-1)[:, None].to(boxes.dtype)  # (width, height), [B, 1, 2]
    return torch.cat([boxes[..., :2], limits - boxes[..., 2:]], dim=-1)


def _expected_shift(difference: Tensor, noise: float | Tensor, error: float | Tensor) -> Tensor:
    """Return E[u | x] with x the difference and u within -N .. N; same shape."""
    width = torch.as_tensor(noise, dtype=torch.float64, device=difference.device)
    width = width.clamp(min=BOX_NOISE.min_noise_sides)
    size = difference.abs()  # the tails of the normal distribution are exact on one side only
    mass = 2 * width * BOX_NOISE.stray_density
    moment = torch.zeros_like(size)
    for share, scale in _error_parts(error):
        near, far = (size - width) / scale, (size + width) / scale
        part = torch.special.ndtr(-near) - torch.special.ndtr(-far)
        mass = mass + share * part
        moment = moment + share * (size * part - scale * (_normal_pdf(near) - _normal_pdf(far)))
    return difference.sign() * (moment / mass).clamp(min=0)


def _expected_gaussian_shift(
    difference: Tensor, noise: float | Tensor, error: float | Tensor
) -> Tensor:
    """Return E[u | x] with x the difference and u normal with deviation N / sqrt(3); same shape."""
    variance = torch.as_tensor(noise, dtype=torch.float64, device=difference.device) ** 2 / 3
    mass = torch.full_like(difference, BOX_NOISE.stray_density)
    moment = torch.zeros_like(difference)
    for share, scale in _error_parts(error):
        total = variance + scale**2
        part = share * _normal_pdf(difference / total.sqrt()) / total.sqrt()
        mass = mass + part
        moment = moment + part * difference * variance / total
    return moment / mass


def _error_parts(
    error: float | Tensor,
) -> tuple[tuple[float, float | Tensor], tuple[float, float | Tensor]]:
    """Return share and standard deviation of the narrow and of the wide part of d."""
    share, factor = BOX_NOISE.narrow_share, SHARED.wide_factor
    narrow = error / math.sqrt(share + (1 - share) * factor**2)
    return (share, narrow), (1 - share, factor * narrow)


def _pull(sums: Tensor | None) -> float:
    if sums is None or float(sums[1]) == 0:
        return 0.0
    return min(max(float(sums[0] / sums[1]), 0.0), SHARED.max_pull)


def _interval(probabilities: Tensor) -> tuple[float, float]:
    """Return the central 95 % interval of N, out to the edges of the grid's cells."""
    noises = SHARED.noises_sides
    half = (noises[1] - noises[0]) / 2
    at_low, at_high = BOX_NOISE.interval_probabilities
    below = probabilities.cumsum(0)
    first = int((below > at_low).nonzero()[0])
    last = int((below >= at_high).nonzero()[0])
    return max(noises[first] - half, 0.0), noises[last] + half


_SHAPES: dict[Shape, tuple[bool, ...]] = {
    "uniform": (False,),
    "gaussian": (True,),
    "auto": (False, True),
}
"""The values of `is_gaussian` to fit for each shape."""


def _fit_grid(counts: Tensor, is_gaussian: bool) -> Tensor:
    """Return the log posterior, up to a constant, of every share of narrow d, N and scale."""
    fit = torch.stack([_fit(counts, share, is_gaussian) for share in SHARED.narrow_shares])
    fit[:, 0] += SHARED.no_noise_log_odds
    return fit  # [narrow, N, S]


def _fit(counts: Tensor, narrow: float, is_gaussian: bool) -> Tensor:
    """Return the log-likelihood of every N and scale, at the best share of strays; [N, S]."""
    shapes = _shapes(is_gaussian)  # [2, N, S, NUM_BINS]
    errors = narrow * shapes[0] + (1 - narrow) * shapes[1]
    densities = [
        ((1 - share) * errors + share * SHARED.bin_width_sides).clamp(min=BOX_NOISE.min_density)
        for share in BOX_NOISE.stray_shares
    ]
    likelihoods = torch.stack([density.log() @ counts for density in densities]).amax(0)
    return likelihoods / SHARED.edges_per_box


@cache
def _shapes(is_gaussian: bool) -> Tensor:
    """Return the bin probabilities for narrow and wide d, N and scale; [2, N, S, NUM_BINS]."""
    edges = torch.arange(NUM_BINS + 1).double() * SHARED.bin_width_sides
    noises = torch.tensor(SHARED.noises_sides).double()[:, None, None]
    scales = torch.tensor(BOX_NOISE.scales_sides).double()[:, None]
    distribution = _gaussian_distribution if is_gaussian else _distribution
    both = [distribution(edges, noises, factor * scales) for factor in (1, SHARED.wide_factor)]
    return 2 * torch.stack(both).diff(dim=-1)  # both signs


def _gaussian_distribution(edges: Tensor, noises: Tensor, scales: Tensor) -> Tensor:
    """Return P(normal of deviation N / sqrt(3) + normal < x), which is normal again."""
    distribution: Tensor = torch.special.ndtr(edges / (noises**2 / 3 + scales**2).sqrt())
    return distribution


def _distribution(edges: Tensor, noises: Tensor, scales: Tensor) -> Tensor:
    """Return P(U(-N, N) + normal < x): the normal distribution averaged over a window of 2 N."""
    width = noises.clamp(min=BOX_NOISE.min_noise_sides)  # far narrower than a bin
    upper, lower = (edges + width) / scales, (edges - width) / scales
    return scales / (2 * width) * (_normal_cdf_integral(upper) - _normal_cdf_integral(lower))


def _normal_cdf_integral(z: Tensor) -> Tensor:
    """Return the integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    integral: Tensor = z * torch.special.ndtr(z) + _normal_pdf(z)
    return integral


def _normal_pdf(z: Tensor) -> Tensor:
    """Return the density of the standard normal distribution."""
    return torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
