"""The numbers of the changed method, each with its reason."""

from dataclasses import dataclass
from typing import Literal

from boxmend.errors import UsageError
from boxmend.methods.rates import check_choice, check_share


@dataclass(frozen=True)
class MendSettings:
    """What `mend` does, one switch or number for each part."""

    label_rate: float | None = None
    """Share of wrong labels; None: estimated once a pass; 0: labels are left alone."""
    box_rate: float | None = None
    """Box noise as a share of the side; None: estimated once a pass; 0: boxes are left alone."""
    first_rate: float = 0.3
    """Label rate believed before the first estimate; a trial started there for 20 to 60 %."""
    full_matrix: bool = True
    """Estimate who is mistaken for whom where the evidence pays for it, as pair noise needs."""
    least_new: float = 0.5
    """Least weight of a new visit in the memory; 1 is no memory, 0 the mean of all visits."""
    soft_labels: bool = True
    """Train on posteriors; off: on the verdicts, and unsure annotations as `discarded` says."""
    discarded: Literal["background", "ignore", "rpn_only"] = "ignore"
    """Unsure annotations without soft labels: an object is there, so it is no background."""
    forward_warm_up: bool = True
    """Correct the loss of warm-up for the label noise; off: plain labels, learnt by heart."""
    gamma: float = 0.1
    """Weight of the extents in Eq. 15, as published."""
    fit_threshold: float = 0.9
    """Of Eq. 18, as published; b* is where the evidence is taken."""
    num_proposals: int = 100
    """Proposals of highest objectness that match and vote, as published."""
    num_candidates: int = 10
    """Most candidates of an annotation, as published; the first one is p*."""
    alpha: float | None = None
    """Weight of p* in b*; None: the box noise within 0.2 .. 0.4 as published, 0 without repair."""
    boxes: Literal["vote", "average"] = "vote"
    """Final boxes by the vote, or by Eq. 14: in a trial 54.1 and 51.9 AP50 at 40/40."""
    keep: float | None = None
    """Share of the raw box in the vote; None: from the box noise, 1 before the first estimate."""
    least_keep: float = 0.4
    """Least share by the estimate: targets of the model's own output confirm themselves."""
    off_above: float = 0.8
    """Estimated share above which boxes are left alone: nothing to gain on clean ones."""
    near: float = 0.3
    """IoU with the raw box above which a proposal's regression votes: others mean other objects."""
    alike: float = 0.6
    """IoU with the leading voter above which the votes are averaged: one object, one cluster."""
    residual_score: float = 0.1
    """Least score of some voter for the box noise to be measured: below, nothing was seen."""

    def __post_init__(self) -> None:
        for name in (
            *("label_rate", "box_rate", "first_rate", "least_new", "alpha", "keep", "least_keep"),
            *("off_above", "near", "alike", "residual_score"),
        ):
            check_share(name, getattr(self, name))
        check_choice("discarded", self.discarded, ("background", "ignore", "rpn_only"))
        check_choice("boxes", self.boxes, ("vote", "average"))
        if not self.gamma >= 0:
            raise UsageError(f"gamma is {self.gamma!r}; expected a weight from 0 on, like 0.1")
        for name in ("num_proposals", "num_candidates"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)!r}; expected 1 or more")
