"""What a training does where its settings leave the choice to the preset and the method."""

from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from boxmend.runs.settings.training import PUBLISHED, SECTIONS, Optimisation, TrainSettings

LITERAL_METHODS = frozenset(
    method for method, section in SECTIONS.items() if section == PUBLISHED and method != "baseline"
)
"""Rows of the paper's tables: they are the literal reading whatever the preset says."""
OWN_NUMBERS = frozenset({"tiny"})
"""Detectors whose numbers of proposals and RoIs belong to them, whatever the preset says."""
FEW_PROPOSALS = 500

T = TypeVar("T")


@dataclass(frozen=True)
class Preset:
    """One reading of everything that the user did not set; None: the detector's own number."""

    proposals: int | None
    pre_nms: int | None
    rois: int | None
    box_loss: Literal["smooth_l1", "l1"]
    rpn_low_quality: float
    difficult: Literal["ignore", "background"]
    schedule: Literal["step", "cosine"]
    max_norm: float
    average_decay: float


PRESETS = {
    "default": Preset(
        proposals=None,
        pre_nms=None,
        rois=None,
        box_loss="smooth_l1",
        rpn_low_quality=0.0,
        difficult="ignore",
        schedule="step",
        max_norm=35.0,
        average_decay=0.998,
    ),
    "paper": Preset(
        proposals=1000,
        pre_nms=2000,
        rois=512,
        box_loss="l1",
        rpn_low_quality=0.3,
        difficult="background",
        schedule="step",
        max_norm=0.0,
        average_decay=0.0,
    ),
}


def resolved(settings: TrainSettings) -> TrainSettings:
    """Fill in what is left to the preset and the method; resolved settings stay as they are.

    What is set stays. Where a count is still None, it is the detector's own number.
    """
    is_paper = settings.preset == "paper" or settings.method in LITERAL_METHODS
    name: Literal["default", "paper"] = "paper" if is_paper else "default"
    preset = _fitted(PRESETS[name], settings)
    return replace(
        settings,
        preset=name,
        method="mend-paper" if is_paper and settings.method == "mend" else settings.method,
        weights=_first(settings.weights, "none"),
        proposals=_first(settings.proposals, preset.proposals),
        pre_nms=_first(settings.pre_nms, preset.pre_nms),
        rois=_first(settings.rois, preset.rois),
        box_loss=_first(settings.box_loss, preset.box_loss),
        rpn_low_quality=_first(settings.rpn_low_quality, preset.rpn_low_quality),
        difficult=_first(settings.difficult, preset.difficult),
        optimisation=_optimisation(settings, preset),
    )


def _fitted(preset: Preset, settings: TrainSettings) -> Preset:
    """The preset for a detector, a method and a number of proposals."""
    if settings.method != "mend":
        preset = replace(preset, average_decay=0.0)  # the recipes of others have none
    if settings.detector in OWN_NUMBERS:
        return replace(preset, proposals=None, pre_nms=None, rois=None)
    if preset.pre_nms is None and (settings.proposals or FEW_PROPOSALS + 1) <= FEW_PROPOSALS:
        return replace(preset, pre_nms=1000)
    return preset


def _optimisation(settings: TrainSettings, preset: Preset) -> Optimisation:
    told = settings.optimisation
    return replace(
        told,
        lr=settings.learning_rate,
        schedule=_first(told.schedule, preset.schedule),
        max_norm=_first(told.max_norm, preset.max_norm),
        average_decay=_first(told.average_decay, preset.average_decay),
    )


def _first(told: T | None, otherwise: T) -> T:
    return otherwise if told is None else told
