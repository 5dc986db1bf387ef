"""The table of methods by name, and `build`, which makes one.

`mend` is the project's own method (`Mend`). `mend-paper`, its ablations and `baseline` are the
paper's (`PaperMethod`). Each peer method has a module in `peers`. `protocol` defines the interface,
`steps` contains the shared parts of a step.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

from boxmend.errors import UsageError
from boxmend.methods.equations import VARIANTS
from boxmend.methods.mend import Mend
from boxmend.methods.noise_estimator import NoiseEstimator
from boxmend.methods.paper import PaperMethod, needs_estimates
from boxmend.methods.peers.ca_bbc import CaBbc
from boxmend.methods.peers.co_teaching import CoTeaching
from boxmend.methods.peers.co_teaching import needs_estimates as wants_tau
from boxmend.methods.peers.disco import Disco
from boxmend.methods.peers.note_rcnn import NoteRcnn
from boxmend.methods.peers.oa_mil import OaMil
from boxmend.methods.protocol import (
    SINGLE_PROCESS,
    BatchAnnotations,
    BoxFeatures,
    BoxScorer,
    Exchange,
    Method,
    Outcome,
    TrainingProgress,
)
from boxmend.methods.rates import Rates
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
from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED

__all__ = [
    "METHODS",
    "BatchAnnotations",
    "BoxFeatures",
    "BoxScorer",
    "Mend",
    "MendSettings",
    "Method",
    "MethodInputs",
    "MethodSpec",
    "Outcome",
    "PaperMethod",
    "PublishedSettings",
    "Rates",
    "TrainingProgress",
    "build",
    "build_from",
]

Device = torch.device | str


class MethodInputs(NamedTuple):
    """The arguments from which a method is made."""

    num_annotations: int
    num_labels: int
    rates: Rates = Rates()
    settings: Any = None  # of the method's own type; None for the defaults
    device: Device = "cpu"
    exchange: Exchange = SINGLE_PROCESS

    def make_estimator(self, is_needed: bool) -> NoiseEstimator | None:
        """Make a noise estimator if the method needs one."""
        if not is_needed:
            return None
        sizes = (self.num_annotations, self.num_labels)
        return NoiseEstimator(*sizes, MendSettings(), self.rates, self.device, self.exchange)


class MethodSpec(NamedTuple):
    """The way to make a method, and the detector that it needs."""

    settings: type[Any]
    """The type of its settings, which are the field `METHOD_SECTIONS[name]` of TrainSettings."""
    make: Callable[[MethodInputs], Method]
    """Makes the method from inputs with settings of that type."""
    detector: Mapping[str, Any] = MappingProxyType({})
    """The fields of `DetectorNumbers` that differ from their defaults."""


def build(name: str, inputs: MethodInputs) -> Method:
    """Make a method by name; raise a UsageError for unknown names or settings of another type."""
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}; known: {', '.join(sorted(METHODS))}")
    spec = METHODS[name]
    settings = spec.settings() if inputs.settings is None else inputs.settings
    if type(settings) is not spec.settings:
        expected, actual = spec.settings.__name__, type(settings).__name__
        raise UsageError(f"{name} takes {expected}, not {actual}")
    return spec.make(inputs._replace(settings=settings))


def build_from(
    settings: TrainSettings,
    num_annotations: int,
    num_labels: int,
    device: Device,
    exchange: Exchange = SINGLE_PROCESS,
) -> Method:
    """Make the method that resolved settings name."""
    rates = Rates(*(None if x == "auto" else x for x in (settings.label_noise, settings.box_noise)))
    section = getattr(settings, METHOD_SECTIONS.get(settings.method, PUBLISHED))
    inputs = MethodInputs(num_annotations, num_labels, rates, section, device, exchange)
    return build(settings.method, inputs)


def _make_paper_method(variant: str, inputs: MethodInputs) -> Method:
    estimator = inputs.make_estimator(needs_estimates(variant, inputs.rates))
    return PaperMethod(
        variant, inputs.settings, inputs.rates, inputs.device, estimator, inputs.exchange
    )


def _make_ca_bbc(inputs: MethodInputs) -> Method:
    estimator = inputs.make_estimator(inputs.rates.box is None)
    return CaBbc(inputs.settings, inputs.rates, inputs.device, estimator, inputs.exchange)


def _make_co_teaching(inputs: MethodInputs) -> Method:
    estimator = inputs.make_estimator(wants_tau(inputs.settings, inputs.rates))
    return CoTeaching(inputs.settings, inputs.rates, inputs.device, estimator, inputs.exchange)


def _make_with_memory(kind: type[Mend] | type[NoteRcnn], inputs: MethodInputs) -> Method:
    """Make a method with a memory of every annotation."""
    sizes = (inputs.num_annotations, inputs.num_labels)
    return kind(*sizes, inputs.settings, inputs.rates, inputs.device, inputs.exchange)


METHODS: dict[str, MethodSpec] = {
    **{name: MethodSpec(PublishedSettings, partial(_make_paper_method, name)) for name in VARIANTS},
    "ca-bbc": MethodSpec(CaBbcSettings, _make_ca_bbc, {"box_heads": 2}),
    "co-teaching": MethodSpec(CoTeachingSettings, _make_co_teaching, {"networks": 2}),
    "disco": MethodSpec(
        DiscoSettings, lambda one: Disco(one.settings, one.exchange), {"has_spread": True}
    ),
    "mend": MethodSpec(MendSettings, partial(_make_with_memory, Mend)),
    "note-rcnn": MethodSpec(
        NoteRcnnSettings, partial(_make_with_memory, NoteRcnn), {"classifiers": 3, "networks": 2}
    ),
    "oa-mil": MethodSpec(OaMilSettings, lambda one: OaMil(one.settings, one.exchange)),
}
