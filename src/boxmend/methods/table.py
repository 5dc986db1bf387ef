"""Methods: what turns the annotations of a batch into losses, one for each row of the tables.

`build` makes a method by name: `mend` is ours (`Mend`); `mend-paper`, its parts and `baseline` are
the paper's (`PaperMethod`); the others are peers, a module each. A method also reports
to the ledger what became of the annotations. `protocol` has the contract, `steps` what they share.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import torch

from boxmend.errors import UsageError
from boxmend.methods.mend import Mend
from boxmend.methods.paper import PaperMethod, wants_estimates
from boxmend.methods.peers.ca_bbc import CaBbc
from boxmend.methods.peers.co_teaching import CoTeaching
from boxmend.methods.peers.co_teaching import wants_estimates as wants_tau
from boxmend.methods.peers.disco import Disco
from boxmend.methods.peers.note_rcnn import NoteRcnn
from boxmend.methods.peers.oa_mil import OaMil
from boxmend.methods.protocol import (
    BatchAnnotations,
    BoxFeatures,
    BoxScorer,
    Method,
    Outcome,
    TrainingProgress,
)
from boxmend.methods.rates import Rates
from boxmend.methods.watch import NoiseEstimator
from boxmend.runs.settings import (
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
    "BatchAnnotations",
    "BoxFeatures",
    "BoxScorer",
    "Mend",
    "MendSettings",
    "Method",
    "Outcome",
    "PaperMethod",
    "PublishedSettings",
    "Rates",
    "TrainingProgress",
    "build",
    "build_from",
]

Peers = CaBbcSettings | CoTeachingSettings | DiscoSettings | NoteRcnnSettings | OaMilSettings
Settings = PublishedSettings | MendSettings | Peers
Device = torch.device | str


class MethodInputs(NamedTuple):
    """What a method is made from."""

    num_annotations: int
    num_labels: int
    rates: Rates
    settings: Any  # of the method's own kind
    device: Device

    def watch(self, settings: MendSettings = MendSettings()) -> NoiseEstimator:  # noqa: B008  # frozen
        """Make what estimates rates; its memory has a row for every annotation."""
        return NoiseEstimator(
            self.num_annotations, self.num_labels, settings, self.rates, self.device
        )


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
    usual = getattr(TrainSettings(), _place_of(name))
    told = usual if settings is None else settings
    if type(told) is not type(usual):
        raise UsageError(f"{name} takes {type(usual).__name__}, got {type(told).__name__}")
    return METHODS[name](MethodInputs(num_annotations, num_labels, rates, told, device))


def build_from(
    settings: TrainSettings, num_annotations: int, num_labels: int, device: Device
) -> Method:
    """Make the method that resolved settings ask for."""
    return build(
        settings.method,
        num_annotations,
        num_labels,
        Rates(*(None if x == "auto" else x for x in (settings.label_noise, settings.box_noise))),
        getattr(settings, _place_of(settings.method)),
        device,
    )


def _place_of(method: str) -> str:
    """Name the part of TrainSettings that a method has for itself."""
    own = method.replace("-", "_")
    return own if own in {one.name for one in fields(TrainSettings)} else "published"


def _published(variant: str, order: MethodInputs) -> Method:
    watch = order.watch() if wants_estimates(variant, order.rates) else None
    return PaperMethod(variant, order.settings, order.rates, order.device, watch)


def _ca_bbc(order: MethodInputs) -> Method:
    watch = order.watch() if order.rates.box is None else None
    return CaBbc(order.settings, order.rates, order.device, watch)


def _co_teaching(order: MethodInputs) -> Method:
    watch = order.watch() if wants_tau(order.settings, order.rates) else None
    return CoTeaching(order.settings, order.rates, order.device, watch)


def _mend(order: MethodInputs) -> Method:
    return Mend(order.num_annotations, order.num_labels, order.settings, order.rates, order.device)


def _note_rcnn(order: MethodInputs) -> Method:
    return NoteRcnn(
        order.num_annotations, order.num_labels, order.settings, order.rates, order.device
    )


METHODS: dict[str, Callable[[MethodInputs], Method]] = {
    "baseline": partial(_published, "baseline"),
    "br": partial(_published, "br"),
    "ca-bbc": _ca_bbc,
    "cinj": partial(_published, "cinj"),
    "cm": partial(_published, "cm"),
    "co-teaching": _co_teaching,
    "disco": lambda order: Disco(order.settings),
    "lr": partial(_published, "lr"),
    "mend": _mend,
    "mend-paper": partial(_published, "mend-paper"),
    "note-rcnn": _note_rcnn,
    "oa-mil": lambda order: OaMil(order.settings),
    "pseudo": partial(_published, "pseudo"),
}
ASKED_OF_DETECTOR: dict[str, dict[str, Any]] = {
    "ca-bbc": {"box_heads": 2},
    "co-teaching": {"networks": 2},
    "disco": {"has_spread": True},
    "note-rcnn": {"classifiers": 3, "networks": 2},
}
"""The numbers of a detector that a method needs to be other than usual."""
