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

TRUE_RATE = "true"
"""As the value of label_noise or box_noise: the rate that the noise was made with, 0 for none."""
TWICE_EPOCHS = "twice"
"""As the value of epochs: twice the epochs of the scale."""
TWO_STAGE = "two-stage"
"""As a method: `mend`, then `baseline` trained from scratch on the mended annotations."""

GIVEN_TRUE_RATES = frozenset(
    {"co-teaching", "note-rcnn", "ca-bbc", "br", "lr", "cm", "cinj", "pseudo", "mend-paper"}
)
"""Methods whose cells are given both true noise rates, as their papers assume."""

Variant = Mapping[str, bool | int | float | str]


@dataclass(frozen=True)
class Column:
    """One noise setting."""

    name: str
    """Unique in its table: label40-box40, pair40-box0, label0-oamil40, label0-box0-missing20."""
    title: str
    labels: str | None = None
    """KIND:RATE as `boxmend noise` takes it; None: clean labels."""
    boxes: str | None = None
    metric: str | None = None
    """A score that this column shows whatever is asked for; None: the table's."""
    presence: str | None = None
    """missing:RATE or spurious:RATE; None: every object is annotated, and nothing else."""


@dataclass(frozen=True)
class Row:
    """One method, or one of its variants; without a method it is a published record alone."""

    name: str
    method: str | None
    variant: Variant = field(default_factory=dict)
    is_clean: bool = False
    """The reference: trained without noise, whatever the column says."""
    figure: str | None = None
    """A dotted place in `Result` shown instead of a score: mending.labels.noise_after."""
    is_apart: bool = False
    """A published record of another detector: its share of baseline's loss means nothing."""


@dataclass(frozen=True)
class TableLayout:
    """One table."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By column: the rows that are run there; in a column not named here all are."""
    compare: Literal["share", "difference", "none"] = "share"
    """A second table: the share of the lost accuracy recovered, or the difference to baseline."""
    metric: str = "voc_ap50_area"
    """The score that is shown unless another is asked for."""
    records: str = ""
    """The table of published.toml with the figures to show beside, where its name is another."""

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
    """Return the settings that the plain cell of a method has already."""
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
