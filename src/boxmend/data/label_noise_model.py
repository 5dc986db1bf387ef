"""The shared constants of the two implementations of the label-noise model.

The model: the true class of an annotation has the distribution pi(c) ~ p(c)^tau, and class c is
annotated as y with probability T[c, y]. `boxmend.methods` fits it in torch during its trainings,
`boxmend.repair.mender` in NumPy inside any other. Constants that only one of them uses are there.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class LabelNoiseModel:
    """The constants of the fits, of the use of a prescreen, and of lost classes."""

    max_rate: float = 0.95
    tau_range: tuple[float, float] = (0.1, 10.0)
    prior_annotations: float = 4.0  # pseudo-annotations that decide where annotations are few
    prior_annotations_per_class: float = 10.0  # the same for each row of a full matrix
    num_alternations: int = 3  # fits of matrix and tau in turn; both converge within three
    em_rounds_per_alternation: int = 40
    min_entry: float = 1e-6  # initial T[c, y]; an entry that starts at 0 would stay 0
    interval_drop: float = 1.92  # half of the 95 % quantile of chi squared, one degree of freedom
    negligible_rate: float = 0.02  # an estimate below it counts as no noise
    prescreen_max_interval: float = 0.1  # width; with a wider one the prescreen is not used
    prescreen_max_doubt: float = 0.6  # expected errors after relabelling, over the rate
    lost_class_max_share: float = 0.5  # found share of a class over the share that T implies
    min_eigenvalue: float = 0.1  # of T; below it labels carry almost no information
    min_class_annotations: int = 10  # with fewer no class counts as lost


LABEL_NOISE_MODEL = LabelNoiseModel()
