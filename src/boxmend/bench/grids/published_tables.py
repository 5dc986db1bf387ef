"""Published figures by table, row and column: what stands in published.toml, as fractions."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

Percent = Annotated[float, Meta(ge=0, le=100)] | Literal[""]


class PublishedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One published table."""

    source: str
    metric: str
    """What its figures are, by our names; "mending" for figures of the mending."""
    data: str
    columns: list[str]
    rows: dict[str, list[Percent]]
    notes: list[str] = field(default_factory=list)
    """What is odd about it."""

    def fraction(self, row: str, column: str) -> float | None:
        """Give a figure from 0 to 1; None where none was published."""
        if row not in self.rows or column not in self.columns:
            return None
        value = self.rows[row][self.columns.index(column)]
        return None if isinstance(value, str) else round(value / 100, 6)


def get_published(name: str) -> PublishedTable | None:
    """Give the published table of a name; None where there is none."""
    return all_published().get(name)


@cache
def all_published() -> dict[str, PublishedTable]:
    """Read all published tables."""
    text = (files("boxmend.bench.grids") / "published.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, PublishedTable])
