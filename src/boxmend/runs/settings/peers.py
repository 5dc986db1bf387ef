"""Settings of the peer methods; defaults are those of each source."""

from dataclasses import dataclass
from typing import Literal

from boxmend.runs.settings.ranges import (
    MAX_TENSOR_COUNT,
    check_amount,
    check_choice,
    check_count,
    check_positive,
    check_share,
)


@dataclass(frozen=True)
class CoTeachingSettings:
    """Settings of co-teaching (Han et al. 2018), applied to annotations instead of images."""

    forget_rate: float | None = None
    """Final share of annotations left out, 0 to 1 (tau); by default the label noise, given or
    estimated; if that is 0, 0.2 with noisy boxes and 0 with clean ones."""
    ramp_share: float = 1 / 3
    """Share of the epochs over which that share rises from 0, 0 to 1 (T_k): 4 of 12; the source
    uses 10 epochs of 200. It replaces `warm_up`."""
    exponent: float = 1.0
    """Exponent of the rise, above 0 (c): below 1 it is steep at first, above 1 at the end."""
    queue_length: int = 128
    """Number of recent losses that set a network's threshold, from 1 on; one batch has too few
    annotations."""

    def __post_init__(self) -> None:
        check_share("co_teaching.forget_rate", self.forget_rate)
        check_share("co_teaching.ramp_share", self.ramp_share)
        check_positive("co_teaching.exponent", self.exponent, "1")
        check_count("co_teaching.queue_length", self.queue_length, maximum=MAX_TENSOR_COUNT)


@dataclass(frozen=True)
class NoteRcnnSettings:
    """Settings of NOTE-RCNN (Gao et al. 2019), with seeds chosen by loss (Li et al. 2020)."""

    plain_share: float = 1 / 3
    """Share of the epochs of plain training before seeds are chosen, 0 to 1; rounded, at least one
    epoch."""
    seed_share: float | None = None
    """Share of each class's annotations that become seeds, 0 to 1 (rho); by default 1 - label
    noise, at most 0.5, and 0.5 if the noise is unknown: fewer seeds are cleaner."""
    temperature: float = 2.0
    """Temperature of the distillation, above 0; higher makes the frozen model's targets softer."""
    distillation_weight: float = 1.0
    """Weight of the distillation loss, from 0 on."""
    mask_min_iou: float = 0.3
    """IoU with an annotation from which a negative is masked in the mixed classifier's loss, 0 to
    1, unless its image has seeds only. Values from 0.5 on mask nothing: such a region is not a
    negative."""
    mask_max_background: float = 0.5
    """Background probability of the frozen model up to which a negative is masked, 0 to 1, with the
    same exception; 0 masks nothing. Noisy annotations lower these probabilities: 0.9 left few
    negatives and led to false positives."""

    def __post_init__(self) -> None:
        for name in ("plain_share", "seed_share", "mask_min_iou", "mask_max_background"):
            check_share(f"note_rcnn.{name}", getattr(self, name))
        check_positive("note_rcnn.temperature", self.temperature, "2")
        check_amount("note_rcnn.distillation_weight", self.distillation_weight, "1")


@dataclass(frozen=True)
class CaBbcSettings:
    """Settings of class-agnostic box correction (Li et al. 2020)."""

    objectness_weight: float = 0.1
    """Weight of the background term in the loss that moves a box, from 0 on (lambda)."""
    step_unit: Literal["relative", "pixels"] = "relative"
    """relative: alpha is the step of a typical box as a share of its sides, whatever the gradients;
    pixels: alpha multiplies the gradient, as published, so steps depend on the image size."""
    alpha: float | None = None
    """Step length, from 0 on; by default it follows the box noise: 0, 0.03 and 0.06 (relative) or
    0, 100 and 200 (pixels, as published) at 0, 20 and 40 %."""
    max_shift: float = 0.1
    """Maximum move of a side, as a share of the box, 0 to 1."""
    queue_length: int = 128
    """Number of recent annotations whose median gradient is that of a typical box, from 1 on; no
    box moves until half of them are known."""
    temperature: float = 0.4
    """Temperature that sharpens the mean of label and predictions, above 0 (T)."""
    include_background: bool = False
    """Include background in that mean. By default off: the heads learn to call everything
    background; a trial at 40/40 gave 74.7 instead of 81.7 AP50."""
    regression_share: float = 1.0
    """Share of the heads' regressions in the final box, 0 to 1 (rho); the corrected box has the
    rest."""

    def __post_init__(self) -> None:
        for name in ("max_shift", "regression_share"):
            check_share(f"ca_bbc.{name}", getattr(self, name))
        for name, example in (("objectness_weight", "0.1"), ("alpha", "100")):
            check_amount(f"ca_bbc.{name}", getattr(self, name), example)
        check_positive("ca_bbc.temperature", self.temperature, "0.4")
        check_count("ca_bbc.queue_length", self.queue_length, maximum=MAX_TENSOR_COUNT)
        check_choice("ca_bbc.step_unit", self.step_unit, ("relative", "pixels"))


