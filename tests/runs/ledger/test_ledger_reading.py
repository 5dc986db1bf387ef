"""What is read is what was appended, or a DataError that names the part."""

import contextlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.errors import DataError, UsageError
from boxmend.runs.ledger import COLUMNS, Entries, Judgement, Ledger, read
from tests.runs.ledger.visits import visits

BY_HAND = Entries(
    epochs=np.array([0, 0, 1]),
    steps=np.array([7, 7, 8]),
    annotation_ids=np.array([31, 12, 31]),
    image_ids=np.array([5, 5, 5]),
    losses=np.array([0.5, np.nan, 2.25], np.float32),
    thresholds=np.array([np.inf, np.nan, 1.5], np.float32),
    verdicts=np.array([Judgement.KEPT, Judgement.UNJUDGED, Judgement.RELABELLED], np.int8),
    num_candidates=np.array([3, 0, 1]),
    old_labels=np.array([2, 4, 2]),
    new_labels=np.array([2, -1, 9]),
    confidences=np.array([0.75, np.nan, 0.625], np.float32),
    noisy_boxes=np.array([[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]], np.float32),
    matched_boxes=np.array([[1.5, 2, 3, 4], [5, 6, 7, 8], [1, 2.5, 3, 4]], np.float32),
    final_boxes=np.array([[1.25, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4.25]], np.float32),
    is_kept=np.array([True, False, True]),
)


def write_ledger(run_dir: Path, *entries: Entries, rows_per_part: int = 10) -> Path:
    ledger = Ledger.create(run_dir, rows_per_part=rows_per_part)
    for entry in entries:
        ledger.append(entry)
    ledger.flush()
    return run_dir


def test_every_column_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = read(write_ledger(tmp_path, BY_HAND))
    assert tuple(table.column_names) == COLUMNS
    first, second, third = table.to_pylist()
    assert first == {
        "epoch": 0,
        "step": 7,
        "annotation_id": 31,
        "image_id": 5,
        "loss": 0.5,
        "threshold": np.inf,
        "verdict": "kept",
        "num_candidates": 3,
        "old_label": 2,
        "new_label": 2,
        "confidence": 0.75,
        "noisy_x1": 1,
        "noisy_y1": 2,
        "noisy_x2": 3,
        "noisy_y2": 4,
        "matched_x1": 1.5,
        "matched_y1": 2,
        "matched_x2": 3,
        "matched_y2": 4,
        "final_x1": 1.25,
        "final_y1": 2,
        "final_x2": 3,
        "final_y2": 4,
        "is_kept": True,
    }
    assert (second["verdict"], second["new_label"], second["is_kept"]) == ("unjudged", -1, False)
    assert np.isnan([second["loss"], second["threshold"], second["confidence"]]).all()
    assert (third["epoch"], third["step"], third["verdict"]) == (1, 8, "relabelled")
    assert (third["new_label"], third["matched_y1"], third["final_y2"]) == (9, 2.5, 4.25)


def test_the_types_of_the_columns_are_those_of_the_contract(tmp_path: Path) -> None:
    schema = read(write_ledger(tmp_path, BY_HAND)).schema
    types = {field.name: str(field.type) for field in schema}
    assert types["annotation_id"] == types["image_id"] == types["step"] == "int64"
    assert {types[name] for name in ("loss", "threshold", "noisy_x1", "final_y2")} == {"float"}
    assert types["verdict"].startswith("dictionary<values=string, indices=int8")
    assert {types[name] for name in ("epoch", "old_label", "num_candidates")} == {"int32"}
    assert types["is_kept"] == "bool"


def test_any_parquet_reader_can_read_the_folder(tmp_path: Path) -> None:
    write_ledger(tmp_path, visits(25))
    whole = pq.read_table(tmp_path / "ledger")
    assert whole.num_rows == 25
    assert whole["step"].to_pylist() == read(tmp_path)["step"].to_pylist()


