"""Writing a ledger: rows are collected and go to disk in parts of a fixed length.

Where a part ends depends on nothing but the number of rows before it, so that a run that was
killed and resumed leaves the same files, byte for byte, as one that was not. Rows of a part that
is not full travel in the state that a checkpoint keeps.
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
    columns_of,
    empty_table,
    from_table,
    to_table,
    vacant_columns,
)
from boxmend.runs.ledger.parts import (
    checked_parts,
    folder_of,
    metadata_of,
    part_numbers,
    part_path,
    write_part,
)

ROWS_PER_PART = 2**16  # 7 MB in memory, 3.4 MB as a file, at most 4 MB in a checkpoint


class LedgerState(TypedDict):
    """All that a checkpoint must keep of a ledger, in numbers and one array of bytes."""

    num_rows: int
    rows_per_part: int
    last_epoch: int
    pending: NDArray[np.uint8]  # the rows after the last full part, as an Arrow stream


class Ledger:
    """The ledger of a run that is going on; `create` or `resume` one.

    In memory are the rows of one part at most, whatever the length of the run.
    """

    def __init__(self, folder: Path, rows_per_part: int) -> None:
        self._folder = folder
        self._rows_per_part = rows_per_part
        self._num_rows = 0
        self._last_epoch = 0
        self._buffer: Columns | None = None  # made when the types of the ids are known

    @classmethod
    def create(cls, run_dir: str | Path, *, rows_per_part: int = ROWS_PER_PART) -> Ledger:
        """Begin an empty ledger in RUN_DIR/ledger; an OutputError if there is one already."""
        ledger = cls(_made_folder(Path(run_dir)), _checked_rows_per_part(rows_per_part))
        if part_numbers(ledger._folder):
            raise OutputError(f"{ledger._folder}: there is a ledger already; it is not overwritten")
        return ledger

    @classmethod
    def resume(
        cls,
        run_dir: str | Path,
        state: LedgerState | None,
        *,
        rows_per_part: int = ROWS_PER_PART,
    ) -> Ledger:
        """Go on from where `state` was taken; what was written later is removed.

        Without a state, that is everything: nothing had been saved, and the run begins anew. A
        DataError tells of parts that the state counts on and that are missing or damaged.
        """
        rows_per_part = state["rows_per_part"] if state is not None else rows_per_part
        ledger = cls(_made_folder(Path(run_dir)), _checked_rows_per_part(rows_per_part))
        pending = None
        if state is not None:
            ledger._num_rows, ledger._last_epoch = state["num_rows"], state["last_epoch"]
            pending = _pending_rows(state)
        ledger._truncate()
        if pending is not None and ledger._num_rows:
            ledger._buffer = vacant_columns(rows_per_part, pending)
            ledger._fill(pending, at=0)
        return ledger

    @property
    def num_rows(self) -> int:
        """How many entries were appended in all, from the beginning of the run."""
        return self._num_rows

    def append(self, entries: Entries) -> None:
        """Add entries; a ValueError, and nothing added, where they do not fit what was before."""
        columns = columns_of(entries)
        if not len(entries):
            return
        self._check_epochs(columns["epoch"])
        if self._buffer is None:
            self._buffer = vacant_columns(self._rows_per_part, columns)
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
        """Put all entries on disk, the last ones as a short part that a longer one may replace.

        Call it when the run ends; at any other time it does no harm, and makes `read` see all.
        """
        if pending := self._num_rows % self._rows_per_part:
            self._write(self._num_rows // self._rows_per_part, pending)

    def state(self) -> LedgerState:
        """What `resume` needs; it shares nothing with the ledger and stays as it is."""
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
        """The first rows of the buffer."""
        if self._buffer is None:
            return empty_table()
        columns = {name: values[:num_rows] for name, values in self._buffer.items()}
        return to_table(columns, metadata)

    def _fill(self, columns: Columns, at: int) -> None:
        assert self._buffer is not None
        for name, values in columns.items():
            self._buffer[name][at : at + len(values)] = values

    def _write(self, number: int, num_rows: int) -> None:
        table = self._table(num_rows, metadata_of(number, self._rows_per_part))
        with open_atomic(part_path(self._folder, number)) as file:
            write_part(table, file)

    def _truncate(self) -> None:
        """Remove what was written after the rows that count, from the end backwards."""
        num_full = self._num_rows // self._rows_per_part
        numbers = part_numbers(self._folder)
        checked = checked_parts(self._folder, [one for one in numbers if one < num_full])
        if len(checked) < num_full or any(p.num_rows != self._rows_per_part for p in checked):
            missing = part_path(self._folder, len(checked))
            raise DataError(f"{missing}: is missing or short; the checkpoint counts on it")
        try:
            for number in reversed(numbers[num_full:]):
                part_path(self._folder, number).unlink()
            remove_leftovers(self._folder)
        except OSError as error:
            reason = error.strerror or error
            raise OutputError(f"{self._folder}: could not be cut back ({reason})") from error

    def _check_epochs(self, epochs: NDArray[np.int32]) -> None:
        if epochs[0] < self._last_epoch or (np.diff(epochs) < 0).any():
            raise ValueError("epochs must not fall: entries are appended as they happen")

    def _check_ids(self, columns: Columns, buffer: Columns) -> None:
        for name in ID_COLUMNS:
            if columns[name].dtype != buffer[name].dtype:
                raise ValueError(
                    f"{name} was {buffer[name].dtype}, now it is {columns[name].dtype}"
                )


def _made_folder(run_dir: Path) -> Path:
    folder = folder_of(run_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"{folder}: could not be made ({reason})") from error
    return folder


def _checked_rows_per_part(rows_per_part: int) -> int:
    if rows_per_part < 1:
        raise ValueError("rows_per_part must be at least 1")
    return rows_per_part


def _pending_rows(state: LedgerState) -> Columns:
    try:
        with pa.ipc.open_stream(pa.py_buffer(state["pending"].tobytes())) as stream:
            columns = from_table(stream.read_all())
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataError(f"the ledger's state in the checkpoint is damaged ({error})") from error
    if len(columns["epoch"]) != state["num_rows"] % state["rows_per_part"]:
        raise DataError("the ledger's state in the checkpoint is damaged (its rows do not add up)")
    return columns
