"""Write a ledger: rows are collected in memory and written in parts of a fixed length.

Parts depend on the number of rows only, so a run that was killed and resumed has the same files,
byte for byte, as an uninterrupted one. A checkpoint keeps the rows of the incomplete part.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.temporary import remove_leftovers
from boxmend.errors import DataError, OutputError
from boxmend.runs.ledger.entries import (
    ID_COLUMNS,
    Columns,
    Entries,
    allocate_columns,
    empty_table,
    entries_to_columns,
    from_table,
    to_table,
)
from boxmend.runs.ledger.parts import (
    REMEDY,
    ledger_folder,
    part_metadata,
    part_numbers,
    part_path,
    read_footers,
    write_part,
)

ROWS_PER_PART = 2**16  # 7 MB in memory, 3.4 MB as a file, at most 4 MB in a checkpoint


class LedgerState(TypedDict):
    """The state of a ledger in a checkpoint: numbers and one array of bytes."""

    num_rows: int
    rows_per_part: int
    last_epoch: int
    pending: NDArray[np.uint8]  # the rows after the last full part, as an Arrow stream


class Ledger:
    """The ledger of a running training; `create` or `resume` returns one.

    It keeps the rows of at most one part in memory.
    """

    def __init__(self, folder: Path, rows_per_part: int) -> None:
        self._folder = folder
        self._rows_per_part = rows_per_part
        self._num_rows = 0
        self._last_epoch = 0
        self._buffer: Columns | None = None  # allocated when the types of the ids are known

    @classmethod
    def create(cls, run_dir: str | Path, *, rows_per_part: int = ROWS_PER_PART) -> Ledger:
        """Create an empty ledger in RUN_DIR/ledger; raise an OutputError if there is one."""
        ledger = cls(_make_folder(Path(run_dir)), _check_rows_per_part(rows_per_part))
        if part_numbers(ledger._folder):
            raise OutputError(f"{ledger._folder}: has a ledger already; name a new folder")
        return ledger

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        state: LedgerState | None,
        *,
        rows_per_part: int = ROWS_PER_PART,
    ) -> Ledger:
        """Continue from `state` and remove the entries that were written after it.

        Without a state, all entries are removed and the run starts again. Raises a DataError if
        parts from before the state are missing or damaged.
        """
        rows_per_part = state["rows_per_part"] if state is not None else rows_per_part
        ledger = cls(_make_folder(Path(run_dir)), _check_rows_per_part(rows_per_part))
        pending = None
        if state is not None:
            ledger._num_rows, ledger._last_epoch = state["num_rows"], state["last_epoch"]
            pending = _decode_pending(state)
        ledger._truncate()
        if pending is not None and ledger._num_rows:
            ledger._buffer = allocate_columns(rows_per_part, pending)
            ledger._fill(pending, at=0)
        return ledger

    @property
    def num_rows(self) -> int:
        """Return the number of entries since the start of the run."""
        return self._num_rows

    def append(self, entries: Entries) -> None:
        """Append entries; raise a ValueError and append none if they do not fit earlier ones."""
        columns = entries_to_columns(entries)
        if not len(entries):
            return
        self._check_epochs(columns["epoch"])
        if self._buffer is None:
            self._buffer = allocate_columns(self._rows_per_part, columns)
        self._check_ids(columns, self._buffer)
        begin = 0
        while begin < len(entries):
            at = self._num_rows % self._rows_per_part
            end = min(begin + self._rows_per_part - at, len(entries))
            self._fill({name: values[begin:end] for name, values in columns.items()}, at)
            self._num_rows += end - begin
            begin = end
            if self._num_rows % self._rows_per_part == 0:
                self._write(self._num_rows // self._rows_per_part - 1, self._rows_per_part)
        self._last_epoch = int(columns["epoch"][-1])

    def flush(self) -> None:
        """Write all entries to disk, the last ones as a short part that a longer one may replace.

        Call it at the end of the run, or before `read` should return all entries.
        """
        if pending := self._num_rows % self._rows_per_part:
            self._write(self._num_rows // self._rows_per_part, pending)

    def state(self) -> LedgerState:
        """Return a copy of the state that `resume` needs."""
        pending = self._table(self._num_rows % self._rows_per_part, {})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(
            sink, pending.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as stream:
            stream.write_table(pending)
        return {
            "num_rows": self._num_rows,
            "rows_per_part": self._rows_per_part,
            "last_epoch": self._last_epoch,
            "pending": np.frombuffer(sink.getvalue(), np.uint8).copy(),
        }

    def _table(self, num_rows: int, metadata: dict[bytes, bytes]) -> pa.Table:
        """Return the first rows of the buffer as a table."""
        if self._buffer is None:
            return empty_table()
        columns = {name: values[:num_rows] for name, values in self._buffer.items()}
        return to_table(columns, metadata)

    def _fill(self, columns: Columns, at: int) -> None:
        assert self._buffer is not None
        for name, values in columns.items():
            self._buffer[name][at : at + len(values)] = values

    def _write(self, number: int, num_rows: int) -> None:
        table = self._table(num_rows, part_metadata(number, self._rows_per_part))
        with open_atomic(part_path(self._folder, number)) as file:
            write_part(table, file)

    def _truncate(self) -> None:
        """Remove the parts after the rows that count, from the last one backwards."""
        num_full = self._num_rows // self._rows_per_part
        numbers = part_numbers(self._folder)
        parts = read_footers(self._folder, [number for number in numbers if number < num_full])
        if len(parts) < num_full or any(part.num_rows != self._rows_per_part for part in parts):
            missing = part_path(self._folder, len(parts))
            raise DataError(
                f"{missing}: is missing or short, but the checkpoint needs it; {REMEDY}"
            )
        try:
            for number in reversed(numbers[num_full:]):
                part_path(self._folder, number).unlink()
            remove_leftovers(self._folder)
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(
                f"{self._folder}: its last parts could not be removed ({reason})"
            ) from error

    def _check_epochs(self, epochs: NDArray[np.int32]) -> None:
        if epochs[0] < self._last_epoch or (np.diff(epochs) < 0).any():
            raise ValueError("epochs must be ascending")

    def _check_ids(self, columns: Columns, buffer: Columns) -> None:
        for name in ID_COLUMNS:
            if columns[name].dtype != buffer[name].dtype:
                raise ValueError(
                    f"{name} was {buffer[name].dtype}, now it is {columns[name].dtype}"
                )


def _make_folder(run_dir: Path) -> Path:
    folder = ledger_folder(run_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{folder}: could not be created ({reason})") from error
    return folder


def _check_rows_per_part(rows_per_part: int) -> int:
    if rows_per_part < 1:
        raise ValueError("rows_per_part must be at least 1")
    return rows_per_part


def _decode_pending(state: LedgerState) -> Columns:
    try:
        with pa.ipc.open_stream(pa.py_buffer(state["pending"].tobytes())) as stream:
            columns = from_table(stream.read_all())
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"the ledger's state in the checkpoint is damaged ({error})") from error
    if len(columns["epoch"]) != state["num_rows"] % state["rows_per_part"]:
        raise DataError("the ledger's state in the checkpoint is damaged (its rows do not add up)")
    return columns
