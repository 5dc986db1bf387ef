"""Settings of a `Mender`."""

from dataclasses import dataclass
from typing import Literal

from boxmend.data.describing import describe
from boxmend.runs.settings.ranges import check_choice, check_count, check_share


@dataclass(frozen=True, repr=False)
class MenderSettings:
    """Switches and numbers of a `Mender`."""

    __repr__ = describe

    label_noise: float | Literal["auto"] = "auto"
    """Share of wrong labels, 0 to 1, if known; 0 leaves labels as they are. auto: estimated at
    every update, with an interval."""
    box_noise: float | Literal["auto"] = "auto"
    """Error of the sides as a share of the box, 0 to 1, if known; 0 leaves boxes as they are. auto:
    estimated at every update, with an interval."""
    missing: Literal["ignore", "add", "off"] = "ignore"
    """Objects without an annotation. ignore: their places are neither object nor background; add:
    they become annotations; off: their places stay background."""
    spurious: bool = True
    """Give annotations without an object the weight 0; off: all annotations keep their weight."""
    soft_labels: bool = True
    """Return posteriors as soft labels; off: soft labels are one-hot."""

    warm_up_updates: int = 2
    """Number of updates that only collect evidence: a detector that has seen the data once or twice
    is too weak to correct them."""
    max_rate_interval: float = 0.3
    """Width of the interval of the label noise, 0 to 1, up to which labels change: with a wider
    one, the detector does not tell the classes apart yet."""
    min_agreement: float = 0.3
    """Mean IoU of the annotations with their detections from which warm-up can end, 0 to 1."""

    memory_min_weight: float = 0.5
    """Minimum weight of a new opinion in the memory, 0 to 1, as in `mend`; 1 keeps no memory, 0
    averages all opinions."""
    relabel_min_posterior: float = 0.5
    """Probability above which another class replaces a label, 0 to 1."""
    prescreen_weight: float | Literal["auto"] = "auto"
    """Weight of the prescreen in the evidence, relative to that of the detections, 0 to 1; 0
    ignores it. auto: the weights of both are fitted to the labels at every update."""
    initial_label_noise: float = 0.3
    """Label noise assumed before the first estimate."""
    full_matrix: bool = True
    """Estimate a full matrix of label noise if it fits clearly better; off: symmetric noise."""
    missing_min_probability: float = 0.5
    """Probability above which an object without annotation counts, 0 to 1."""
    spurious_min_probability: float = 0.7
    """Probability above which an annotation has no object, 0 to 1."""
    min_sightings: int = 2
    """Number of updates that must agree that an annotation is spurious, or that one is missing."""

    def __post_init__(self) -> None:
        for name in ("label_noise", "box_noise", "prescreen_weight"):
            if getattr(self, name) != "auto":
                check_share(name, getattr(self, name))
        check_choice("missing", self.missing, ("ignore", "add", "off"))
        for name in (
            *("min_agreement", "max_rate_interval", "memory_min_weight", "relabel_min_posterior"),
            *("missing_min_probability", "spurious_min_probability"),
            "initial_label_noise",
        ):
            check_share(name, getattr(self, name))
        check_count("warm_up_updates", self.warm_up_updates, minimum=0)
        check_count("min_sightings", self.min_sightings)

    @property
    def mends_labels(self) -> bool:
        """Whether labels may change."""
        return self.label_noise != 0
