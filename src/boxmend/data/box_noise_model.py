"""The box-noise model: what its two implementations have in common.

An annotated edge is off by uniform noise within -N .. N, in shares of the side; what a detector
sees of it is off by a normal error, a part of it wider. `boxmend.methods.equations.box_noise` fits
N in torch during training, `boxmend.auditing.boxes` in NumPy after it. A constant that only one of
them has is defined there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class BoxNoiseModel:
    """Constants of the model; sides are shares of a box's side."""

    noises_sides: tuple[float, ...] = tuple(0.02 * number for number in range(31))  # N, 0 to 0.6
    num_bins: int = 100  # of residuals
    bin_width_sides: float = 0.01  # so that a residual of a whole side or more is a mismatch
    narrow_shares: tuple[float, ...] = (0.55, 0.7, 0.85, 1.0)  # of the error, that have its scale
    wide_factor: float = 2.5  # times as wide are the others, on hard objects
    border_sides: float = 0.1  # edges nearer to the image's border are clipped: little noise shows
    max_pull: float = 0.5  # what follows the annotated box more than that measures nothing
    no_noise_log_odds: float = 6.0  # in favour of N = 0: repair has to be asked for
    edges_per_box: int = 4  # whose errors go together, so that they count as one observation


BOX_NOISE_MODEL = BoxNoiseModel()
