"""The files of a ledger: `part-000000.parquet` and so on, all but the last of equal length."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from boxmend.data.files.digests import encode_parquet
from boxmend.data.files.parquet import ensure_plausible_memory, estimate_memory_bytes
from boxmend.data.files.reading import open_file
from boxmend.errors import DataError
from boxmend.runs.ledger.entries import BOX_COLUMNS, COLUMNS, ID_COLUMNS, empty_table

FORMAT_KEY = b"boxmend.ledger"
FORMAT_VERSION = b"1"
NUMBER_KEY = b"boxmend.ledger.part"
ROWS_KEY = b"boxmend.ledger.rows_per_part"

REMEDY = "restore a copy of the file, or train again"

_NAME = re.compile(r"part-(\d{6,})\.parquet")
_CONTINUOUS = ("loss", "confidence", *BOX_COLUMNS)  # columns with few repeated values


@dataclass(frozen=True)
class LedgerPart:
    """One file of a ledger, as described by its footer."""

    path: Path
    number: int
    num_rows: int
    rows_per_part: int
    schema: pa.Schema
    memory_bytes: int  # estimated, for all columns
    file_bytes: int


def ledger_folder(run_dir: Path) -> Path:
    """Return the folder of a run's ledger."""
    return run_dir / "ledger"


def part_path(folder: Path, number: int) -> Path:
    """Return the path of part `number`, counted from 0."""
    return folder / f"part-{number:06d}.parquet"


def part_metadata(number: int, rows_per_part: int) -> dict[bytes, bytes]:
    """Return the metadata in the footer of a part."""
    return {
        FORMAT_KEY: FORMAT_VERSION,
        NUMBER_KEY: str(number).encode(),
        ROWS_KEY: str(rows_per_part).encode(),
    }


def write_part(table: pa.Table, file: BinaryIO) -> None:
    """Write a table as one row group; the same table in one chunk gives the same bytes.

    Coordinates are stored as byte streams (all first bytes, then all second ones), which compress
    better. Pages have checksums and the file has a digest, so damage on the disk is detected.
    """
    string_ids = [name for name in ID_COLUMNS if pa.types.is_string(table.schema.field(name).type)]
    content = encode_parquet(
        table,
        row_group_size=max(len(table), 1),
        compression="zstd",
        use_dictionary=[name for name in COLUMNS if name not in (*_CONTINUOUS, *ID_COLUMNS)]
        + string_ids,
        use_byte_stream_split=list(_CONTINUOUS),
        write_statistics=["epoch"],
    )
    file.write(content)


def part_numbers(folder: Path) -> list[int]:
    """Return the numbers of the parts in a folder, in ascending order.

    Ignores hidden files, which a killed run can leave. Raises a DataError for any other file that
    is not a part, and if the folder cannot be listed.
    """
    numbers = []
    try:
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and path == part_path(folder, int(match[1])):
                numbers.append(int(match[1]))
            elif not path.name.startswith("."):
                raise DataError(f"{path}: is not a part of a ledger; move it out of the folder")
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be read as a ledger ({error.strerror or error})"
        ) from error
    return sorted(numbers)


def read_footers(folder: Path, numbers: list[int]) -> list[LedgerPart]:
    """Read the footers of these parts; raise a DataError if they do not form one ledger."""
    for expected, number in enumerate(numbers):
        if number != expected:
            raise DataError(
                f"{part_path(folder, expected)}: is missing, but later parts exist; {REMEDY}"
            )
    parts = [read_footer(folder, number) for number in numbers]
    for part in parts:
        if not part.schema.equals(parts[0].schema) or part.rows_per_part != parts[0].rows_per_part:
            raise DataError(
                f"{part.path}: belongs to another ledger than {parts[0].path.name}; {REMEDY}"
            )
        if part.num_rows != part.rows_per_part and part is not parts[-1]:
            raise DataError(
                f"{part.path}: has {part.num_rows:,} rows instead of {part.rows_per_part:,}; "
                f"{REMEDY}"
            )
    sizes = (sum(part.memory_bytes for part in parts), sum(part.file_bytes for part in parts))
    ensure_plausible_memory(folder, *sizes)
    return parts


def read_footer(folder: Path, number: int) -> LedgerPart:
    """Read the footer of a part; raise a DataError if it is not valid."""
    path = part_path(folder, number)
    try:
        with open_file(path) as file:
            parquet = pq.ParquetFile(file)
            memory_bytes, file_bytes = (
                estimate_memory_bytes(parquet),
                os.fstat(file.fileno()).st_size,
            )
            schema, num_rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise make_read_error(path, error) from error
    metadata = schema.metadata or {}
    if metadata.get(FORMAT_KEY) != FORMAT_VERSION:
        version = FORMAT_VERSION.decode()
        raise DataError(f"{path}: is not a part of a ledger of format {version}; {REMEDY}")
    if metadata.get(NUMBER_KEY) != str(number).encode():
        raise DataError(f"{path}: was renamed from another part, or is damaged; {REMEDY}")
    rows = metadata.get(ROWS_KEY, b"")
    if not rows.isdigit() or not 0 < num_rows <= int(rows):
        raise DataError(f"{path}: has an invalid number of rows in its footer; {REMEDY}")
    _check_schema(path, schema)
    return LedgerPart(
        path, number, num_rows, int(rows), schema.remove_metadata(), memory_bytes, file_bytes
    )


def _check_schema(path: Path, schema: pa.Schema) -> None:
    if tuple(schema.names) != COLUMNS:
        raise DataError(f"{path}: does not have the columns of a ledger; {REMEDY}")
    for field in empty_table().schema:
        type_in_file = schema.field(field.name).type
        is_id = field.name in ID_COLUMNS
        if type_in_file != field.type and not (is_id and pa.types.is_string(type_in_file)):
            raise DataError(
                f"{path}: column {field.name} is {type_in_file}, expected {field.type}; {REMEDY}"
            )


def make_read_error(path: Path, error: Exception) -> DataError:
    """Return the error to raise if a part cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return DataError(f"{path}: cannot be read as a part of a ledger ({reason}); {REMEDY}")
