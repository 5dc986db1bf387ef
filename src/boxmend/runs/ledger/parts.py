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

REMEDY = "put a copy of the file back, or train again"

_NAME = re.compile(r"part-(\d{6,})\.parquet")
_SMOOTH = ("loss", "confidence", *BOX_COLUMNS)  # hardly a value occurs twice


@dataclass(frozen=True)
class LedgerPart:
    """One file, as its footer tells."""

    path: Path
    number: int
    num_rows: int
    rows_per_part: int
    schema: pa.Schema
    memory_bytes: int  # estimated, for all columns
    file_bytes: int


def folder_of(run_dir: Path) -> Path:
    """Where a run keeps its ledger."""
    return run_dir / "ledger"


def part_path(folder: Path, number: int) -> Path:
    """The file of part `number`, counted from zero."""
    return folder / f"part-{number:06d}.parquet"


def metadata_of(number: int, rows_per_part: int) -> dict[bytes, bytes]:
    """What the footer of a part says beyond its columns."""
    return {
        FORMAT_KEY: FORMAT_VERSION,
        NUMBER_KEY: str(number).encode(),
        ROWS_KEY: str(rows_per_part).encode(),
    }


def write_part(table: pa.Table, file: BinaryIO) -> None:
    """Write a table as one row group; the same table, in one piece, gives the same bytes.

    Coordinates go byte by byte (all first bytes, all second ones), which compresses better. Pages
    have checksums and the file has a digest: damage on the disk is an error and not another box.
    """
    texts = [name for name in ID_COLUMNS if pa.types.is_string(table.schema.field(name).type)]
    content = encode_parquet(
        table,
        row_group_size=max(len(table), 1),
        compression="zstd",
        use_dictionary=[name for name in COLUMNS if name not in (*_SMOOTH, *ID_COLUMNS)] + texts,
        use_byte_stream_split=list(_SMOOTH),
        write_statistics=["epoch"],
    )
    file.write(content)


def part_numbers(folder: Path) -> list[int]:
    """The numbers of the parts in a folder, ascending.

    Hidden files are passed over, as one may be left of a killed run; any other that is no part
    is a DataError. So is a folder that cannot be listed.
    """
    numbers = []
    try:
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match and path == part_path(folder, int(match[1])):
                numbers.append(int(match[1]))
            elif not path.name.startswith("."):
                raise DataError(f"{path}: is no part of a ledger; move it out of the folder")
    except OSError as error:
        raise DataError(f"{folder}: no ledger there ({error.strerror or error})") from error
    return sorted(numbers)


def checked_parts(folder: Path, numbers: list[int]) -> list[LedgerPart]:
    """The footers of these parts; a DataError where they do not add up to one whole ledger."""
    for expected, number in enumerate(numbers):
        if number != expected:
            raise DataError(f"{part_path(folder, expected)}: is missing, but later parts are there")
    parts = [read_footer(folder, number) for number in numbers]
    for part in parts:
        if not part.schema.equals(parts[0].schema) or part.rows_per_part != parts[0].rows_per_part:
            raise DataError(f"{part.path}: is of another ledger than {parts[0].path.name}")
        if part.num_rows != part.rows_per_part and part is not parts[-1]:
            raise DataError(
                f"{part.path}: has {part.num_rows:,} rows where {part.rows_per_part:,} belong"
            )
    sizes = (sum(one.memory_bytes for one in parts), sum(one.file_bytes for one in parts))
    ensure_plausible_memory(folder, *sizes)
    return parts


def read_footer(folder: Path, number: int) -> LedgerPart:
    """What a part says about itself; a DataError where it is not what it should be."""
    path = part_path(folder, number)
    try:
        with open_file(path) as file:
            parquet = pq.ParquetFile(file)
            claimed, size = estimate_memory_bytes(parquet), os.fstat(file.fileno()).st_size
            schema, num_rows = parquet.schema_arrow, int(parquet.metadata.num_rows)
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        raise unreadable(path, error) from error
    metadata = schema.metadata or {}
    if metadata.get(FORMAT_KEY) != FORMAT_VERSION:
        version = FORMAT_VERSION.decode()
        raise DataError(f"{path}: no part of a ledger of version {version}; {REMEDY}")
    if metadata.get(NUMBER_KEY) != str(number).encode():
        raise DataError(f"{path}: was written as another part and renamed, or damaged; {REMEDY}")
    rows = metadata.get(ROWS_KEY, b"")
    if not rows.isdigit() or not 0 < num_rows <= int(rows):
        raise DataError(f"{path}: its footer gives no sensible number of rows; {REMEDY}")
    _check_schema(path, schema)
    return LedgerPart(path, number, num_rows, int(rows), schema.remove_metadata(), claimed, size)


def _check_schema(path: Path, schema: pa.Schema) -> None:
    if tuple(schema.names) != COLUMNS:
        raise DataError(f"{path}: its columns are not those of a ledger; {REMEDY}")
    for field in empty_table().schema:
        found = schema.field(field.name).type
        is_id = field.name in ID_COLUMNS
        if found != field.type and not (is_id and pa.types.is_string(found)):
            expected = f"expected {field.type}; {REMEDY}"
            raise DataError(f"{path}: column {field.name} is {found}, {expected}")


def unreadable(path: Path, error: Exception) -> DataError:
    """The error to raise where a part cannot be read."""
    reason = getattr(error, "strerror", None) or error
    return DataError(f"{path}: cannot be read as a part of a ledger ({reason}); {REMEDY}")
