"""Read a ledger: all of it, some columns, or the last epoch."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from boxmend.data.files.parquet import read_parquet
from boxmend.errors import DataError, UsageError
from boxmend.runs.ledger.entries import COLUMNS, empty_table
from boxmend.runs.ledger.parts import (
    REMEDY,
    LedgerPart,
    ledger_folder,
    make_read_error,
    part_numbers,
    read_footers,
)


def read(
    run_dir: str | Path, columns: Sequence[str] | None = None, *, last_epoch_only: bool = False
) -> pa.Table:
    """Return the entries of a run's ledger in order, as an Arrow table.

    `columns` are some of COLUMNS in any order; by default all. Entries that were not flushed are
    not included. Raises a DataError if a part is damaged, belongs to another ledger, or is missing
    before later parts; a missing last part cannot be detected here.
    """
    names = list(COLUMNS if columns is None else columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise UsageError(
            f"a ledger has no column {unknown[0]!r}; its columns are {', '.join(COLUMNS)}"
        )
    folder = ledger_folder(Path(run_dir))
    parts = read_footers(folder, part_numbers(folder))
    if not parts:
        return empty_table().select(names)
    if last_epoch_only:
        return pa.concat_tables(_read_last_epoch(parts, names))
    return pa.concat_tables([_read_part(part, names) for part in parts])


def _read_last_epoch(parts: Sequence[LedgerPart], names: list[str]) -> list[pa.Table]:
    """Read the parts from the last one backwards until the last epoch is complete."""
    tables: list[pa.Table] = []
    last = None
    for part in reversed(parts):
        table = _read_part(part, list(dict.fromkeys([*names, "epoch"])))
        epochs = table["epoch"]
        last = epochs[-1] if last is None else last
        tables.insert(0, table.filter(pc.equal(epochs, last)).select(names))
        if epochs[0] != last:
            break
    return tables


def _read_part(part: LedgerPart, columns: list[str]) -> pa.Table:
    try:
        table = read_parquet(part.path, columns, remedy=REMEDY)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise make_read_error(part.path, error) from error
    if len(table) != part.num_rows:
        raise DataError(f"{part.path}: changed while it was read; run the command again")
    return table.select(columns).replace_schema_metadata(None)
