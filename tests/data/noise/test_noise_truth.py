"""The truth: consistent with both datasets, in memory and as Parquet."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.data.dataset import UNKNOWN
from boxmend.data.noise import NoiseSettings, Noisy, Origin, disturb, read_truth
from boxmend.data.noise.truth import SCHEMA, write_truth
from boxmend.errors import DataError
from tests.data.noise.noise_data import build, many

NOISE = NoiseSettings(
    labels="symmetric:0.4", boxes="uniform:0.4", missing=0.2, spurious=0.1, duplicate=0.3, seed=5
)


@pytest.fixture
def table(tmp_path: Path) -> Callable[[Noisy], Any]:
    def to_table(noisy: Noisy) -> Any:
        path = tmp_path / "t.parquet"
        path.unlink(missing_ok=True)
        write_truth(noisy.truth, path)
        return pq.read_table(path)

    return to_table


def test_every_row_agrees_with_the_clean_and_the_noisy_dataset() -> None:
    clean = many(100)
    noisy = disturb(clean, NOISE)
    truth, place = noisy.truth, {id: row for row, id in enumerate(clean.annotation_ids.tolist())}
    row = 0  # of the noisy dataset
    for k, origin in enumerate(truth.origins):
        if origin != Origin.SPURIOUS:
            source = place[int(truth.source_ids[k])]
            assert truth.labels[k] == clean.labels[source]
            assert truth.boxes[k].tolist() == clean.boxes[source].tolist()
        if origin == Origin.MISSING:
            assert truth.source_ids[k] not in noisy.dataset.annotation_ids
            assert not truth.label_changed[k]
            assert not truth.box_changed[k]
            continue
        assert truth.annotation_ids[k] == noisy.dataset.annotation_ids[row]
        if origin != Origin.SPURIOUS:
            assert truth.label_changed[k] == (noisy.dataset.labels[row] != truth.labels[k])
            assert truth.box_changed[k] == (noisy.dataset.boxes[row] != truth.boxes[k]).any()
            assert noisy.dataset.image_rows[row] == clean.image_rows[source]
        row += 1
    assert row == len(noisy.dataset)
    assert np.bincount(truth.origins).tolist() == [80, 20, 10, 30]


def test_the_file_has_the_columns_of_the_contract(table: Any) -> None:
    written = table(disturb(many(100), NOISE))
    types = {name: str(written.schema.field(name).type) for name in written.column_names}
    assert list(types) == list(SCHEMA)
    assert types["annotation_id"] == types["source_id"] == types["label"] == "int64"
    assert types["label_name"] == types["origin"] == "string"
    assert types["x1"] == types["y2"] == "double"
    assert types["label_changed"] == types["box_changed"] == "bool"


def test_values_that_do_not_exist_are_null(table: Any) -> None:
    rows = table(disturb(many(100), NOISE)).to_pylist()
    assert {row["origin"] for row in rows} == {"kept", "missing", "spurious", "duplicate"}
    for row in rows:
        assert (row["annotation_id"] is None) == (row["origin"] == "missing")
        for name in ("source_id", "label", "label_name", "x1", "y1", "x2", "y2"):
            assert (row[name] is None) == (row["origin"] == "spurious")
        if row["label"] is not None:
            assert row["label_name"] == f"label{row['label']}"
        assert row["label_changed"] is not None
        assert row["box_changed"] is not None


def test_an_ignored_annotation_is_a_row_too(table: Any) -> None:
    clean = build([[1, 2, 3, 4], [5, 6, 70, 80]], [UNKNOWN, 1], ids=[7, 9])
    clean.boxes[0, 3] = np.nan
    clean.is_crowd[:] = True
    rows = table(disturb(clean, NOISE)).to_pylist()
    assert [row["origin"] for row in rows] == ["kept", "kept"]
    assert [row["source_id"] for row in rows] == [7, 9]
    assert (rows[0]["label"], rows[0]["label_name"], rows[0]["x1"]) == (None, None, 1)
    assert np.isnan(rows[0]["y2"])
    assert (rows[1]["label_name"], rows[1]["y2"], rows[1]["box_changed"]) == ("van", 80, False)


def test_ids_that_are_not_all_integers_become_strings(table: Any) -> None:
    clean = build([[10, 10, 90, 90]] * 4, [0, 1, 2, 0], ids=["a:0", "a:1", 12, "b\udcff:0"])
    written = table(disturb(clean, NoiseSettings()))
    assert str(written.schema.field("annotation_id").type) == "string"
    assert written["source_id"].to_pylist() == ["a:0", "a:1", "12", "b\\udcff:0"]


def test_the_ids_of_the_written_dataset_replace_those_in_memory() -> None:
    noisy = disturb(many(10), NoiseSettings(missing=0.3))
    ids = np.array([f"x:{k}" for k in range(7)], object)
    truth = noisy.truth.with_annotation_ids(ids)
    assert truth.annotation_ids[~truth.is_missing].tolist() == ids.tolist()
    assert truth.source_ids.tolist() == noisy.truth.source_ids.tolist()


def test_reading_back_gives_the_same_columns(tmp_path: Path) -> None:
    clean = many(100)
    clean.labels[3] = UNKNOWN
    truth = disturb(clean, NOISE).truth
    write_truth(truth, tmp_path / "t.parquet")
    back = read_truth(tmp_path / "t.parquet")
    assert back.label_names == truth.label_names
    assert back.annotation_ids.dtype == back.source_ids.dtype == np.int64
    here, there = ~truth.is_missing, ~truth.is_spurious
    assert back.annotation_ids[here].tolist() == truth.annotation_ids[here].tolist()
    assert back.source_ids[there].tolist() == truth.source_ids[there].tolist()
    assert back.boxes.tobytes() == truth.boxes.tobytes()
    for name in ("labels", "label_changed", "box_changed", "origins"):
        assert getattr(back, name).tolist() == getattr(truth, name).tolist()
        assert getattr(back, name).dtype == getattr(truth, name).dtype


def test_string_ids_and_an_empty_truth_are_read_back(tmp_path: Path) -> None:
    named = disturb(build([[0, 0, 9, 9]] * 2, [0, 1], ids=["p", "q"]), NoiseSettings(missing=0.5))
    write_truth(named.truth, tmp_path / "named.parquet")
    back = read_truth(tmp_path / "named.parquet")
    assert back.source_ids.tolist() == ["p", "q"]
    assert sorted(map(str, back.annotation_ids)) in (["None", "p"], ["None", "q"])
    write_truth(disturb(many(0), NOISE).truth, tmp_path / "empty.parquet")
    assert len(read_truth(tmp_path / "empty.parquet")) == 0


def test_the_same_truth_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_truth(disturb(many(300), NOISE).truth, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("mine")
    with pytest.raises(FileExistsError):
        write_truth(disturb(many(3), NOISE).truth, tmp_path / "t")
    assert (tmp_path / "t").read_text() == "mine"


def alter_column(column: str, values: Any, metadata: dict[str, str] | None = None) -> Any:
    """A table like a truth of one annotation, with one column replaced."""
    data = {
        "annotation_id": pa.array([1]),
        "source_id": pa.array([1]),
        "label": pa.array([0]),
        "label_name": pa.array(["car"]),
        **{name: pa.array([1.0]) for name in ("x1", "y1", "x2", "y2")},
        "label_changed": pa.array([False]),
        "box_changed": pa.array([False]),
        "origin": pa.array(["kept"]),
    }
    if values is None:
        del data[column]
    else:
        data[column] = values
    names = json.dumps(["car"])
    kept = {"boxmend.truth": "1", "boxmend.label_names": names} if metadata is None else metadata
    return pa.table(data).replace_schema_metadata(kept)


def test_an_unaltered_table_is_read(tmp_path: Path) -> None:
    pq.write_table(alter_column("label", pa.array([0])), tmp_path / "t")
    assert read_truth(tmp_path / "t").labels.tolist() == [0]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (alter_column("label", pa.array([0]), {}), "not a truth file of version 1"),
        (
            alter_column("label", pa.array([0]), {"boxmend.truth": "2"}),
            "not a truth file of version 1",
        ),
        (alter_column("label", pa.array([0]), {"boxmend.truth": "1"}), "label names are missing"),
        (
            alter_column(
                "label", pa.array([0]), {"boxmend.truth": "1", "boxmend.label_names": "[1"}
            ),
            "cannot be read as a truth file",
        ),
        (alter_column("x1", None), "column x1 is missing, expected double"),
        (
            alter_column("source_id", pa.array([1.5])),
            "column source_id is double, expected int64 or s",
        ),
        (alter_column("label", pa.array([1])), "row 0 has 1 as label"),
        (alter_column("label", pa.array([-2])), "row 0 has -2 as label"),
        (alter_column("origin", pa.array(["lost"])), "row 0 has 'lost' as origin"),
        (alter_column("origin", pa.array([None], pa.string())), "row 0 has None as origin"),
        (
            alter_column("annotation_id", pa.array([None], pa.int64())),
            "row 0 has None as annotation_id",
        ),
        (alter_column("source_id", pa.array([None], pa.int64())), "row 0 has None as source_id"),
        (
            alter_column("box_changed", pa.array([None], pa.bool_())),
            "row 0 has None as box_changed",
        ),
    ],
)
def test_a_parquet_file_that_is_not_a_truth_file_is_refused_with_a_reason(
    tmp_path: Path, table: Any, message: str
) -> None:
    pq.write_table(table, tmp_path / "odd.parquet")
    with pytest.raises(DataError, match=message) as caught:
        read_truth(tmp_path / "odd.parquet")
    assert "odd.parquet" in str(caught.value)


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"PAR1 no such thing PAR1")
    with pytest.raises(DataError, match="cannot be read as a truth file"):
        read_truth(tmp_path / "t")
    with pytest.raises(DataError, match="No such file"):
        read_truth(tmp_path / "none")
    with pytest.raises(DataError, match="a folder"):
        read_truth(tmp_path)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_damaged_truth_file_gives_a_data_error_or_a_truth(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "t"
    write_truth(disturb(many(20), NOISE).truth, path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
    truth = None
    with contextlib.suppress(DataError):
        truth = read_truth(path)
    if truth is not None:
        columns = (truth.annotation_ids, truth.source_ids, truth.labels, truth.boxes)
        assert {len(column) for column in columns} == {len(truth)}


def test_a_truth_file_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = alter_column("origin", pa.array(["kept"]))
    pq.write_table(table.append_column("label", pa.array([0])), tmp_path / "t")
    with pytest.raises(DataError, match="t: has the column 'label' twice"):
        read_truth(tmp_path / "t")


def test_a_small_truth_file_of_many_rows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = alter_column("origin", pa.array(["kept"])).take(pa.array(np.zeros(100_000, np.int64)))
    pq.write_table(table, tmp_path / "t", compression="zstd")
    assert len(read_truth(tmp_path / "t")) == 100_000
    monkeypatch.setenv("BOXMEND_MAX_TABLE_BYTES", "1MiB")
    with pytest.raises(DataError, match=r"t: it has .*BOXMEND_MAX_TABLE_BYTES"):
        read_truth(tmp_path / "t")
