"""What a training can be told, with range and reason beside each default.

Frozen dataclasses, one for each room that has something to set, nested in `TrainSettings`. Nothing
here needs torch. `resolved` fills in what a preset decides, and what it gives is saved in a run.
"""

from boxmend.runs.settings.mend import MendSettings
from boxmend.runs.settings.peers import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    NoteRcnnSettings,
    OaMilSettings,
)
from boxmend.runs.settings.presets import resolved
from boxmend.runs.settings.published import PublishedSettings
from boxmend.runs.settings.training import Optimisation, TrainSettings, parsed_image_size

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
    "parsed_image_size",
    "resolved",
]
