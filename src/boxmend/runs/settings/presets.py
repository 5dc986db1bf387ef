"""Presets: defaults that depend on the method and the detector."""

import math
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED, Optimisation, TrainSettings

PAPER_METHODS = frozenset(
    method
    for method, section in METHOD_SECTIONS.items()
    if section == PUBLISHED and method != "baseline"
)
"""Methods of the paper's tables, which always use the preset `paper`."""
FIXED_COUNT_DETECTORS = frozenset({"tiny"})
"""Detectors that keep their own numbers of proposals and RoIs with every preset."""
MAX_FEW_PROPOSALS = 500
"""Up to this number of proposals, fewer anchors enter suppression."""

T = TypeVar("T")


@dataclass(frozen=True)
class Preset:
    """Values for everything that the user did not set; None keeps the detector's own number."""

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


def resolve_settings(settings: TrainSettings) -> TrainSettings:
    """Return the settings with every value that the preset and the method decide.

    Explicit values stay. A count that is still None is the detector's own number. Resolved settings
    are returned unchanged.
    """
    is_paper = settings.preset == "paper" or settings.method in PAPER_METHODS
    name: Literal["default", "paper"] = "paper" if is_paper else "default"
    preset = _adapt_preset(PRESETS[name], settings)
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


def _adapt_preset(preset: Preset, settings: TrainSettings) -> Preset:
    """Return the preset for the detector, the method and the number of proposals."""
    if settings.method != "mend":
        preset = replace(preset, average_decay=0.0)  # other methods are published without one
    if settings.detector in FIXED_COUNT_DETECTORS:
        return replace(preset, proposals=None, pre_nms=None, rois=None)
    if preset.pre_nms is None and (settings.proposals or math.inf) <= MAX_FEW_PROPOSALS:
        return replace(preset, pre_nms=1000)
    return preset


def _optimisation(settings: TrainSettings, preset: Preset) -> Optimisation:
    explicit = settings.optimisation
    return replace(
        explicit,
        lr=settings.learning_rate,
        schedule=_first(explicit.schedule, preset.schedule),
        max_norm=_first(explicit.max_norm, preset.max_norm),
        average_decay=_first(explicit.average_decay, preset.average_decay),
    )


def _first(value: T | None, default: T) -> T:
    return default if value is None else value
