"""Settings of the method `mend`."""

from dataclasses import dataclass
from typing import Literal

from boxmend.errors import UsageError
from boxmend.runs.settings.ranges import (
    MAX_TENSOR_COUNT,
    check_amount,
    check_choice,
    check_count,
    check_share,
)


@dataclass(frozen=True)
class MendSettings:
    """Switches and numbers of `mend`, one for each part of the method."""

    prescreen_weight: float = 0.5
    """Weight of the prescreen in the evidence, 0 to 1; 0 turns it off. Before training, it predicts
    each label by a classifier of the backbone's features that is trained on other images."""
    initial_label_noise: float = 0.3
    """Label noise assumed before the first estimate; 0.3 worked for true rates of 20 to 60 %."""
    min_object_score: float = 0.0
    """Score of all classes together from which an annotation counts in the estimate of the label
    noise, 0 to 1: one without an object looks like a wrong label. By default all count; use 0.3 if
    many annotations are spurious or grossly off. Not measured on photographs yet."""
    full_matrix: bool = True
    """Estimate a full matrix of label noise if it fits clearly better, as for pair noise; off:
    symmetric noise only."""
    foreground_only: bool = True
    """Judge labels by the foreground classes alone; off: a bad box counts as a wrong label."""
    judgement: Literal["posterior", "queue"] = "posterior"
    """posterior: Bayes' rule under the noise model; queue: the published queue of losses."""
    temperature: float | None = None
    """tau, the exponent of the evidence, above 0; by default fitted once an epoch."""
    queue_length: int = 128
    """Number of losses in the queue, from 1 on, as published; used if `judgement` is queue."""
    memory_min_weight: float = 0.5
    """Minimum weight of a new visit in the memory, 0 to 1; 1 keeps no memory, 0 averages all
    visits."""
    soft_labels: bool = True
    """Train on posteriors; off: on hard judgements, with unsure annotations as `discarded` says."""
    discarded: Literal["background", "ignore", "rpn_only"] = "ignore"
    """How unsure annotations are trained on without soft labels. By default ignore: an object is
    there, so its place is not background."""
    correct_warm_up_loss: bool = True
    """Correct the loss of warm-up for label noise; off: the detector memorises wrong labels."""
    gamma: float = 0.1
    """Weight of the box sizes in Eq. 15, from 0 on, as published."""
    fit_threshold: float = 0.9
    """Threshold of Eq. 18, as published; decides which proposals can become b*."""
    num_proposals: int = 100
    """Number of proposals with the highest objectness that match and vote, from 1 on, as
    published."""
    num_candidates: int = 10
    """Maximum number of candidates of an annotation, from 1 on, as published; the first is p*."""
    alpha: float | None = None
    """Weight of p* in b*, 0 to 1; by default the box noise, limited to 0.2 to 0.4 as published, and
    0 if boxes are not repaired."""
    boxes: Literal["edges", "vote", "average"] = "edges"
    """How the final box is computed. edges: each edge at its expected position given the vote, the
    raw box and the box noise; vote: a blend of both by `raw_box_share`; average: Eq. 14."""
    box_noise_shape: Literal["uniform", "gaussian", "auto"] = "uniform"
    """Shape of the box noise that `edges` assumes. auto: the shape that explains the distances
    between boxes and votes better, chosen once an epoch; not measured on photographs yet."""
    raw_box_share: float | None = None
    """Share of the raw box in the final one, 0 to 1; if set, raw box and vote are blended also with
    `edges`. By default it follows the box noise; before the first estimate it is 1: boxes stay."""
    raw_box_min_share: float = 0.4
    """Minimum of the estimated share: a model that trains on its own boxes confirms itself."""
    disable_above: float = 0.8
    """Estimated share above which boxes are not repaired: clean boxes cannot improve."""
    extend_past_border: bool = True
    """Let regression targets extend past the image border, which clips noisy edges; off: boxes at
    the border are learnt too small."""
    box_beta: float = 2.0
    """Difference up to which the second stage's box loss is quadratic if boxes are repaired: the
    mean of noisy edges is closer to the truth than their median."""
    vote_min_iou: float = 0.3
    """IoU with the raw box above which a regressed proposal votes; below, it is another object."""
    cluster_min_iou: float = 0.6
    """IoU with the strongest vote above which votes are averaged: one cluster per object."""
    missing_min_score: float | None = None
    """Score from which a proposal away from all annotations counts as a missing object and is left
    out of the background; by default off. Use 0.3 if many annotations are missing."""
    residual_min_score: float = 0.1
    """Minimum score of the best vote for an annotation to count in the estimate of box noise."""

    def __post_init__(self) -> None:
        for name in (
            *(
                "initial_label_noise",
                "min_object_score",
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
        check_choice("mend.box_noise_shape", self.box_noise_shape, ("uniform", "gaussian", "auto"))
        check_choice("mend.judgement", self.judgement, ("posterior", "queue"))
        for name, example in (("gamma", "0.1"), ("fit_threshold", "0.9"), ("box_beta", "2.0")):
            check_amount(f"mend.{name}", getattr(self, name), example)
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise UsageError(
                f"mend.temperature is {self.temperature!r}; expected a number above 0, like 1.5"
            )
        for name in ("num_proposals", "num_candidates", "queue_length"):
            check_count(f"mend.{name}", getattr(self, name), maximum=MAX_TENSOR_COUNT)