@dataclass(frozen=True)
class OaMilSettings:
    """Settings of OA-MIL (Liu et al. 2022), as released for VOC."""

    bag_loss_weight: float = 0.1
    """Weight of the bag loss, from 0 on (lambda); the source has 0.01 for COCO at 20 %."""
    gamma: float = 7.5
    """Exponent of the score in the weight of the selected box, from 0 on; a higher one moves boxes
    less unless the score is close to 1."""
    theta: float = 0.85
    """Maximum weight of the selected box, 0 to 1."""
    selection_from: float = 1 / 12
    """Share of the training before boxes are selected, 0 to 1; 1/12 starts with the second of 12
    epochs. The bag loss counts from the first step on."""
    extension_from: float = 8 / 12
    """Share of the training before bags are extended, 0 to 1; 8/12 starts with the ninth of 12
    epochs."""
    extension_rounds: int = 4
    """Number of extension rounds, from 0 on (N); each costs one more head call on positive RoIs."""
    extension: Literal["refine", "random"] = "refine"
    """refine: each round starts from the boxes of the last; random: from the RoIs, and all rounds
    count equally. The source has random for COCO at 40 %."""
    extension_weight: float = 1.0
    """Weight of the rounds after the first with refine, from 0 on."""

    def __post_init__(self) -> None:
        for name in ("theta", "selection_from", "extension_from"):
            check_share(f"oa_mil.{name}", getattr(self, name))
        for name, example in (
            ("bag_loss_weight", "0.1"),
            ("gamma", "7.5"),
            ("extension_weight", "1"),
        ):
            check_amount(f"oa_mil.{name}", getattr(self, name), example)
        check_count("oa_mil.extension_rounds", self.extension_rounds, minimum=0)
        check_choice("oa_mil.extension", self.extension, ("refine", "random"))


@dataclass(frozen=True)
class DiscoSettings:
    """Settings of DISCO (Zhou et al. 2024), as released for VOC at 40 %."""

    bag_loss_weight: float = 0.1
    """Weight of the bag loss, from 0 on (lambda)."""
    spread_loss_weight: float = 0.1
    """Weight of the spread loss, from 0 on (gamma)."""
    temperature: float = 0.1
    """Temperature of the softmax that weights boxes by their scores, above 0 (T)."""
    exponent: float = 5.0
    """Exponent of the score in the weight of the mean box, from 0 on (a)."""
    mean_box_max_weight: float = 0.8
    """Maximum weight of the mean box, 0 to 1 (b)."""
    samples: int = 10
    """Number of boxes drawn from a bag's distribution, from 1 on; the head runs on all of them."""
    correction_from: float = 0.0
    """Share of the training before boxes are corrected, 0 to 1. The source corrects from the first
    step on; while scores are low, boxes hardly move. The bag loss always counts from the first
    step on."""

    def __post_init__(self) -> None:
        for name in ("mean_box_max_weight", "correction_from"):
            check_share(f"disco.{name}", getattr(self, name))
        for name, example in (
            ("bag_loss_weight", "0.1"),
            ("spread_loss_weight", "0.1"),
            ("exponent", "5"),
        ):
            check_amount(f"disco.{name}", getattr(self, name), example)
        check_positive("disco.temperature", self.temperature, "0.1")
        check_count("disco.samples", self.samples)
