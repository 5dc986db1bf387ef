"""What a training can be told, with range and reason beside each default.

Frozen dataclasses, one for each room that has something to set, nested in `TrainSettings`. Nothing
here needs torch. `resolved` fills in what a preset decides, and what it gives is saved in a run.
"""

from boxmend.settings.mend import MendSettings
from boxmend.settings.peers import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    NoteRcnnSettings,
    OaMilSettings,
)
from boxmend.settings.presets import resolved
from boxmend.settings.published import PublishedSettings
from boxmend.settings.training import Optimisation, TrainSettings, parsed_image_size

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
