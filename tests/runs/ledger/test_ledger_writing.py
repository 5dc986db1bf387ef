"""Parts depend on the rows alone: not on batches, checkpoints, kills or the clock."""

import dataclasses
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.errors import DataError, OutputError
from boxmend.runs.ledger import ROWS_PER_PART, Entries, Judgement, Ledger, LedgerState, read
from tests.runs.ledger.visits import bytes_of, pieces, visits


def write_at_once(run_dir: Path, entries: Entries, rows_per_part: int = 10) -> dict[str, bytes]:
    ledger = Ledger.create(run_dir, rows_per_part=rows_per_part)
    ledger.append(entries)
    ledger.flush()
    return bytes_of(run_dir)


def test_parts_have_a_fixed_length_and_the_last_one_the_rest(tmp_path: Path) -> None:
    files = write_at_once(tmp_path, visits(25))
    assert list(files) == ["part-000000.parquet", "part-000001.parquet", "part-000002.parquet"]
    lengths = [pq.ParquetFile(tmp_path / "ledger" / name).metadata.num_rows for name in files]
    assert lengths == [10, 10, 5]


def test_rows_are_on_disk_when_a_part_is_full_and_when_flushed(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=10)
    ledger.append(visits(9))
    assert bytes_of(tmp_path) == {}
    ledger.append(visits(1, seed=1))
    assert list(bytes_of(tmp_path)) == ["part-000000.parquet"]
    ledger.append(visits(3, seed=2))
    assert len(read(tmp_path)) == 10
    ledger.flush()
    assert len(read(tmp_path)) == ledger.num_rows == 13


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(0, 60),
    sizes=st.lists(st.integers(0, 25), max_size=8),
    flushed=st.sets(st.integers(0, 8)),
    texts=st.booleans(),
)
def test_neither_batches_nor_flushes_show_in_the_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    sizes: list[int],
    flushed: set[int],
    texts: bool,
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    entries = visits(n, texts=texts)
    expected = write_at_once(folder / "whole", entries)
    ledger = Ledger.create(folder / "batches", rows_per_part=10)
    for number, piece in enumerate(pieces(entries, sizes)):
        ledger.append(piece)
        if number in flushed:
            ledger.flush()
    ledger.flush()
    assert bytes_of(folder / "batches") == expected


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 60),
    saved_at=st.integers(0, 60),
    lost=st.integers(0, 30),
    is_flushed=st.booleans(),
    texts=st.booleans(),
)
def test_a_resumed_ledger_ends_with_the_same_bytes_as_one_never_interrupted(
    tmp_path_factory: pytest.TempPathFactory,
    n: int,
    saved_at: int,
    lost: int,
    is_flushed: bool,
    texts: bool,
) -> None:
    folder = tmp_path_factory.mktemp("resumed")
    entries = visits(n, texts=texts)
    expected = write_at_once(folder / "whole", entries)

    before, after = list(pieces(entries, [min(saved_at, n)]))
    ledger = Ledger.create(folder / "run", rows_per_part=10)
    ledger.append(before)
    state = ledger.state()
    ledger.append(visits(lost, epoch=9, seed=9, texts=texts))  # after the checkpoint, and lost
    if is_flushed:
        ledger.flush()

    resumed = Ledger.resume(folder / "run", state)
    assert resumed.num_rows == len(before)
    resumed.append(after)
    resumed.flush()
    assert bytes_of(folder / "run") == expected


def test_a_state_is_plain_numbers_and_bytes_and_survives_what_comes_after(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=10)
    ledger.append(visits(13, epoch=4))
    state = ledger.state()
    before = state["pending"].copy()
    ledger.append(visits(20, epoch=5, seed=1))
    np.testing.assert_array_equal(state["pending"], before)
    assert state["pending"].dtype == np.uint8
    numbers = {name: value for name, value in state.items() if name != "pending"}
    assert numbers == {"num_rows": 13, "rows_per_part": 10, "last_epoch": 4}
    again = Ledger.resume(tmp_path, state).state()
    np.testing.assert_array_equal(again["pending"], before)


@pytest.mark.parametrize("n", [0, 13, 20])
def test_a_state_taken_after_the_last_flush_can_be_gone_on_from(tmp_path: Path, n: int) -> None:
    entries = visits(n + 14)
    first, second = list(pieces(entries, [n]))
    ledger = Ledger.create(tmp_path / "a", rows_per_part=10)
    ledger.append(first)
    ledger.flush()
    longer = Ledger.resume(tmp_path / "a", ledger.state())
    longer.append(second)
    longer.flush()
    assert bytes_of(tmp_path / "a") == write_at_once(tmp_path / "b", entries)