def test_texts_as_ids_stay_texts(tmp_path: Path) -> None:
    entries = visits(4, texts=True)
    entries.annotation_ids[:] = ["a:0", "ä:1", 12, "b\udcff:0"]  # as `truth.parquet` writes them
    table = read(write_ledger(tmp_path, entries, rows_per_part=3))
    assert table["annotation_id"].to_pylist() == ["a:0", "ä:1", "12", "b\\udcff:0"]
    assert str(table.schema.field("annotation_id").type) == "string"
    assert str(table.schema.field("image_id").type) == "int64"


def test_some_columns_are_read_in_the_order_asked_for(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, BY_HAND, rows_per_part=2)
    assert read(run, ["verdict", "epoch"]).to_pylist() == [
        {"verdict": "kept", "epoch": 0},
        {"verdict": "unjudged", "epoch": 0},
        {"verdict": "relabelled", "epoch": 1},
    ]
    with pytest.raises(
        UsageError, match="a ledger has no column 'lost'; its columns are epoch, step"
    ):
        read(run, ["epoch", "lost"])


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([4, 3], 3),  # parts of 10: in one part
        ([7, 6], 6),  # over two
        ([10, 10], 10),  # exactly one
        ([3, 40], 40),  # over five
        ([12], 12),  # there is only one epoch
        ([5, 1, 1], 1),
    ],
)
def test_the_last_epoch_alone_is_read_over_any_parts(
    tmp_path: Path, lengths: list[int], expected: int
) -> None:
    epochs = [visits(n, epoch=k, seed=k) for k, n in enumerate(lengths)]
    run = write_ledger(tmp_path, *epochs)
    table = read(run, ["step"], last_epoch_only=True)
    assert table.column_names == ["step"]
    assert table["step"].to_pylist() == epochs[-1].steps.tolist()
    assert len(read(run)) == sum(lengths)
    assert len(table) == expected


def test_the_last_epoch_is_read_without_the_parts_before_it(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, visits(30, epoch=0), visits(12, epoch=1, seed=1))
    whole = read(run, last_epoch_only=True)
    damage(run / "ledger" / "part-000000.parquet")
    assert read(run, last_epoch_only=True).equals(whole)
    with pytest.raises(DataError, match="part-000000"):
        read(run)


def test_verdicts_of_all_parts_share_one_dictionary(tmp_path: Path) -> None:
    entries = visits(40)
    verdicts = read(write_ledger(tmp_path, entries))["verdict"]
    names = [Judgement(code).name.lower() for code in entries.verdicts.tolist()]
    assert verdicts.to_pylist() == names
    assert len({tuple(chunk.dictionary.to_pylist()) for chunk in verdicts.chunks}) == 1


def test_a_ledger_without_entries_is_an_empty_table(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, visits(0))
    assert list((run / "ledger").iterdir()) == []
    for table in (read(run), read(run, last_epoch_only=True)):
        assert (len(table), tuple(table.column_names)) == (0, COLUMNS)


def damage(path: Path) -> None:
    """Spoil the data of a part, and leave its footer."""
    content = bytearray(path.read_bytes())
    for place in range(10, 200):
        content[place] ^= 0xFF
    path.write_bytes(content)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, visits(45))
    (run / "ledger" / "part-000002.parquet").unlink()
    with pytest.raises(DataError, match=r"part-000002\.parquet: is missing"):
        read(run)


def test_no_ledger_at_all_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ledger: cannot be read as a ledger \(No such file"):
        read(tmp_path)
    (tmp_path / "ledger").write_text("no folder")
    with pytest.raises(DataError, match=r"cannot be read as a ledger \(Not a directory"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "part-1.parquet", "part-0000001.parquet", "x"])
def test_a_foreign_file_is_named(tmp_path: Path, name: str) -> None:
    run = write_ledger(tmp_path, visits(25))
    (run / "ledger" / name).write_text("mine")
    with pytest.raises(DataError, match=f"{name}: is not a part of a ledger"):
        read(run)


def test_what_a_killed_run_left_half_written_is_passed_over(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, visits(25))
    (run / "ledger" / ".part-000003.parquet.boxmend-partial").write_bytes(b"PAR1 half")
    assert len(read(run)) == 25


