"""The likelihood of residuals between annotated and detected edges, by noise and detector's error.

See `boxes` for the model. Residuals are counted in bins, so that a fit costs the same for any
number of boxes.
"""

from functools import cache

import numpy as np
from scipy.special import ndtr

from boxmend.data.box_noise_model import BOX_NOISE_MODEL as SHARED
from boxmend.data.types import Floats, Mask

NOISES: Floats = np.array(SHARED.noises_sides)  # N
SCALES: Floats = np.geomspace(0.01, 0.2, 60)  # of the detector's error f, in shares of the side


def count_residuals(found: Floats, is_counted: Mask) -> Floats:
    """Count absolute residuals in bins [bins]; a side or more is a mismatch and left out."""
    sizes = np.abs(found[is_counted])
    counts, _ = np.histogram(sizes, SHARED.num_bins, (0, SHARED.num_bins * SHARED.bin_width_sides))
    return counts.astype(np.float64)


def log_likelihood(counts: Floats, narrow: float, stray: float) -> Floats:
    """The log-likelihood of every N and scale in every stratum; [N, S, strata]."""
    shapes = _shapes()  # [2, N, S, bins]
    errors = narrow * shapes[0] + (1 - narrow) * shapes[1]
    density = (1 - stray) * errors + stray * SHARED.bin_width_sides
    found: Floats = np.log(np.maximum(density, 1e-12)) @ counts.T / SHARED.edges_per_box
    return found


@cache
def _shapes() -> Floats:
    """Probabilities of the bins for narrow and wide errors, N and scale; [2, N, S, bins]."""
    edges = np.linspace(0, SHARED.num_bins * SHARED.bin_width_sides, SHARED.num_bins + 1)
    noises, scales = NOISES[:, None, None], SCALES[:, None]
    both = [_distribution(edges, noises, wide * scales) for wide in (1.0, SHARED.wide_factor)]
    shapes: Floats = 2 * np.diff(np.stack(both), axis=-1)  # both signs
    return shapes


def _distribution(edges: Floats, noises: Floats, scales: Floats) -> Floats:
    """P(U(-N, N) + normal < x): the mean of the normal distribution over a window of 2 N."""
    width = np.maximum(noises, 1e-3)  # narrower than a bin: as good as none
    upper, lower = _ramp((edges + width) / scales), _ramp((edges - width) / scales)
    chances: Floats = scales / (2 * width) * (upper - lower)
    return chances


def _ramp(places: Floats) -> Floats:
    """The integral of the standard normal distribution function: z Phi(z) + phi(z)."""
    ramp: Floats = places * ndtr(places) + np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    return ramp


def noise_interval(chances: Floats) -> tuple[float, float]:
    """The middle 95 % of N, to the outer edges of its cells."""
    half = float(NOISES[1]) / 2
    below = np.cumsum(chances)
    first, last = int(np.argmax(below > 0.025)), int(np.argmax(below >= 0.975))
    return max(float(NOISES[first]) - half, 0.0), float(NOISES[last]) + half
