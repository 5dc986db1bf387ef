"""Settings of noise, and the checks on them."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from boxmend.data.noise.boxes import BOX_NOISES
from boxmend.data.noise.labels import LABEL_NOISES
from boxmend.errors import UsageError

RATES = ("missing", "spurious", "duplicate", "subset")
LATER_RATES = ("look_alikes", "gross_boxes")  # in noise.json only if set
RECORDED_SETTINGS = {"labels", "boxes", *RATES, "seed", "clip"}  # always in noise.json
MISSING_ORDERS = ("random", "small")
SPURIOUS_PLACES = ("random", "corners", "part", "clutter")
PRESETS = ("una",)


@dataclass(frozen=True)
class NoiseSettings:
    """The kinds and amounts of noise; rates are shares of the eligible annotations.

    All annotations are eligible except crowd and difficult objects and those whose image, label
    or box is unknown.
    """

    labels: str | None = None
    """One of "symmetric:RATE", "any:RATE", "pair:RATE", "matrix:FILE"."""
    boxes: str | None = None
    """One of "uniform:N", "gaussian:SIGMA", "jitter:N", "redraw:M"; the amount is in shares of the
    sides."""
    missing: float = 0.0
    spurious: float = 0.0
    duplicate: float = 0.0
    subset: float = 1.0
    """The share of annotations that label and box noise may change."""
    seed: int = 0
    clip: bool = True
    """Whether disturbed boxes end at the border of their image, where its size is known."""
    look_alikes: float = 0.0
    """The share of annotations that get the label of a look-alike, besides `labels`."""
    look_alike_pairs: tuple[str, ...] = ()
    """Classes that look alike, like "cat/dog"; without any, the confusions of the detections."""
    gross_boxes: float = 0.0
    """The share of boxes that get `gross_noise` in place of `boxes`."""
    gross_noise: str = "uniform:0.4"
    """Noise like `boxes`."""
    missing_order: str = "random"
    """"random", or "small": the chance is inversely proportional to the area of the box."""
    spurious_at: str = "random"
    """"random", "corners", "part" (half an object) or "clutter"; several, joined by commas, take
    turns."""

    def __post_init__(self) -> None:
        for name in (*RATES, *LATER_RATES):
            _check_share(name, getattr(self, name))
        if not isinstance(self.seed, int) or self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}; expected a whole number from 0 on, like 0")
        if self.labels is not None:
            kind, amount = split_amount("labels", self.labels, LABEL_NOISES, "symmetric:0.4")
            if kind != "matrix":
                _check_amount("labels", self.labels, amount, example=f"{kind}:0.4")
        if self.boxes is not None:
            _check_box_noise("boxes", self.boxes)
        _check_box_noise("gross_noise", self.gross_noise)
        if self.missing_order not in MISSING_ORDERS:
            raise UsageError(
                f"missing_order is {self.missing_order!r}; expected {' or '.join(MISSING_ORDERS)}"
            )
        if not self.spurious_places or not set(self.spurious_places) <= set(SPURIOUS_PLACES):
            raise UsageError(
                f"spurious_at is {self.spurious_at!r}; expected {', '.join(SPURIOUS_PLACES)}, or "
                "several of them, like part,clutter"
            )

    @property
    def spurious_places(self) -> tuple[str, ...]:
        """The places where annotations are invented, in turns."""
        return tuple(self.spurious_at.split(",")) if isinstance(self.spurious_at, str) else ()

    @property
    def needs_detections(self) -> bool:
        """Whether this noise needs the detections of a detector."""
        has_clutter = self.spurious > 0 and "clutter" in self.spurious_places
        return has_clutter or (self.look_alikes > 0 and not self.look_alike_pairs)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; settings that are not in RECORDED_SETTINGS appear only if set.

        The records of noise that earlier versions could make therefore keep their bytes.
        """
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
            if name in RECORDED_SETTINGS or value != defaults[name]
        }


def make_preset(text: str, seed: int = 0, *, clip: bool = True) -> NoiseSettings:
    """Return the settings of a published kind of noise; "una:RATE" is the only one.

    UNA (universal noise annotation) has equal shares of missing annotations, redrawn boxes, labels
    of any class and invented annotations.
    """
    _, amount = split_amount("preset", text, PRESETS, "una:0.2")
    _check_amount("preset", text, amount, example="una:0.2")
    rate = float(amount)
    return NoiseSettings(
        labels=f"any:{amount}",
        missing=rate,
        spurious=rate,
        spurious_at="corners",
        gross_boxes=rate,
        gross_noise="redraw:0.5",
        seed=seed,
        clip=clip,
    )


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


def _check_box_noise(name: str, text: str) -> None:
    """Raise a UsageError if a text is not a kind of box noise with an amount."""
    kind, amount = split_amount(name, text, tuple(BOX_NOISES), "uniform:0.4")
    most = sys.float_info.max if kind == "gaussian" else 1.0
    _check_amount(name, text, amount, example=f"{kind}:0.25", most=most)


def _check_amount(name: str, text: str, amount: str, *, example: str, most: float = 1.0) -> None:
    """Raise a UsageError if the amount is not a number from 0 to `most`."""
    try:
        number = float(amount)
    except ValueError:
        number = math.nan
    if not 0 <= number <= most:
        expected = "from 0 to 1" if most == 1 else "from 0 on"
        raise UsageError(f"{name} is {text!r}; expected an amount {expected}, like {example}")
