"""The table of fixes: what is written is read, and nothing else passes for it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, Kind, read_fixes, write_fixes
from boxmend.data.dataset import Dataset
from boxmend.errors import DataError, UsageError
from tests.auditing.fixes.tabled_data import dataset_in
from tests.fabricated_runs import Fix, table_of

MADE = [
    Fix("l", Kind.WRONG_LABEL, 0, 0.75, label=2),
    Fix("b", Kind.BAD_BOX, 1, 0.5, box=(1, 2, 3.25, 4)),
    Fix("m", Kind.MISSING, p_fix=0.25, label=1, box=(5, 6, 7, 8), image=1),
    Fix("s", Kind.SPURIOUS, 2, 1.0),
    Fix("d", Kind.DUPLICATE, 3, 0.0, kept=5),
]
SHA = "f" * 64


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return dataset_in(tmp_path / "data", crowd=4)


@pytest.fixture
def path(tmp_path: Path, dataset: Dataset) -> Path:
    write_fixes(tmp_path / FIXES_FILE, dataset, table_of(dataset, MADE), SHA)
    return tmp_path / FIXES_FILE


def ensure_equal(one: Fixes, other: Fixes) -> None:
    for name, column in vars(one).items():
        other_column = getattr(other, name)
        if isinstance(column, list):
            assert other_column == column
        else:
            assert other_column.dtype == column.dtype
            assert np.array_equal(other_column, column, equal_nan=column.dtype.kind == "f"), name


@pytest.mark.parametrize("made", [MADE, []])
def test_what_is_written_is_read(tmp_path: Path, dataset: Dataset, made: list[Fix]) -> None:
    fixes = table_of(dataset, made)
    write_fixes(tmp_path / "new.parquet", dataset, fixes, SHA)
    ensure_equal(fixes, read_fixes(tmp_path / "new.parquet", dataset, SHA))


def test_everyone_reads_ids_names_and_words(path: Path) -> None:
    rows = pq.read_table(path).to_pylist()
    assert [row["kind"] for row in rows] == [
        *("wrong label", "bad box", "missing", "spurious", "duplicate"),
    ]
    assert [row["annotation_id"] for row in rows] == [10, 11, None, 12, 13]
    assert [row["kept_annotation_id"] for row in rows] == [None] * 4 + [15]
    assert [row["old_label"] for row in rows] == ["van", "truck", None, "bus", "van"]
    assert [row["new_label"] for row in rows] == ["bus", "truck", "truck", None, None]
    assert [row["new_x2"] for row in rows] == [20, 3.25, 7, None, None]
    assert rows[2]["old_x1"] is None
    assert (rows[2]["image_id"], rows[2]["file_name"]) == (2, "2.png")


def test_a_take_is_of_all_columns(dataset: Dataset) -> None:
    fixes = table_of(dataset, MADE)
    ensure_equal(fixes.take(np.array([3, 0])), table_of(dataset, [MADE[3], MADE[0]]))
    ensure_equal(fixes.take(fixes.p_fix > 0.6), table_of(dataset, [MADE[0], MADE[3]]))


def test_a_run_without_a_table_asks_for_an_audit(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(UsageError, match="`boxmend audit`"):
        read_fixes(tmp_path / FIXES_FILE, dataset, SHA)


def test_a_table_of_other_annotations_is_refused(path: Path, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="belongs to other annotations; audit again"):
        read_fixes(path, dataset, "0" * 64)


@pytest.mark.parametrize("end", [0, 3, 100, -1])
def test_a_torn_file_is_reported(path: Path, dataset: Dataset, end: int) -> None:
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(DataError, match=r"fixes.parquet: (cannot be read|is damaged).*audit again"):
        read_fixes(path, dataset, SHA)


def test_something_else_is_reported(path: Path, dataset: Dataset) -> None:
    pq.write_table(pa.table({"fix": ["a"]}), path)
    with pytest.raises(DataError, match="is not a table of fixes of version 1"):
        read_fixes(path, dataset, SHA)
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=r"fixes.parquet"):
        read_fixes(path, dataset, SHA)


def spoilt(path: Path, name: str, values: list[Any] | None) -> None:
    table = pq.read_table(path)
    k = table.schema.get_field_index(name)
    spoilt = table.remove_column(k)
    if values is not None:
        spoilt = table.set_column(k, name, pa.array(values))
    pq.write_table(spoilt.replace_schema_metadata(table.schema.metadata), path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("fix", None),
        ("fix", ["a", "a", "b", "c", "d"]),
        ("fix", ["a", None, "b", "c", "d"]),
        ("fix", [1, 2, 3, 4, 5]),
        ("kind", ["wrong label", "bad box", "missing", "spurious", "odd"]),
        ("kind", [None] * 5),
        ("annotation_id", [10, 11, None, 12, 99]),
        ("annotation_id", [10, 11, None, None, 13]),
        ("annotation_id", [10, 11, 12, 12, 13]),
        ("annotation_id", [14, 11, None, 12, 13]),  # a crowd
        ("annotation_id", [[10], [11], [12], [12], [13]]),
        ("image_id", [2, 2, 2, 1, 2]),  # not the image of annotation 10
        ("image_id", [None, 2, 2, 1, 2]),
        ("new_label", ["bus", "truck", None, None, None]),
        ("new_label", [None, "truck", "truck", None, None]),
        ("new_label", ["lorry", "truck", "truck", None, None]),
        ("new_x1", [0.0, 9.0, 5.0, None, None]),
        ("new_x1", [0.0, 3.25, 5.0, None, None]),  # no width
        ("new_y1", [0.0, 4.0, 6.0, None, None]),  # no height
        ("new_x1", [0.0, float("inf"), 5.0, None, None]),
        ("new_x1", [0.0, 1.0, None, None, None]),
        ("new_x1", [0.0, 1.0, 5.0, float("inf"), None]),  # where none belongs
        ("new_x1", ["a", "b", "c", "d", "e"]),
        ("old_x1", [0.0, 11.0, None, 20.0, 30.0]),  # 10 is annotated
        ("old_x1", [float("inf"), 10.0, None, 20.0, 30.0]),
        ("old_x1", [None, 10.0, None, 20.0, 30.0]),
        ("old_x1", [0.0, 10.0, 5.0, 20.0, 30.0]),  # of a missing one
        ("old_label", ["truck", "truck", None, "bus", "van"]),  # a van is annotated
        ("old_label", [None, "truck", None, "bus", "van"]),
        ("iou_gain", [0.0, float("inf"), 0.0, 0.0, 0.0]),
        ("kept_annotation_id", [None] * 5),
        ("kept_annotation_id", [None] * 4 + [13]),
        ("p_fix", [0.5, 0.5, 1.5, 0.5, 0.5]),
        ("p_fix", [0.5, 0.5, None, 0.5, 0.5]),
        ("p_wrong", [0.5, -0.1, 0.5, 0.5, 0.5]),
        ("p_wrong", ["high"] * 5),
        ("reason", ["a", None, "b", "c", "d"]),
        ("reason", [b"a", b"b", b"c", b"d", b"e"]),
        ("reason", None),
    ],
)
def test_a_damaged_table_is_reported(
    path: Path, dataset: Dataset, name: str, values: list[Any] | None
) -> None:
    spoilt(path, name, values)
    with pytest.raises(DataError, match=r"fixes.parquet: is damaged .*audit again"):
        read_fixes(path, dataset, SHA)


@pytest.mark.parametrize("kind", [Kind.WRONG_LABEL, Kind.BAD_BOX, Kind.SPURIOUS])
def test_a_fix_of_a_crowd_is_refused(tmp_path: Path, dataset: Dataset, kind: Kind) -> None:
    fixes = table_of(dataset, [Fix("x", kind, 4, label=1, box=(1, 2, 3, 4))])
    write_fixes(tmp_path / FIXES_FILE, dataset, fixes, SHA)
    with pytest.raises(DataError, match="crowd or difficult object"):
        read_fixes(tmp_path / FIXES_FILE, dataset, SHA)


def test_odd_names_and_ids_are_read_again(tmp_path: Path) -> None:
    from dataclasses import replace

    from boxmend.data.dataset import as_ids

    plain = dataset_in(tmp_path / "data")
    odd = replace(
        plain,
        label_names=("va\udc80n", "", "b\nus"),
        annotation_ids=as_ids(["a\udc80", "b", "c", "d", "e", "f"]),
    )
    write_fixes(tmp_path / FIXES_FILE, odd, table_of(odd, MADE), SHA)
    ensure_equal(table_of(odd, MADE), read_fixes(tmp_path / FIXES_FILE, odd, SHA))


def test_a_dataset_with_ids_twice_has_no_table(tmp_path: Path) -> None:
    dataset = dataset_in(tmp_path / "data")
    fixes = table_of(dataset, MADE)
    dataset.annotation_ids[:] = 7
    write_fixes(tmp_path / FIXES_FILE, dataset, fixes, SHA)
    with pytest.raises(DataError, match="share an id"):
        read_fixes(tmp_path / FIXES_FILE, dataset, SHA)
