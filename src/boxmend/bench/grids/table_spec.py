"""The specification of a table: its rows and columns, and the cell of each entry.

    cell_specs(layout)  -> one CellSpec per entry that is run: noise, method, variant
    CellSpec.variant    equals `Result.variant`; an entry finds its results by it, together with
                        noise, method and scale

Several entries may use the same cell (`clean` does so in every column). A variant has settings by
their dotted names. Two values depend on the cell: TRUE_RATE is the rate of its noise, TWICE_EPOCHS
twice the epochs of the scale. A setting that equals the default of a method (N of 128 in the
paper's method) is not a variant: the entry shares the plain cell.

The name of a column is the first part of the name of its cells: label noise, box noise, and missing
or spurious annotations, if any.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, NamedTuple

from boxmend.runs.settings import PublishedSettings
from boxmend.runs.settings.presets import PRESETS, Preset

TRUE_RATE = "true"
"""The value of label_noise or box_noise that stands for the true rate; 0 without noise."""
TWICE_EPOCHS = "twice"
"""The value of epochs that stands for twice the epochs of the scale."""
TWO_STAGE = "two-stage"
"""The method `mend`, then `baseline` trained from scratch on the mended annotations."""

GIVEN_TRUE_RATES = frozenset(
    {"co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "cm", "cinj", "pseudo", "mend-paper"}
)
"""Methods whose cells are given both true noise rates, as their papers assume."""

Variant = Mapping[str, bool | int | float | str]


def _list_recipe(preset: Preset) -> Variant:
    """Return the settings of a preset that form the recipe of a training, by dotted names.

    Numbers of proposals and RoIs belong to the scale, and averaged weights to AVERAGED_WEIGHTS.
    """
    return {
        "box_loss": preset.box_loss,
        "difficult": preset.difficult,
        "optimisation.max_norm": preset.max_norm,
        "rpn_low_quality": preset.rpn_low_quality,
    }


COMMON_RECIPE = _list_recipe(PRESETS["default"])
"""The variant of the published method with the recipe of all other methods."""
PUBLISHED_RECIPE = _list_recipe(PRESETS["paper"])
"""The variant of another method with the recipe of the published method."""
AVERAGED_WEIGHTS: Variant = {"optimisation.average_decay": PRESETS["default"].average_decay}
"""The variant of another method with the averaged weights of `mend`."""


class References(NamedTuple):
    """The names of the two rows between which the share of a row is computed."""

    baseline: str = "baseline"
    """Without accuracy recovered: a share of 0; also the reference of differences."""
    clean: str = "clean"
    """Without accuracy lost: a share of 1."""


PLAIN_REFERENCES = References()


@dataclass(frozen=True)
class Column:
    """A noise setting."""

    name: str
    """Unique in its table: label40-box40, pair40-box0, label0-oamil40, label0-box0-missing20."""
    title: str
    labels: str | None = None
    """KIND:RATE as in `boxmend noise`; None for clean labels."""
    boxes: str | None = None
    metric: str | None = None
    """The score of this column, whatever metric is requested; None for that of the table."""
    presence: str | None = None
    """missing:RATE, spurious:RATE or una:RATE; None if neither."""


@dataclass(frozen=True)
class Row:
    """A method, or one of its variants; a row without a method has published figures only."""

    name: str
    method: str | None
    variant: Variant = field(default_factory=dict)
    is_clean: bool = False
    """Whether it is the reference, which is trained without noise in every column."""
    figure: str | None = None
    """The dotted place in `Result` of a figure to show instead of a score, like
    mending.labels.noise_after."""
    is_apart: bool = False
    """Whether its published figures are of another detector, so that shares are not comparable."""
    references: References = PLAIN_REFERENCES
    """The rows with which it is compared."""
    is_share_only: bool = False
    """Whether another row shows its figures, and this one its share by other references."""


@dataclass(frozen=True)
class TableLayout:
    """The rows and columns of a table."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The names of the rows to run, by column; all rows of a column that is not listed."""
    compare: Literal["share", "difference", "none"] = "share"
    """The figures of the second table: shares of the lost accuracy, or differences to baseline."""
    metric: str = "voc_ap50_area"
    """The score that is shown by default."""
    records: str = ""
    """The table of published.toml with the published figures, if its name is different."""

    def is_run(self, row: Row, column: Column) -> bool:
        """Return whether an entry is run; other entries show published figures only."""
        rows = self.only.get(column.name)
        return row.method is not None and (rows is None or row.name in rows)


class CellSpec(NamedTuple):
    """The cell of an entry that is run, without its seed."""

    row: Row
    column: Column
    labels: str | None
    boxes: str | None
    method: str
    variant: Variant
    presence: str | None = None


def cell_specs(table: TableLayout) -> Iterator[CellSpec]:
    """Yield the cells of all entries that are run, row by row."""
    for row, column in product(table.rows, table.columns):
        if table.is_run(row, column):
            yield cell_spec(row, column)


def cell_spec(row: Row, column: Column) -> CellSpec:
    """Return the cell of a row and a column; the row must have a method."""
    assert row.method is not None
    labels, boxes, presence = (
        (None, None, None) if row.is_clean else (column.labels, column.boxes, column.presence)
    )
    implied = _implied_settings(row.method, labels, boxes)
    variant = {
        name: value
        for name, value in row.variant.items()
        if name not in implied or implied[name] != value
    }
    return CellSpec(row, column, labels, boxes, row.method, variant, presence)


def noise_rate(noise: str | None) -> float:
    """Return the rate in KIND:RATE; 0 without noise."""
    return float(noise.partition(":")[2]) if noise else 0.0


def _implied_settings(method: str, labels: str | None, boxes: str | None) -> Variant:
    """Return the settings that the cell of a method has without a variant."""
    if method not in GIVEN_TRUE_RATES:
        return {}
    paper = PublishedSettings()
    implied: dict[str, bool | int | float | str] = {
        "label_noise": noise_rate(labels),
        "box_noise": noise_rate(boxes),
        "published.queue_length": paper.queue_length,
        "published.fit_threshold": paper.fit_threshold,
        "published.confidence": paper.confidence,
    }
    if boxes:
        implied["published.alpha"] = min(max(noise_rate(boxes), 0.2), 0.4)  # as published
    return implied
