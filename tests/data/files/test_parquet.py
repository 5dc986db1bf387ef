"""Parquet files from others: refused if their footers or texts claim too much memory."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boxmend.data.files.parquet import read_parquet
from boxmend.errors import DataError


def same_rows(path: Path, num_rows: int, text: str = "a") -> Path:
    """Write a file in which every row is the same, so that it has hardly any bytes."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(num_rows, np.int32)), pa.array([text]))
    table = pa.table({"text": texts, "number": np.zeros(num_rows)})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return path


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array(["a", None, "b", "a"]),
            "large": pa.array(["x", "y", None, "x"], pa.large_string()),
            "number": [1, 2, 3, None],
            "flag": [True, False, None, True],
        },
        metadata={"kind": "test"},
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=3)
    read_back = read_parquet(tmp_path / "t.parquet")
    assert read_back.equals(table, check_metadata=True)
    assert read_parquet(tmp_path / "t.parquet", ["flag", "id"]).equals(table.select(["flag", "id"]))


def test_a_small_file_of_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = same_rows(tmp_path / "t.parquet", 200_000)
    assert path.stat().st_size < 10_000
    assert len(read_parquet(path)) == 200_000  # up to the default, every file may expand
    monkeypatch.setenv("BOXMEND_MAX_TABLE_BYTES", "1MiB")
    with pytest.raises(
        DataError,
        match=r"t\.parquet: it has [0-9,]* bytes, .*: 14,400,000 bytes are more than the limit of "
        "1,048,576; .*BOXMEND_MAX_TABLE_BYTES",
    ):
        read_parquet(path)
    monkeypatch.setenv("BOXMEND_MAX_EXPANSION", "1000000")
    assert len(read_parquet(path)) == 200_000


def test_a_file_that_is_as_large_as_its_columns_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_TABLE_BYTES", "1KiB")
    table = pa.table({"x": np.random.default_rng(0).random(10_000)})
    pq.write_table(table, tmp_path / "t.parquet")
    assert read_parquet(tmp_path / "t.parquet").equals(table)


def test_a_long_text_that_many_rows_share_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = same_rows(tmp_path / "t.parquet", 1000, "x" * 20_000)  # 20 MB as plain texts
    assert path.stat().st_size < 10_000
    assert read_parquet(path)["text"][999].as_py() == "x" * 20_000
    monkeypatch.setenv("BOXMEND_MAX_TABLE_BYTES", "1MiB")
    before = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"t\.parquet: .*20,[0-9,]* bytes are more than the limit"):
        read_parquet(path)
    assert pa.total_allocated_bytes() - before < 2**20


def test_a_column_that_is_repeated_is_named(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: has the column 'x' twice"):
        read_parquet(tmp_path / "t.parquet")


def test_a_column_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"name\u00f8": [1]}), path, store_schema=False)
    data = path.read_bytes()
    assert data.count("\u00f8".encode()) >= 1
    path.write_bytes(data.replace("\u00f8".encode(), b"\xf0\xb8"))
    with pytest.raises(DataError, match=r"t\.parquet: the name of a column is not valid UTF-8"):
        read_parquet(path)


def test_page_checksums_reveal_damage(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(1000.0)})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.find(np.float64(500).tobytes())
    data[at + 6] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError, match="CRC"):
        read_parquet(path)
