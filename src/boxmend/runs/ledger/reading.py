"""Reading a ledger: whole, some columns, or the last epoch."""

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
    checked_parts,
    folder_of,
    part_numbers,
    unreadable,
)


def read(
    run_dir: str | Path, columns: Sequence[str] | None = None, *, last_epoch_only: bool = False
) -> pa.Table:
    """The entries of a run's ledger in the order they were made, as an Arrow table.

    `columns` are some of COLUMNS, in any order (all by default): of a large ledger, take what is
    needed. Entries not flushed yet are not there. A DataError tells of a part that is missing
    before others, damaged or foreign; a part missing at the end leaves no gap to be noticed.
    """
    wanted = list(COLUMNS if columns is None else columns)
    unknown = [name for name in wanted if name not in COLUMNS]
    if unknown:
        raise UsageError(f"no column {unknown[0]!r} in a ledger; there are {', '.join(COLUMNS)}")
    folder = folder_of(Path(run_dir))
    parts = checked_parts(folder, part_numbers(folder))
    if not parts:
        return empty_table().select(wanted)
    if last_epoch_only:
        return pa.concat_tables(_last_epoch(parts, wanted))
    return pa.concat_tables([_read_part(part, wanted) for part in parts])


def _last_epoch(parts: Sequence[LedgerPart], wanted: list[str]) -> list[pa.Table]:
    """From the end backwards as far as the last epoch reaches, which is no farther than needed."""
    found: list[pa.Table] = []
    last = None
    for part in reversed(parts):
        table = _read_part(part, list(dict.fromkeys([*wanted, "epoch"])))
        epochs = table["epoch"]
        last = epochs[-1] if last is None else last
        found.insert(0, table.filter(pc.equal(epochs, last)).select(wanted))
        if epochs[0] != last:
            break
    return found


def _read_part(part: LedgerPart, columns: list[str]) -> pa.Table:
    try:
        table = read_parquet(part.path, columns, remedy=REMEDY)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise unreadable(part.path, error) from error
    if len(table) != part.num_rows:
        raise DataError(f"{part.path}: changed while it was read")
    return table.select(columns).replace_schema_metadata(None)
