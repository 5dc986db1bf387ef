"""The numbers of other methods than the paper's and ours, each as its source has them."""

from dataclasses import dataclass
from typing import Literal

from boxmend.runs.settings.ranges import (
    check_amount,
    check_choice,
    check_count,
    check_positive,
    check_share,
)


@dataclass(frozen=True)
class CoTeachingSettings:
    """Numbers of co-teaching (Han et al. 2018), by annotations instead of images."""

    forget_rate: float | None = None
    """Share of annotations left out in the end, 0 to 1 (tau); by default the label noise as told or
    estimated; without any it is 0.2 for noisy boxes, and none where these are clean too."""
    ramp_share: float = 1 / 3
    """Share of the passes over which that share rises from none, 0 to 1 (T_k): 4 of 12; the source
    takes 10 passes of 200. It takes the place of `warm_up`."""
    exponent: float = 1.0
    """Of the rise, above 0 (c): below 1 it is steep at first, above 1 in the end."""
    queue_length: int = 128
    """Recent losses of a network that its threshold rests on, from 1 on; a batch alone has too few
    annotations."""

    def __post_init__(self) -> None:
        check_share("co_teaching.forget_rate", self.forget_rate)
        check_share("co_teaching.ramp_share", self.ramp_share)
        check_positive("co_teaching.exponent", self.exponent, "1")
        check_count("co_teaching.queue_length", self.queue_length)


@dataclass(frozen=True)
class NoteRcnnSettings:
    """Numbers of NOTE-RCNN (Gao et al. 2019), with seeds chosen by their loss (Li et al. 2020)."""

    plain_share: float = 1 / 3
    """Share of the passes that train plainly, before seeds are chosen, 0 to 1; rounded, and at
    least one pass."""
    seed_share: float | None = None
    """Share of each class's annotations that are seeds, 0 to 1 (rho); by default 1 - label noise,
    at most 0.5, and 0.5 where the noise is not told: fewer seeds are cleaner ones."""
    temperature: float = 2.0
    """Of the distillation, above 0; more makes the frozen model's opinion softer."""
    distillation_weight: float = 1.0
    """Weight of its loss, from 0 on."""
    mask_min_iou: float = 0.3
    """IoU with an annotation from which a negative teaches the mixed classifier nothing, 0 to 1,
    unless its image has nothing but seeds; from 0.5 on it masks nothing, as what overlaps more is
    no negative."""
    mask_max_background: float = 0.5
    """A negative teaches the mixed classifier only where the frozen model is surer than that of
    background, 0 to 1, with the same exception; 0 masks nothing. Noisy annotations make a model
    unsure: 0.9 left few negatives, and false alarms followed."""

    def __post_init__(self) -> None:
        for name in ("plain_share", "seed_share", "mask_min_iou", "mask_max_background"):
            check_share(f"note_rcnn.{name}", getattr(self, name))
        check_positive("note_rcnn.temperature", self.temperature, "2")
        check_amount("note_rcnn.distillation_weight", self.distillation_weight, "1")


@dataclass(frozen=True)
class CaBbcSettings:
    """Numbers of class-agnostic box correction (Li et al. 2020)."""

    objectness_weight: float = 0.1
    """Weight of the background's share in what a box is moved to lessen, from 0 on (lambda)."""
    step_unit: Literal["relative", "pixels"] = "relative"
    """relative: alpha is the step of a typical box, in shares of its sides, whatever the slopes;
    pixels: alpha is the factor of the slope, as published, so that steps depend on the size of the
    image."""
    alpha: float | None = None
    """Length of the step, from 0 on; by default it follows the box noise: relative 0, 0.03 and
    0.06, in pixels 0, 100 and 200 as published, at 0, 20 and 40 %."""
    max_shift: float = 0.1
    """A side moves at most by this share of the box, 0 to 1."""
    queue_length: int = 128
    """Recent annotations whose median slope is that of a typical box, from 1 on; no step is made
    until half as many have come."""
    temperature: float = 0.4
    """Of the sharpened mean of label and predictions, above 0 (T)."""
    include_background: bool = False
    """Whether background has its share in that mean. By default not: heads that call badly placed
    boxes background come to call everything so; in a trial with it 74.7 instead of 81.7 AP50 at
    40/40."""
    regression_share: float = 1.0
    """Share of the heads' regressions in the final box, 0 to 1; the rest is the corrected box
    (rho)."""

    def __post_init__(self) -> None:
        for name in ("max_shift", "regression_share"):
            check_share(f"ca_bbc.{name}", getattr(self, name))
        for name, like in (("objectness_weight", "0.1"), ("alpha", "100")):
            check_amount(f"ca_bbc.{name}", getattr(self, name), like)
        check_positive("ca_bbc.temperature", self.temperature, "0.4")
        check_count("ca_bbc.queue_length", self.queue_length)
        check_choice("ca_bbc.step_unit", self.step_unit, ("relative", "pixels"))