def test_a_part_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    run = write_ledger(tmp_path, visits(25))
    for content in (b"", b"PAR1", b"no such thing at all" * 20):
        (run / "ledger" / "part-000001.parquet").write_bytes(content)
        with pytest.raises(DataError, match=r"part-000001\.parquet: cannot be read as a part"):
            read(run)
    (run / "ledger" / "part-000001.parquet").unlink()
    (run / "ledger" / "part-000001.parquet").mkdir()
    with pytest.raises(DataError, match=r"part-000001\.parquet: cannot be read .*a folder"):
        read(run)


def test_a_part_that_was_renamed_or_comes_from_elsewhere_is_named(tmp_path: Path) -> None:
    run, other = (
        write_ledger(tmp_path / "a", visits(45)),
        write_ledger(tmp_path / "b", visits(45, texts=True)),
    )
    parts = sorted((run / "ledger").iterdir())
    parts[2].replace(parts[1])
    parts[3].replace(parts[2])
    parts[4].replace(parts[3])
    with pytest.raises(DataError, match=r"part-000001\.parquet: was renamed from another part"):
        read(run)
    theirs = write_ledger(tmp_path / "c", visits(45), rows_per_part=9)
    for source in (other, theirs):
        target = write_ledger(tmp_path / f"into-{source.name}", visits(45))
        shutil.copy(source / "ledger" / "part-000001.parquet", target / "ledger")
        with pytest.raises(DataError, match=r"part-000001\.parquet: belongs to another ledger"):
            read(target)


def test_a_short_part_before_others_is_named(tmp_path: Path) -> None:
    run = write_ledger(tmp_path / "a", visits(45))
    short = write_ledger(tmp_path / "b", visits(13))
    shutil.copy(short / "ledger" / "part-000001.parquet", run / "ledger")
    with pytest.raises(DataError, match=r"part-000001\.parquet: has 3 rows instead of 10"):
        read(run)


def rewritten(run: Path, change: Any) -> Path:
    path = run / "ledger" / "part-000000.parquet"
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    return run


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace_schema_metadata(None), "not a part of a ledger of format 1"),
        (
            lambda t: t.replace_schema_metadata({**t.schema.metadata, b"boxmend.ledger": b"2"}),
            "not a part of a ledger of format 1",
        ),
        (
            lambda t: t.replace_schema_metadata(
                {**t.schema.metadata, b"boxmend.ledger.rows_per_part": b"-4"}
            ),
            "an invalid number of rows",
        ),
        (lambda t: t.slice(0, 0), "an invalid number of rows"),
        (lambda t: t.drop_columns(["loss"]), "does not have the columns of a ledger"),
        (
            lambda t: t.set_column(0, "epoch", pa.array([0.5] * len(t))),
            "column epoch is double, expected int32",
        ),
    ],
)
def test_a_parquet_file_that_is_no_part_is_refused_with_a_reason(
    tmp_path: Path, change: Any, message: str
) -> None:
    run = rewritten(write_ledger(tmp_path, visits(8)), change)
    with pytest.raises(DataError, match=message) as caught:
        read(run)
    assert "part-000000.parquet" in str(caught.value)


@pytest.mark.parametrize("column", ["annotation_id", "loss", "final_y2"])
def test_a_single_damaged_byte_of_a_value_does_not_go_unnoticed(
    tmp_path: Path, column: str
) -> None:
    run = write_ledger(tmp_path, visits(1000), rows_per_part=1000)
    path = run / "ledger" / "part-000000.parquet"
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(COLUMNS.index(column))
    whole = path.read_bytes()
    end = chunk.data_page_offset + chunk.total_compressed_size
    for place in range(end - 60, end, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match=r"part-000000\.parquet: is damaged"):
            read(run)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_damaged_part_ends_in_a_data_error_or_in_all_rows(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    run = write_ledger(tmp_path_factory.mktemp("damaged"), visits(30, texts=True), rows_per_part=30)
    path = run / "ledger" / "part-000000.parquet"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
    with contextlib.suppress(DataError):
        assert len(read(run)) == 30
