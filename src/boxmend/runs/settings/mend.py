"""The numbers of the changed method, each with its reason."""

from dataclasses import dataclass
from typing import Literal

from boxmend.errors import UsageError
from boxmend.runs.settings.ranges import check_amount, check_choice, check_count, check_share


@dataclass(frozen=True)
class MendSettings:
    """What `mend` does, one switch or number for each part."""

    prescreen_weight: float = 0.5
    """Weight of a first look before training in the evidence, 0 to 1; 0 is none. A classifier of
    the backbone's features tells each label's odds by the labels of the other images."""
    initial_label_noise: float = 0.3
    """Label noise believed before the first estimate; a trial started there for 20 to 60 %."""
    full_matrix: bool = True
    """Estimate who is mistaken for whom where the evidence pays for it, as pair noise needs."""
    foreground_only: bool = True
    """Look at the foreground classes alone; off: a badly placed box passes for a wrong label."""
    judgement: Literal["posterior", "queue"] = "posterior"
    """Weigh the classes under the noise model, or judge by the published queue of losses."""
    temperature: float | None = None
    """tau, the exponent of the evidence, above 0; by default fitted once a pass."""
    queue_length: int = 128
    """Losses in the queue, where that judges, from 1 on, as published."""
    memory_min_weight: float = 0.5
    """Least weight of a new visit in the memory; 1 is no memory, 0 the mean of all visits."""
    soft_labels: bool = True
    """Train on posteriors; off: on the verdicts, and unsure annotations as `discarded` says."""
    discarded: Literal["background", "ignore", "rpn_only"] = "ignore"
    """Unsure annotations without soft labels: an object is there, so it is no background."""
    correct_warm_up_loss: bool = True
    """Correct the loss of warm-up for the label noise; off: plain labels, learnt by heart."""
    gamma: float = 0.1
    """Weight of the extents in Eq. 15, from 0 on, as published."""
    fit_threshold: float = 0.9
    """Of Eq. 18, as published; b* is where the evidence is taken."""
    num_proposals: int = 100
    """Proposals of highest objectness that match and vote, from 1 on, as published."""
    num_candidates: int = 10
    """Most candidates of an annotation, from 1 on, as published; the first one is p*."""
    alpha: float | None = None
    """Weight of p* in b*, 0 to 1; by default the box noise within 0.2 to 0.4 as published, 0
    without repair."""
    boxes: Literal["edges", "vote", "average"] = "edges"
    """Final boxes: each edge where vote and raw box let it be expected under the box noise; the
    two blended by `raw_box_share`; or Eq. 14."""
    raw_box_share: float | None = None
    """Share of the raw box, 0 to 1; told, it blends raw box and vote instead of `edges`. By default
    from the box noise, 1 before the first estimate: boxes stay as they are."""
    raw_box_min_share: float = 0.4
    """Least share by the estimate: targets of the model's own output confirm themselves."""
    disable_above: float = 0.8
    """Estimated share above which boxes are left alone: nothing to gain on clean ones."""
    extend_past_border: bool = True
    """Let regression end outside of the image where its border cut off noisy edges; off: boxes at
    the border are learnt too small."""
    box_beta: float = 2.0
    """Difference up to which the second stage's box loss is quadratic where boxes are mended: the
    mean of noisy edges is nearer to the truth than their median."""
    vote_min_iou: float = 0.3
    """IoU with the raw box above which a proposal's regression votes: others mean other objects."""
    cluster_min_iou: float = 0.6
    """IoU with the leading voter above which the votes are averaged: one object, one cluster."""
    missing_min_score: float | None = None
    """Score from which a proposal beside all annotations is held to be an object whose annotation
    is missing, and left out of the background; by default none is. 0.3 where many are missing."""
    residual_min_score: float = 0.1
    """Least score of some voter for the box noise to be measured: below, nothing was seen."""

    def __post_init__(self) -> None:
        for name in (
            *(
                "initial_label_noise",
                "memory_min_weight",
                "alpha",
                "raw_box_share",
                "raw_box_min_share",
                "disable_above",
            ),
            *(
                "vote_min_iou",
                "cluster_min_iou",
                "residual_min_score",
                "prescreen_weight",
                "missing_min_score",
            ),
        ):
            check_share(f"mend.{name}", getattr(self, name))
        check_choice("mend.discarded", self.discarded, ("background", "ignore", "rpn_only"))
        check_choice("mend.boxes", self.boxes, ("edges", "vote", "average"))
        check_choice("mend.judgement", self.judgement, ("posterior", "queue"))
        for name, like in (("gamma", "0.1"), ("fit_threshold", "0.9"), ("box_beta", "2.0")):
            check_amount(f"mend.{name}", getattr(self, name), like)
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            told = repr(self.temperature)
            raise UsageError(f"mend.temperature is {told}; expected a number above 0, like 1.5")
        for name in ("num_proposals", "num_candidates", "queue_length"):
            check_count(f"mend.{name}", getattr(self, name))