def test_resuming_without_a_state_begins_anew(tmp_path: Path) -> None:
    write_at_once(tmp_path, visits(25))
    (tmp_path / "ledger" / ".part-000003.parquet.boxmend-partial").write_bytes(b"half")
    ledger = Ledger.resume(tmp_path, None)
    assert bytes_of(tmp_path) == {}
    assert ledger.num_rows == 0
    assert ledger.state()["rows_per_part"] == ROWS_PER_PART
    Ledger.resume(tmp_path / "new", None).append(visits(3))
    assert bytes_of(tmp_path / "new") == {}


def test_a_ledger_is_never_begun_over_another(tmp_path: Path) -> None:
    before = write_at_once(tmp_path, visits(25))
    with pytest.raises(OutputError, match="has a ledger already"):
        Ledger.create(tmp_path)
    assert bytes_of(tmp_path) == before


def test_resuming_never_removes_what_is_no_part(tmp_path: Path) -> None:
    write_at_once(tmp_path, visits(25))
    (tmp_path / "ledger" / "notes.txt").write_text("mine")
    before = bytes_of(tmp_path)
    with pytest.raises(DataError, match=r"notes\.txt: is not a part"):
        Ledger.resume(tmp_path, None)
    assert bytes_of(tmp_path) == before


def state_of(run_dir: Path, n: int) -> LedgerState:
    ledger = Ledger.create(run_dir, rows_per_part=10)
    ledger.append(visits(n))
    return ledger.state()


@pytest.mark.parametrize("number", [0, 1])
def test_resuming_names_a_part_that_the_checkpoint_counts_on(tmp_path: Path, number: int) -> None:
    state = state_of(tmp_path, 25)
    path = tmp_path / "ledger" / f"part-00000{number}.parquet"
    whole = path.read_bytes()
    path.write_bytes(b"no Parquet")
    with pytest.raises(DataError, match=f"part-00000{number}.parquet: cannot be read"):
        Ledger.resume(tmp_path, state)
    path.unlink()
    with pytest.raises(DataError, match=f"part-00000{number}.parquet: is missing"):
        Ledger.resume(tmp_path, state)
    path.write_bytes(whole)
    assert Ledger.resume(tmp_path, state).num_rows == 25


def test_resuming_refuses_a_ledger_of_other_parts(tmp_path: Path) -> None:
    write_at_once(tmp_path, visits(45), rows_per_part=9)
    state = state_of(tmp_path / "other", 25)
    with pytest.raises(DataError, match="the checkpoint needs it"):
        Ledger.resume(tmp_path, state)


def test_a_damaged_state_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    state = state_of(tmp_path, 25)
    before = bytes_of(tmp_path)
    torn: LedgerState = {**state, "pending": state["pending"][:100]}
    short: LedgerState = {**state, "num_rows": 24}
    with pytest.raises(DataError, match="state in the checkpoint is damaged"):
        Ledger.resume(tmp_path, torn)
    with pytest.raises(DataError, match="rows do not add up"):
        Ledger.resume(tmp_path, short)
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": np.array([2, 1, 2])}, "epochs must be ascending"),
        ({"epochs": np.array([0, 0, 0])}, "epochs must be ascending"),  # the ledger is at 1
        ({"steps": np.array([1, 2])}, r"steps must have shape \(3,\), got \(2,\)"),
        ({"final_boxes": np.zeros((3, 3), np.float32)}, r"final_boxes must have shape \(3, 4\)"),
        ({"is_kept": np.array(True)}, "is_kept must have shape"),
        ({"verdicts": np.array([0, 1, 4], np.int8)}, "verdicts must lie between 0 and 3"),
        ({"verdicts": np.array([0, 1, -1], np.int8)}, "verdicts must lie between 0 and 3"),
        ({"old_labels": np.array([0, 1, 2**40])}, "old_labels does not fit into int32"),
        ({"annotation_ids": np.array(["a", "b", "c"], object)}, "annotation_id was int64, now"),
        ({"image_ids": np.array(["a", None, "c"], object)}, "image_ids has no id at row 1"),
    ],
)
def test_entries_that_do_not_fit_are_refused_whole(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=2)
    ledger.append(visits(3))
    with pytest.raises(ValueError, match=message):
        ledger.append(dataclasses.replace(visits(3), **change))
    assert ledger.num_rows == 3
    ledger.flush()
    assert len(read(tmp_path)) == 3


