"""Read the published figures in published.toml, by table, row and column, as fractions."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

Percent = Annotated[float, Meta(ge=0, le=100)] | Literal[""]


class PublishedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A published table."""

    source: str
    metric: str
    """The name of the metric in results; "mending" for figures of the mending."""
    data: str
    columns: list[str]
    rows: dict[str, list[Percent]]
    notes: list[str] = field(default_factory=list)
    """Remarks about the figures."""

    def fraction(self, row: str, column: str) -> float | None:
        """Return a figure from 0 to 1; None if none was published."""
        if row not in self.rows or column not in self.columns:
            return None
        value = self.rows[row][self.columns.index(column)]
        return None if isinstance(value, str) else round(value / 100, 6)


def get_published(name: str) -> PublishedTable | None:
    """Return the published table of a name; None if there is none."""
    return all_published().get(name)


@cache
def all_published() -> dict[str, PublishedTable]:
    """Read all published tables."""
    text = (files("boxmend.bench.grids") / "published.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, PublishedTable])
