"""Noise rates that the user knows, and what is refused as one."""

from typing import NamedTuple

from boxmend.errors import UsageError


class Rates(NamedTuple):
    """The share of wrong labels and the box noise, where known; exactly 0 switches repair off."""

    label: float | None = None
    box: float | None = None  # N: edges move by up to that share of the side


def check_share(name: str, value: float | None) -> None:
    """Refuse what is no number from 0 to 1; None means unknown, which is fine."""
    if value is not None and not 0 <= value <= 1:  # not a NaN either
        raise UsageError(f"{name} is {value!r}; expected a share from 0 to 1")


def check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a name that is not among the known ones."""
    if value not in known:
        raise UsageError(f"{name} is {value!r}; expected {' or '.join(map(repr, known))}")
