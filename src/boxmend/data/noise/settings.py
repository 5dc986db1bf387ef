"""Settings of noise, and the checks on them."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from boxmend.data.noise.boxes import BOX_NOISES
from boxmend.data.noise.labels import LABEL_NOISES
from boxmend.errors import UsageError


@dataclass(frozen=True)
class NoiseSettings:
    """What to disturb and how much; rates are shares of the eligible annotations.

    All annotations are eligible except crowd and difficult objects and those whose image, label
    or box is unknown.
    """

    labels: str | None = None
    """One of "symmetric:RATE", "pair:RATE", "matrix:FILE"."""
    boxes: str | None = None
    """One of "uniform:N", "gaussian:SIGMA", "jitter:N"; the amount is in shares of the sides."""
    missing: float = 0.0
    spurious: float = 0.0
    duplicate: float = 0.0
    subset: float = 1.0
    """The share of annotations that label and box noise are confined to."""
    seed: int = 0
    clip: bool = True
    """Whether disturbed boxes end at the border of their image, where its size is known."""

    def __post_init__(self) -> None:
        for name in ("missing", "spurious", "duplicate", "subset"):
            _check_share(name, getattr(self, name))
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}; expected a whole number from 0 on, like 0")
        if self.labels is not None:
            kind, amount = split_amount("labels", self.labels, LABEL_NOISES, "symmetric:0.4")
            if kind != "matrix":
                _check_amount("labels", self.labels, amount, example=f"{kind}:0.4")
        if self.boxes is not None:
            kind, amount = split_amount("boxes", self.boxes, tuple(BOX_NOISES), "uniform:0.4")
            most = sys.float_info.max if kind == "gaussian" else 1.0
            _check_amount("boxes", self.boxes, amount, example=f"{kind}:0.25", most=most)


def split_amount(name: str, text: str, kinds: Sequence[str], example: str) -> tuple[str, str]:
    """Split "kind:amount"; raise a UsageError with a right example if the text is not that."""
    kind, _, amount = text.partition(":") if isinstance(text, str) else ("", "", "")
    if kind not in kinds or not amount:
        raise UsageError(
            f"{name} is {text!r}; expected {', '.join(kinds)} with an amount, like {example}"
        )
    return kind, amount


def _check_share(name: str, rate: float) -> None:
    """Raise a UsageError if a rate is not a number from 0 to 1."""
    if not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise UsageError(f"{name} is {rate!r}; expected a share from 0 to 1, like 0.1")


def _check_amount(name: str, text: str, amount: str, *, example: str, most: float = 1.0) -> None:
    """Raise a UsageError if the amount is not a number from 0 to `most`."""
    try:
        number = float(amount)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        expected = "from 0 to 1" if most == 1 else "from 0 on"
        raise UsageError(f"{name} is {text!r}; expected an amount {expected}, like {example}")