def test_floats_are_no_labels(tmp_path: Path) -> None:
    entries = dataclasses.replace(visits(3), new_labels=np.array([0.5, 1, 2]))
    with pytest.raises(TypeError, match="same_kind"):
        Ledger.create(tmp_path).append(entries)


def test_the_epoch_a_resumed_ledger_is_at_is_known(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=10)
    ledger.append(visits(10, epoch=3))
    resumed = Ledger.resume(tmp_path, ledger.state())
    with pytest.raises(ValueError, match="epochs must be ascending"):
        resumed.append(visits(1, epoch=2))
    with pytest.raises(ValueError, match="annotation_id was int64, now it is object"):
        resumed.append(visits(1, epoch=3, texts=True))


def test_appending_changes_none_of_the_columns_and_keeps_none(tmp_path: Path) -> None:
    entries, same = visits(7), visits(7)
    ledger = Ledger.create(tmp_path, rows_per_part=10)
    ledger.append(entries)
    for field in dataclasses.fields(entries):
        column = getattr(entries, field.name)
        np.testing.assert_array_equal(column, getattr(same, field.name))
        column[:] = 0
    ledger.flush()
    assert read(tmp_path)["step"].to_pylist() == same.steps.tolist()


def test_wider_numbers_are_narrowed(tmp_path: Path) -> None:
    entries = visits(5)
    wide = dataclasses.replace(
        entries,
        losses=entries.losses.astype(np.float64),
        final_boxes=entries.final_boxes.astype(np.float64),
        verdicts=entries.verdicts.astype(np.int64),
    )
    assert write_at_once(tmp_path / "a", wide) == write_at_once(tmp_path / "b", entries)


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="could not be created"):
        Ledger.create(tmp_path / "file")
    with pytest.raises(ValueError, match="rows_per_part"):
        Ledger.create(tmp_path, rows_per_part=0)


def test_a_part_that_cannot_be_written_is_an_output_error_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=10)
    (tmp_path / "ledger" / "part-000000.parquet").mkdir()
    with pytest.raises(OutputError, match=r"part-000000\.parquet: could not be written"):
        ledger.append(visits(10))
    assert [path.name for path in (tmp_path / "ledger").iterdir()] == ["part-000000.parquet"]


def test_memory_is_bounded_by_one_part(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path, rows_per_part=1000)
    batch = visits(100)
    for _ in range(20):
        ledger.append(batch)
    tracemalloc.start()
    for _ in range(200):
        ledger.append(batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    assert ledger.num_rows == 22_000


def test_the_verdicts_have_fixed_codes() -> None:
    assert [(one.name, one.value) for one in Judgement] == [
        ("KEPT", 0),
        ("RELABELLED", 1),
        ("DISCARDED", 2),
        ("UNJUDGED", 3),
    ]


ENDLESS = """
import sys
from pathlib import Path
from visits import visits
from boxmend.runs.ledger import Ledger
ledger = Ledger.create(Path(sys.argv[1]), rows_per_part=500)
print("ready", flush=True)
for seed in range(1_000_000):
    ledger.append(visits(97, seed=seed))
"""


def test_a_killed_writer_leaves_whole_parts_and_nothing_else_that_shows(tmp_path: Path) -> None:
    places = filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    for attempt in range(3):
        run = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(run)], env=here, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        with process, process.stdout as output:
            output.readline()
            while not (run / "ledger" / "part-000002.parquet").exists():
                assert process.poll() is None
                time.sleep(0.001)
            time.sleep(0.003 * attempt)
            process.kill()
        table = read(run, ["step"])
        assert len(table) >= 1500
        assert len(table) % 500 == 0
        expected = [
            step for seed in range(len(table) // 97 + 1) for step in visits(97, seed=seed).steps
        ]
        assert table["step"].to_pylist() == expected[: len(table)]
        assert Ledger.resume(run, None).num_rows == 0
        assert bytes_of(run) == {}


def test_what_a_row_weighs_is_as_the_docs_say(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path)
    ledger.append(visits(ROWS_PER_PART))
    (content,) = bytes_of(tmp_path).values()
    assert len(content) / ROWS_PER_PART < 60