@dataclass(frozen=True)
class OaMilSettings:
    """Numbers of OA-MIL (Liu et al. 2022), as released for VOC."""

    bag_loss_weight: float = 0.1
    """Of the bags' loss, from 0 on (lambda); the source has 0.01 for COCO at 20 %."""
    gamma: float = 7.5
    """Exponent of the score in the weight of the chosen box, from 0 on; a higher one moves boxes
    less unless the score is close to 1."""
    theta: float = 0.85
    """Most that the chosen box weighs, 0 to 1."""
    selection_from: float = 1 / 12
    """Share of the training before boxes are chosen, 0 to 1; the second of 12 passes is the first
    with chosen boxes. The bags' loss counts from the first step on."""
    extension_from: float = 8 / 12
    """Share of the training before bags are extended, 0 to 1; the ninth of 12 passes is the first
    with extended bags."""
    extension_rounds: int = 4
    """Rounds of extension, from 0 on (N); each costs one more pass of the head over positive
    RoIs."""
    extension: Literal["refine", "random"] = "refine"
    """refine: each round starts from the boxes of the last; random: from the RoIs, and all rounds
    count alike. The source has random for COCO at 40 %."""
    extension_weight: float = 1.0
    """Of the rounds' scores beside the first with refine, from 0 on."""

    def __post_init__(self) -> None:
        for name in ("theta", "selection_from", "extension_from"):
            check_share(f"oa_mil.{name}", getattr(self, name))
        for name, like in (("bag_loss_weight", "0.1"), ("gamma", "7.5"), ("extension_weight", "1")):
            check_amount(f"oa_mil.{name}", getattr(self, name), like)
        check_count("oa_mil.extension_rounds", self.extension_rounds, least=0)
        check_choice("oa_mil.extension", self.extension, ("refine", "random"))


@dataclass(frozen=True)
class DiscoSettings:
    """Numbers of DISCO (Zhou et al. 2024), as released for VOC at 40 %."""

    bag_loss_weight: float = 0.1
    """Of the bags' loss, from 0 on (lambda)."""
    spread_loss_weight: float = 0.1
    """Of the loss of the spread, from 0 on (gamma)."""
    temperature: float = 0.1
    """Of the weights of boxes by their scores, above 0 (T)."""
    exponent: float = 5.0
    """Of the score in the weight of the mean box, from 0 on (a)."""
    mean_box_max_weight: float = 0.8
    """Most that the mean box weighs, 0 to 1 (b)."""
    samples: int = 10
    """Boxes drawn from the distribution of a bag, from 1 on; the head runs on all of them."""
    correction_from: float = 0.0
    """Share of the training before boxes are corrected, 0 to 1. The source corrects from the first
    step on: as long as scores are low, boxes hardly move. The bags' loss counts from the first
    step on in any case."""

    def __post_init__(self) -> None:
        for name in ("mean_box_max_weight", "correction_from"):
            check_share(f"disco.{name}", getattr(self, name))
        for name, like in (
            ("bag_loss_weight", "0.1"),
            ("spread_loss_weight", "0.1"),
            ("exponent", "5"),
        ):
            check_amount(f"disco.{name}", getattr(self, name), like)
        check_positive("disco.temperature", self.temperature, "0.1")
        check_count("disco.samples", self.samples)
