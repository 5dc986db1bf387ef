"""Methods: what turns the annotations of a batch into losses, one for each row of the tables.

`build` makes one by name: `mend` is ours (`Mend`), `mend-paper`, its parts and `baseline` are the
published one (`Published`), the others are peers, a file each. A method also tells the ledger what
became of the annotations; `protocol` has the contract, `steps` what they have in common.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from boxmend.errors import UsageError
from boxmend.methods.ca_bbc import CaBbc
from boxmend.methods.co_teaching import CoTeaching
from boxmend.methods.disco import Disco
from boxmend.methods.mend import Mend
from boxmend.methods.note_rcnn import NoteRcnn
from boxmend.methods.oa_mil import OaMil
from boxmend.methods.protocol import BoxScorer, Given, Method, Moment, Outcome
from boxmend.methods.published import Published, wants_estimates
from boxmend.methods.rates import Rates
from boxmend.methods.watch import NoiseWatch
from boxmend.settings import (
    CaBbcSettings,
    CoTeachingSettings,
    DiscoSettings,
    MendSettings,
    NoteRcnnSettings,
    OaMilSettings,
    PublishedSettings,
    TrainSettings,
)

__all__ = [
    "ASKED_OF_DETECTOR",
    "METHODS",
    "BoxScorer",
    "Given",
    "Mend",
    "MendSettings",
    "Method",
    "Moment",
    "Outcome",
    "Published",
    "PublishedSettings",
    "Rates",
    "build",
    "build_from",
]

Peers = CaBbcSettings | CoTeachingSettings | DiscoSettings | NoteRcnnSettings | OaMilSettings
Settings = PublishedSettings | MendSettings | Peers
Device = torch.device | str
Builder = Callable[[int, int, Rates, Settings | None, Device], Method]


def build(
    name: str,
    num_annotations: int,
    num_labels: int,
    rates: Rates = Rates(),  # noqa: B008  # a tuple, which nobody can change
    settings: Settings | None = None,
    device: Device = "cpu",
) -> Method:
    """Make a method by name for a dataset of so many annotations and classes.

    Without settings there are the defaults.
    """
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; known: {', '.join(sorted(METHODS))}")
    return METHODS[name](num_annotations, num_labels, rates, settings, device)


def build_from(
    settings: TrainSettings, num_annotations: int, num_labels: int, device: Device
) -> Method:
    """Make the method that resolved settings ask for."""
    return build(
        settings.method,
        num_annotations,
        num_labels,
        Rates(*(None if x == "auto" else x for x in (settings.label_noise, settings.box_noise))),
        getattr(settings, SETTINGS_OF.get(settings.method, "published")),
        device,
    )


def _published(
    variant: str,
    num_annotations: int,
    num_labels: int,
    rates: Rates,
    settings: Settings | None,
    device: Device,
) -> Method:
    settings = PublishedSettings() if settings is None else settings
    if not isinstance(settings, PublishedSettings):
        raise UsageError(f"{variant} takes PublishedSettings, got {type(settings).__name__}")
    watch = None
    if wants_estimates(variant, rates):  # its memory has a row for every annotation
        watch = NoiseWatch(num_annotations, num_labels, MendSettings(), rates, device)
    return Published(variant, settings, rates, device, watch)


def _mend(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = MendSettings() if settings is None else settings
    if not isinstance(settings, MendSettings):
        raise UsageError(f"mend takes MendSettings, got {type(settings).__name__}")
    return Mend(num_annotations, num_labels, settings, rates, device)


def _co_teaching(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = CoTeachingSettings() if settings is None else settings
    if not isinstance(settings, CoTeachingSettings):
        raise UsageError(f"co-teaching takes CoTeachingSettings, got {type(settings).__name__}")
    return CoTeaching(settings, rates, device)


def _note_rcnn(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = NoteRcnnSettings() if settings is None else settings
    if not isinstance(settings, NoteRcnnSettings):
        raise UsageError(f"note-rcnn takes NoteRcnnSettings, got {type(settings).__name__}")
    return NoteRcnn(num_annotations, num_labels, settings, rates, device)


def _ca_bbc(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = CaBbcSettings() if settings is None else settings
    if not isinstance(settings, CaBbcSettings):
        raise UsageError(f"ca-bbc takes CaBbcSettings, got {type(settings).__name__}")
    watch = None
    if rates.box is None:
        watch = NoiseWatch(num_annotations, num_labels, MendSettings(), rates, device)
    return CaBbc(settings, rates, device, watch)


def _oa_mil(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = OaMilSettings() if settings is None else settings
    if not isinstance(settings, OaMilSettings):
        raise UsageError(f"oa-mil takes OaMilSettings, got {type(settings).__name__}")
    return OaMil(settings)


def _disco(
    num_annotations: int, num_labels: int, rates: Rates, settings: Settings | None, device: Device
) -> Method:
    settings = DiscoSettings() if settings is None else settings
    if not isinstance(settings, DiscoSettings):
        raise UsageError(f"disco takes DiscoSettings, got {type(settings).__name__}")
    return Disco(settings)


METHODS: dict[str, Builder] = {
    "baseline": partial(_published, "baseline"),
    "br": partial(_published, "br"),
    "ca-bbc": _ca_bbc,
    "cinj": partial(_published, "cinj"),
    "cm": partial(_published, "cm"),
    "co-teaching": _co_teaching,
    "disco": _disco,
    "lr": partial(_published, "lr"),
    "mend": _mend,
    "mend-paper": partial(_published, "mend-paper"),
    "note-rcnn": _note_rcnn,
    "oa-mil": _oa_mil,
    "pseudo": partial(_published, "pseudo"),
}
SETTINGS_OF = {
    "ca-bbc": "ca_bbc",
    "co-teaching": "co_teaching",
    "disco": "disco",
    "mend": "mend",
    "note-rcnn": "note_rcnn",
    "oa-mil": "oa_mil",
}
"""Where the settings of a method are; of all others in `published`."""
ASKED_OF_DETECTOR: dict[str, dict[str, Any]] = {
    "ca-bbc": {"box_heads": 2},
    "co-teaching": {"networks": 2},
    "disco": {"has_spread": True},
    "note-rcnn": {"classifiers": 3, "networks": 2},
}
"""The numbers of a detector that a method needs to be other than usual."""
