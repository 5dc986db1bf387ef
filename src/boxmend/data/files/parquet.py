"""Read Parquet files from others after a check of the memory that they would take.

Run lengths and dictionaries let a file of a few kilobytes hold billions of values. The footer has
the number of values, so a file can be refused before any value is read.
"""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from boxmend.data.files.digests import read_verified_parquet
from boxmend.data.files.limits import ensure_within_limit, get_limit
from boxmend.data.files.reading import open_file
from boxmend.errors import DataError

TEXT_BYTES = 64  # of a short text as a Python object


def read_parquet(
    path: Path, columns: Sequence[str] | None = None, *, remedy: str | None = None
) -> pa.Table:
    """Read and validate a table; raise a DataError if it is too large or has a column twice.

    Pass a remedy for a file that boxmend wrote: its digest is then checked. A damaged file raises
    pyarrow's errors; anything but a regular file raises an OSError.
    """
    with _open(path, remedy) as file:
        footer = _read_footer(path, file)
        schema = footer.schema_arrow
        refuse_duplicate_columns(path, schema.names)
        size = file.seek(0, os.SEEK_END)
        ensure_plausible_memory(path, estimate_memory_bytes(footer), size)
        texts = [field.name for field in schema if _is_text(field.type)]
        file.seek(0)
        parquet = pq.ParquetFile(file, read_dictionary=texts, page_checksum_verification=True)
        table = parquet.read(None if columns is None else list(columns))
        table.validate(full=True)
    return _expand_dictionaries(path, table, schema, size)


def _read_footer(path: Path, file: BinaryIO) -> pq.ParquetFile:
    """Open a Parquet file; raise a DataError if the name of a column is not valid text."""
    try:
        return pq.ParquetFile(file)
    except UnicodeDecodeError as error:
        message = f"{path}: the name of a column is not valid UTF-8; write the file again"
        raise DataError(message) from error


def _open(path: Path, remedy: str | None) -> BinaryIO:
    return open_file(path) if remedy is None else io.BytesIO(read_verified_parquet(path, remedy))


def estimate_memory_bytes(footer: pq.ParquetFile) -> int:
    """Return the memory that the columns of a file take, by its footer."""
    widths = [_width_bytes(field.type) for field in footer.schema_arrow]
    stored = sum(
        footer.metadata.row_group(k).total_byte_size for k in range(footer.metadata.num_row_groups)
    )
    return max(int(footer.metadata.num_rows) * sum(widths), int(stored))


def ensure_plausible_memory(path: Path, claimed: int, size: int) -> None:
    """Raise a DataError if files of `size` bytes claim too much memory for their size."""
    if claimed > get_limit("expansion") * size:
        what = f"it has {size:,} bytes, and its columns would take more memory than that justifies"
        ensure_within_limit("table_bytes", claimed, path, what)


def refuse_duplicate_columns(path: Path, names: Sequence[str]) -> None:
    """Raise a DataError if two columns have the same name."""
    repeated = [name for k, name in enumerate(names) if name in names[:k]]
    if repeated:
        raise DataError(f"{path}: has the column {repeated[0]!r:.80} twice; remove one")


def _expand_dictionaries(path: Path, table: pa.Table, schema: pa.Schema, size: int) -> pa.Table:
    """Replace dictionary columns by plain texts unless that takes too much memory."""
    expanded = sum(
        pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
        for column in table.columns
        if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type)
        for chunk in column.chunks
    )
    ensure_plausible_memory(path, table.nbytes + expanded, size)
    plain_schema = pa.schema([schema.field(name) for name in table.column_names], schema.metadata)
    return table.cast(plain_schema)


def _is_text(kind: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return any(is_kind(kind) for is_kind in kinds)


def _width_bytes(kind: pa.DataType) -> int:
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:  # texts, lists
        return TEXT_BYTES
