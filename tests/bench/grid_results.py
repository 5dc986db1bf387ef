"""Results made up for tests: the fields that a test does not name are all alike."""

from hashlib import sha256
from typing import Any

from boxmend.bench.grids.results import Data, Noise, Result
from boxmend.bench.grids.table_spec import CellSpec

SETTINGS: dict[str, Any] = {
    "method": "baseline",
    "preset": "default",
    "label_noise": "auto",
    "box_noise": "auto",
    "detector": "resnet50",
    "weights": "default",
    "image_size": "320",
    "epochs": 12,
    "batch_size": 16,
    "seed": 0,
    "box_loss": "smooth_l1",
    "optimisation": {"lr": 0.02},
    "mend": {"raw_box_min_share": 0.4},
    "published": {"queue_length": 128},
}


def result(
    method: str = "baseline",
    ap50: float | None = 0.5,
    *,
    noise: tuple[str | None, ...] = (None, None),
    seed: int = 0,
    **others: Any,
) -> Result:
    """A finished cell with one score; `others` are fields of `Result`."""
    labels, boxes, presence = (*noise, None)[:3]
    variant = others.get("variant", {})
    name = "~".join([method, *(f"{key}.{value}" for key, value in variant.items())])
    values: dict[str, Any] = {
        "cell": f"{'-'.join(map(str, noise))}-{name}-{seed}".replace(":", ""),
        "scale": "voc320",
        "noise": Noise(labels, boxes, seed if any(noise) else 0, presence),
        "method": method,
        "seed": seed,
        "settings": SETTINGS | {"method": method, "seed": seed},
        "data": Data("a" * 64, noisy_hash(noise, seed), "c" * 64),
        "versions": {"boxmend": "0.1.0", "torch": "2.15.0"},
        "hardware": "one GPU",
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 60.0,
        "scores": {} if ap50 is None else {"voc_ap50_area": ap50, "voc_ap50_11point": ap50 - 0.01},
    }
    return Result(**(values | others))


def noisy_hash(noise: tuple[str | None, ...], seed: int) -> str:
    """A hash as the noise and its seed would give it."""
    return sha256(repr((*noise, seed)).encode()).hexdigest() if any(noise) else "a" * 64


def result_of(asked: CellSpec, ap50: float, seed: int = 0, **others: Any) -> Result:
    """The result of a square of a layout."""
    noise = (asked.labels, asked.boxes, asked.presence)
    return result(asked.method, ap50, noise=noise, seed=seed, variant=dict(asked.variant), **others)
