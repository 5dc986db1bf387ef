"""Scales: the settings that all trainings of a grid share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boxmend.bench.grids.cells import Cell, resolved_variant
from boxmend.bench.grids.table_spec import GIVEN_TRUE_RATES, TWO_STAGE, TableLayout, noise_rate
from boxmend.data.files.locks import wait_for_lock
from boxmend.data.synth import synthesize
from boxmend.errors import UsageError
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.runs.settings.files import convert_settings

SMOKE_IMAGES = 300  # four fifths of them are for training
SMOKE_SIZE = 96  # pixels; the tiny detector is made for this size
SMOKE_NOISE = "label40-box40"


@dataclass(frozen=True)
class Scale:
    """The settings that all trainings of a grid share."""

    name: str
    summary: str
    settings: Mapping[str, Any]
    """The settings that differ from the defaults of `TrainSettings`, nested as there."""
    is_embedded: bool = False
    """Whether it trains on the drawn toys, which need no address, and on few noise settings."""


SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "paper",
            "images at 600/1000, 12 epochs, batch size 16 and mmdetection's numbers, as published",
            {
                "preset": "paper",
                "image_size": "600/1000",
                "epochs": 12,
                "batch_size": 16,
                "proposals": 1000,  # explicit, because mend does not use the preset
                "pre_nms": 2000,
                "rois": 512,
            },
        ),
        Scale(
            "voc320",
            "images at 320, 12 epochs, batch size 16, 300 proposals, 128 RoIs (minutes on a GPU)",
            {
                "image_size": "320",
                "epochs": 12,
                "batch_size": 16,
                "proposals": 300,
                "pre_nms": 1000,
                "rois": 128,
            },
        ),
        Scale(
            "smoke",
            "drawn toys, the tiny detector, 5 epochs, clean data and one noise setting (minutes)",
            {
                "detector": "tiny",
                "image_size": str(SMOKE_SIZE),
                "epochs": 5,
                "warm_up": 0.4,
                "batch_size": 8,
                "log_every": 5,
                "checkpoint_every": 20,
                "optimisation": {
                    "optimizer": "adamw",
                    "lr": 0.003,
                    "schedule": "cosine",
                    "warm_up_steps": 10,
                },
            },
            is_embedded=True,
        ),
    )
}


@dataclass(frozen=True)
class Sources:
    """Addresses of clean data, to train and to score on."""

    train: tuple[str, ...]
    val: tuple[str, ...]


def get_scale(name: str) -> Scale:
    """Return a scale by its name; raise a UsageError for an unknown one."""
    if name not in SCALES:
        raise UsageError(f"there is no scale {name!r}; there are {', '.join(SCALES)}")
    return SCALES[name]


def find_sources(scale: Scale, root: Path, train: Sequence[str], val: Sequence[str]) -> Sources:
    """Return the addresses of the data of a grid; draw those of an embedded scale if needed.

    Raises a UsageError if an option is missing or does not apply.
    """
    if scale.is_embedded:
        if train or val:
            raise UsageError(f"--scale {scale.name} draws its data: leave out --data and --val")
        folder = root / "data"
        with wait_for_lock(root / ".data.lock"):
            if not folder.is_dir():
                synthesize(folder, images=SMOKE_IMAGES, size=SMOKE_SIZE)
        return Sources((f"{folder}:train",), (f"{folder}:val",))
    for option, addresses, purpose in (
        ("--data", train, "clean data to train on"),
        ("--val", val, "clean data to score on"),
    ):
        if not addresses:
            raise UsageError(
                f"--scale {scale.name} needs {purpose}: give {option} PATH or PATH:SPLIT "
                f"(--scale smoke needs none)"
            )
    return Sources(tuple(train), tuple(val))


def fit_layout(scale: Scale, layout: TableLayout) -> TableLayout:
    """Return the layout as this scale runs it.

    An embedded scale keeps the columns of clean data and one noisy column: 40/40, or the last one
    if the table has no such column.
    """
    if not scale.is_embedded:
        return layout
    clean = [
        column
        for column in layout.columns
        if not (column.labels or column.boxes or column.presence)
    ]
    noisy = [column for column in layout.columns if column not in clean]
    smoke = [column for column in noisy if column.name.startswith(SMOKE_NOISE)]
    run = [column for column in noisy if layout.only.get(column.name) != ()]
    return replace(layout, columns=(*clean, *(smoke or run[-1:])))


def cell_settings(
    cell: Cell, scale: Scale, weights: Path | None, changes: Mapping[str, Any]
) -> TrainSettings:
    """Resolve the settings of a cell: those of the scale, then `changes`, then the cell's own.

    `changes` has values, or their texts, by dotted names. A UsageError names an unknown setting.
    """
    method = "baseline" if cell.method == TWO_STAGE else cell.method
    document = _copy_nested({}, scale.settings)
    if method == "mend":
        document.pop("preset", None)  # it would turn mend into mend-paper
    if weights is not None:
        document["weights"] = str(weights.absolute())
    _set_values(document, changes)
    convert_settings(
        "--set", document, strict=False
    )  # checks the settings before the cell adds its own
    rates = {"label_noise": noise_rate(cell.labels), "box_noise": noise_rate(cell.boxes)}
    if method in GIVEN_TRUE_RATES:
        document |= rates
    epochs = int(document.get("epochs", TrainSettings().epochs))
    _set_values(document, resolved_variant(dict(cell.variant), rates, epochs))
    document |= {"method": method, "seed": cell.seed}
    return resolve_settings(convert_settings(cell.name, document, strict=False))


def _copy_nested(into: dict[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a table with its nested tables."""
    for key, value in table.items():
        into[key] = _copy_nested({}, value) if isinstance(value, Mapping) else value
    return into


def _set_values(document: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set values by their dotted names."""
    for name, value in values.items():
        *tables, key = name.split(".")
        place = document
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise UsageError(f"--set {name}: no such setting")
        place[key] = value
