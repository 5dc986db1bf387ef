"""The noise rates that the user knows."""

from typing import NamedTuple

from boxmend.runs.settings.ranges import check_share


class Rates(NamedTuple):
    """The share of wrong labels and the box noise, or None if unknown; 0 disables the repair."""

    label: float | None = None
    box: float | None = None  # N: edges are off by up to this share of the side


def check_rates(rates: Rates) -> Rates:
    """Return the rates; raise a UsageError unless each is a share or None."""
    check_share("label_noise", rates.label)
    check_share("box_noise", rates.box)
    return rates
