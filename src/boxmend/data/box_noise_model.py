"""The shared constants of the two implementations of the box-noise model.

The model: an annotated edge has uniform noise within -N .. N, in shares of the side. The edge that
a detector predicts has a normally distributed error; a part of these errors is wider. The module
`boxmend.methods.equations.box_noise` fits N in torch during training, `boxmend.auditing.boxes` in
NumPy afterwards. Constants that only one of them uses are in that module.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class BoxNoiseModel:
    """The constants of the model; `sides` means shares of a box's side."""

    noises_sides: tuple[float, ...] = tuple(0.02 * number for number in range(31))  # N, 0 to 0.6
    num_bins: int = 100  # of residuals
    bin_width_sides: float = 0.01  # residuals beyond the last bin, one side, are mismatches
    narrow_shares: tuple[float, ...] = (0.55, 0.7, 0.85, 1.0)  # shares of the narrow errors to try
    wide_factor: float = 2.5  # scale of the wide errors, on hard objects, over the narrow ones
    border_sides: float = 0.1  # edges nearer to the image's border show little noise
    max_pull: float = 0.5  # with a higher pull, predictions say nothing
    no_noise_log_odds: float = 6.0  # prior in favour of N = 0, so that repair needs clear evidence
    edges_per_box: int = 4  # their errors are correlated, so they count as one observation


BOX_NOISE_MODEL = BoxNoiseModel()
