"""A table of results, such as fixes, rates, changes or the ledger, around an Arrow table."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from boxmend.errors import BoxmendError, UsageError

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Rows = slice | NDArray[np.integer[Any]] | NDArray[np.bool_] | Sequence[int] | Sequence[bool]

MAX_TEXT_ROWS = 5  # of `repr`, which has at most ten lines
MAX_HTML_ROWS = 10
MAX_CELL_CHARACTERS = 24
MAX_HTML_CELL_CHARACTERS = 80
MAX_LINE_CHARACTERS = 100
CELL_STYLE = ' style="text-align: left; white-space: nowrap"'


class Table:
    """Rows with named columns, which convert to Arrow and pandas.

    `table[0]` is a row as a dict, `table[:10]` and `table[mask]` are tables, and `table["name"]` is
    a column as a NumPy array. `filter` selects rows by values.
    """

    def __init__(
        self, data: pa.Table, rows_name: str, choices: Mapping[str, Sequence[str]] | None = None
    ):
        """`rows_name` is for `repr`; `choices` are the possible values of some columns."""
        self._data = data
        self._rows_name = rows_name
        self._choices = dict(choices or {})

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._data.column_names)

    def filter(self, mask: Any = None, /, **values: Any) -> Table:
        """Return the rows that a mask marks and that have these values in these columns.

        A value may be a list, tuple or set of values: `table.filter(kind=["missing", "spurious"])`.
        """
        table = self if mask is None else self[_to_mask(mask, len(self))]
        for name, wanted in values.items():
            column = table._column(name)
            options = list(wanted) if isinstance(wanted, list | tuple | set) else [wanted]
            table._check_choices(name, options)
            try:
                value_set = pa.array(options, column.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UsageError(
                    f"{name} is {wanted!r}, but the column has values of type {column.type}"
                ) from error
            table = table._with(table._data.filter(pc.is_in(column, value_set=value_set)))
        return table

    def to_arrow(self) -> pa.Table:
        """Return the table as a `pyarrow.Table`."""
        return self._data

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a `pandas.DataFrame`; raise a BoxmendError without pandas."""
        return to_pandas(self._data)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the table to libraries that read Arrow streams, such as Polars and DuckDB."""
        stream: object = self._data.__arrow_c_stream__(requested_schema)
        return stream

    def __len__(self) -> int:
        return int(self._data.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._data.to_batches(max_chunksize=1024):
            yield from batch.to_pylist()

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Row: ...
    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: Rows) -> Table: ...
    def __getitem__(self, key: int | np.integer[Any] | str | Rows) -> Row | NDArray[Any] | Table:
        if isinstance(key, str):
            column: NDArray[Any] = self._column(key).to_numpy()
            return column
        if isinstance(key, slice):
            return self._with(self._data.take(pa.array(range(*key.indices(len(self))), pa.int64())))
        if not hasattr(key, "__len__"):
            row = self._row_number(key)
            cells: Row = self._data.slice(row, 1).to_pylist()[0]
            return cells
        numbers = np.asarray(key)
        if numbers.dtype == np.bool_:
            return self._with(self._data.filter(pa.array(_to_mask(numbers, len(self)))))
        rows = [self._row_number(number) for number in numbers.tolist()]
        return self._with(self._data.take(pa.array(rows, pa.int64())))

    def __repr__(self) -> str:
        shown = self[:MAX_TEXT_ROWS]
        columns, used = list[list[str]](), 0
        for name in self.columns:
            cells = [name, *(_format(value, MAX_CELL_CHARACTERS) for value in _values(shown, name))]
            width = max(map(len, cells))
            if columns and used + width > MAX_LINE_CHARACTERS:
                break
            columns.append([cell.ljust(width) for cell in cells])
            used += width + 2
        lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
        hidden = len(self.columns) - len(columns)
        notes = [f"{hidden} more columns"] if hidden else []
        notes += [f"{len(self) - len(shown):,} more rows"] if len(self) > len(shown) else []
        return "\n".join([self._title(), *lines, *([", ".join(notes)] if notes else [])])

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, for notebooks."""
        shown = self[:MAX_HTML_ROWS]
        names = "".join(f"<th{CELL_STYLE}>{escape(name)}</th>" for name in self.columns)
        columns = [_values(shown, name) for name in self.columns]
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td{CELL_STYLE}>{escape(_format(cell, MAX_HTML_CELL_CHARACTERS))}</td>"
                for cell in cells
            )
            + "</tr>"
            for cells in zip(*columns, strict=True)
        )
        more = f"<p>{len(self) - len(shown):,} more rows</p>" if len(self) > len(shown) else ""
        return (
            f"<p>{escape(self._title())}</p><table><thead><tr>{names}</tr></thead>"
            f"<tbody>{rows}</tbody></table>{more}"
        )

    def _title(self) -> str:
        return f"{len(self):,} {self._rows_name}"

    def _with(self, data: pa.Table) -> Table:
        return Table(data, self._rows_name, self._choices)

    def _column(self, name: str) -> pa.ChunkedArray:
        if name not in self.columns:
            raise UsageError(
                f"the table has no column {name!r}; its columns are {', '.join(self.columns)}"
            )
        column = self._data[name]
        return (
            column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        )

    def _check_choices(self, name: str, values: Sequence[Any]) -> None:
        choices = self._choices.get(name)
        unknown = [value for value in values if choices is not None and value not in choices]
        if unknown:
            raise UsageError(f"{name} is {unknown[0]!r}; expected {', '.join(choices or ())}")

    def _row_number(self, key: Any) -> int:
        """Return a row number from 0; raise an IndexError beyond the table, as a list does."""
        row = operator.index(key)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a table with {len(self):,} rows")
        return row % len(self)


def make_table(
    columns: Mapping[str, Any], rows_name: str, choices: Mapping[str, Sequence[str]] | None = None
) -> Table:
    """Return a table of these columns."""
    return Table(pa.table(dict(columns)), rows_name, choices)


def to_pandas(data: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame; raise a BoxmendError if pandas is not installed."""
    try:
        import pandas  # noqa: F401  # an optional package, imported only here
    except ModuleNotFoundError as error:
        raise BoxmendError(
            "to_pandas needs pandas, which is not installed: pip install pandas; to_arrow works "
            "without it"
        ) from error
    return data.to_pandas()


def _to_mask(mask: Any, number: int) -> NDArray[np.bool_]:
    """Return a mask as an array; raise a UsageError if it does not have one bool for each row."""
    values = np.asarray(mask)
    if values.dtype != np.bool_ or values.shape != (number,):
        raise UsageError(
            f"mask has type {values.dtype} and shape {values.shape}; expected one bool for each "
            f"of the {number:,} rows"
        )
    return values


def _values(table: Table, name: str) -> list[Any]:
    values: list[Any] = table.to_arrow()[name].to_pylist()
    return values


def _format(value: Any, max_characters: int) -> str:
    """Return a cell as one short line."""
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line if len(line) <= max_characters else f"{line[: max_characters - 1]}…"
