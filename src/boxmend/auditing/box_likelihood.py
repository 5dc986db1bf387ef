"""The likelihood of residuals between annotated and detected edges.

It depends on the box noise and on the detector's error; see `boxes` for the model. Residuals are
counted in bins, so that a fit takes the same time for any number of boxes.
"""

from functools import cache

import numpy as np
from scipy.special import ndtr

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.types import Floats, Mask

NOISES_SIDES: Floats = np.array(SHARED.noises_sides)  # N
ERROR_SCALES_SIDES: Floats = np.geomspace(0.01, 0.2, 60)  # of the detector's error f


def count_residuals(residuals: Floats, is_counted: Mask) -> Floats:
    """Return the counts [bins] of absolute residuals; those beyond the last bin are left out."""
    sizes = np.abs(residuals[is_counted])
    counts, _ = np.histogram(sizes, SHARED.num_bins, (0, SHARED.num_bins * SHARED.bin_width_sides))
    return counts.astype(np.float64)


def log_likelihood(counts: Floats, narrow: float, stray: float) -> Floats:
    """Return the log-likelihood [N, S, strata] of every noise N and scale S in every stratum.

    `narrow` is the share of narrow detector errors, `stray` that of detections of other objects.
    """
    shapes = _compute_bin_probabilities()  # [2, N, S, bins]
    errors = narrow * shapes[0] + (1 - narrow) * shapes[1]
    density = (1 - stray) * errors + stray * SHARED.bin_width_sides
    log_likelihoods: Floats = np.log(np.maximum(density, 1e-12)) @ counts.T / SHARED.edges_per_box
    return log_likelihoods


@cache
def _compute_bin_probabilities() -> Floats:
    """Return the probabilities [2, N, S, bins] of bins, for narrow and for wide detector errors."""
    edges = np.linspace(0, SHARED.num_bins * SHARED.bin_width_sides, SHARED.num_bins + 1)
    noises, scales = NOISES_SIDES[:, None, None], ERROR_SCALES_SIDES[:, None]
    both = [_compute_cumulative(edges, noises, wide * scales) for wide in (1.0, SHARED.wide_factor)]
    shapes: Floats = 2 * np.diff(np.stack(both), axis=-1)  # the bins hold residuals of either sign
    return shapes


def _compute_cumulative(edges: Floats, noises: Floats, scales: Floats) -> Floats:
    """Return P(U(-N, N) + normal < x): the mean of the normal distribution over a window of 2 N."""
    width = np.maximum(noises, 1e-3)  # so narrow that it makes no difference, but not 0
    upper = _integrate_normal_cdf((edges + width) / scales)
    lower = _integrate_normal_cdf((edges - width) / scales)
    chances: Floats = scales / (2 * width) * (upper - lower)
    return chances


def _integrate_normal_cdf(z: Floats) -> Floats:
    """Return the integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    integral: Floats = z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return integral


def compute_noise_interval(chances: Floats) -> tuple[float, float]:
    """Return the central 95% interval of N, given the probabilities of its grid."""
    half = float(NOISES_SIDES[1]) / 2
    below = np.cumsum(chances)
    first, last = int(np.argmax(below > 0.025)), int(np.argmax(below >= 0.975))
    return max(float(NOISES_SIDES[first]) - half, 0.0), float(NOISES_SIDES[last]) + half
