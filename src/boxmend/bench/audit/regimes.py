"""The regimes of the audit suite: kinds and rates of noise that real datasets have."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boxmend.data.noise import NoiseSettings
from boxmend.errors import UsageError

COMMON_LOOK_ALIKES = (
    "cat/dog",
    "bus/car",
    "car/truck",
    "bus/truck",
    "cow/horse",
    "cow/sheep",
    "horse/sheep",
    "bicycle/motorbike",
    "bicycle/motorcycle",
    "chair/sofa",
    "chair/couch",
    "bus/train",
    "cup/bowl",
    "fork/spoon",
    "van/truck",
    "car/van",
)
"""Pairs of classes in common datasets that look alike, where a dataset has both names."""
HARD_PLACES = "part,clutter"
OLD_MIX = NoiseSettings("symmetric:0.2", "uniform:0.2", missing=0.05, spurious=0.05)
COMPANY_MIX = NoiseSettings(
    labels="symmetric:0.015",
    look_alikes=0.015,
    missing=0.05,
    spurious=0.02,
    spurious_at=HARD_PLACES,
    duplicate=0.01,
    boxes="uniform:0.05",
    gross_boxes=0.03,
)


@dataclass(frozen=True)
class Regime:
    """One kind of noise of the suite."""

    name: str
    settings: NoiseSettings

    def with_seed(self, seed: int) -> NoiseSettings:
        """Return the noise with a seed."""
        return replace(self.settings, seed=seed)


def make_regimes(
    label_names: Sequence[str], pairs: Sequence[str] = (), matrix: str | None = None
) -> tuple[Regime, ...]:
    """Return all regimes for a dataset with these label names.

    Look-alikes come from `pairs`, or from the common pairs that the dataset has. The regimes
    "confusions" take them from the confusions of the detector. `matrix` is a file with a label
    matrix for one more regime.
    """
    pairs = tuple(pairs) or tuple(
        pair for pair in COMMON_LOOK_ALIKES if set(pair.split("/")) <= set(label_names)
    )
    noises: dict[str, NoiseSettings] = {}
    for percent in (3, 10, 20):
        noises[f"symmetric-{percent}"] = NoiseSettings(f"symmetric:{percent / 100}")
    for percent in (3, 10):
        noises[f"pair-{percent}"] = NoiseSettings(f"pair:{percent / 100}")
    for percent in (3, 10):
        rate = percent / 100
        if pairs:
            noises[f"look-alikes-{percent}"] = NoiseSettings(
                look_alikes=rate, look_alike_pairs=pairs
            )
        noises[f"confusions-{percent}"] = NoiseSettings(look_alikes=rate)
    if matrix is not None:
        noises["matrix"] = NoiseSettings(f"matrix:{matrix}")
    for amount in (0.1, 0.2, 0.4):
        noises[f"boxes-{amount}"] = NoiseSettings(boxes=f"uniform:{amount}")
    noises["gross-5"] = NoiseSettings(gross_boxes=0.05)
    for percent in (2, 5, 20):
        noises[f"missing-{percent}"] = NoiseSettings(missing=percent / 100)
        noises[f"missing-small-{percent}"] = NoiseSettings(
            missing=percent / 100, missing_order="small"
        )
    for percent in (2, 5):
        noises[f"spurious-{percent}"] = NoiseSettings(spurious=percent / 100)
        noises[f"spurious-hard-{percent}"] = NoiseSettings(
            spurious=percent / 100, spurious_at=HARD_PLACES
        )
    noises["duplicates-1"] = NoiseSettings(duplicate=0.01)
    noises["company-mix"] = replace(COMPANY_MIX, look_alike_pairs=pairs)
    noises["old-mix"] = OLD_MIX
    noises["clean"] = NoiseSettings()
    return tuple(Regime(name, noise) for name, noise in noises.items())


def choose_regimes(regimes: Sequence[Regime], names: Sequence[str]) -> tuple[Regime, ...]:
    """Return the regimes with these names, or all without names; refuse unknown names."""
    known = {regime.name: regime for regime in regimes}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--regimes: no regime {unknown[0]!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) if names else tuple(regimes)
