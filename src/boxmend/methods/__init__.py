"""Methods: what stands between proposals and losses, one for each row of the tables.

`build` makes one by name. All but `mend` are the published method and its ablations (`Published`,
with `mend-paper` the whole of it); `mend` is the changed one (`Mend`). A method turns the
annotations of a batch into targets and into what the ledger tells about them; `protocol` has the
contract.
"""

from collections.abc import Callable
from functools import partial

import torch

from boxmend.errors import UsageError
from boxmend.methods.mend import Mend
from boxmend.methods.protocol import BoxScorer, Given, Method, Moment, Outcome
from boxmend.methods.published import Published, wants_estimates
from boxmend.methods.rates import Rates
from boxmend.methods.watch import NoiseWatch
from boxmend.settings import MendSettings, PublishedSettings, TrainSettings

__all__ = [
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

Settings = PublishedSettings | MendSettings
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
        settings.mend if settings.method == "mend" else settings.published,
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


METHODS: dict[str, Builder] = {
    "baseline": partial(_published, "baseline"),
    "br": partial(_published, "br"),
    "cinj": partial(_published, "cinj"),
    "cm": partial(_published, "cm"),
    "lr": partial(_published, "lr"),
    "mend": _mend,
    "mend-paper": partial(_published, "mend-paper"),
    "pseudo": partial(_published, "pseudo"),
}
