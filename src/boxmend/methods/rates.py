"""Noise rates that the user knows."""

from typing import NamedTuple

from boxmend.runs.settings.ranges import check_share


class Rates(NamedTuple):
    """The share of wrong labels and the box noise, where known; exactly 0 switches repair off."""

    label: float | None = None
    box: float | None = None  # N: edges move by up to that share of the side


def check_rates(rates: Rates) -> Rates:
    """Give rates back if they are shares or unknown."""
    check_share("label_noise", rates.label)
    check_share("box_noise", rates.box)
    return rates
