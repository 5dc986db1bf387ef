"""Settings of a training, each with its default, range and reason.

Frozen dataclasses, one for the optimizer and one for each method, nested in `TrainSettings`.
`resolve_settings` applies a preset; a run saves its result. This package does not need torch.
"""

from boxmend.runs.settings.mend import MendSettings
from boxmend.runs.settings.peers import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    NoteRcnnSettings,
    OaMilSettings,
)
from boxmend.runs.settings.presets import resolve_settings
from boxmend.runs.settings.published import PublishedSettings
from boxmend.runs.settings.training import Optimisation, TrainSettings, parse_image_size

__all__ = [
    "CaBbcSettings",
    "CoTeachingSettings",
    "DiscoSettings",
    "MendSettings",
    "NoteRcnnSettings",
    "OaMilSettings",
    "Optimisation",
    "PublishedSettings",
    "TrainSettings",
    "parse_image_size",
    "resolve_settings",
]
