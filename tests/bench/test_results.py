"""Lines of results: written whole, read strictly, and the line that counts of several."""

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.bench.grids.results import (
    Data,
    Noise,
    ReadResults,
    Result,
    append_result,
    effective_results,
    read_all_results,
    read_results,
)
from boxmend.errors import DataError, OutputError
from tests import ROOT
from tests.bench.grid_results import result


def change_result(one: Result, **fields: Any) -> Result:
    return msgspec.structs.replace(one, **fields)


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "voc320" / "results.jsonl"
    first = result("mend", 0.5, noise=("symmetric:0.4", None), variant={"published.alpha": 0.3})
    second = change_result(
        first, scores={}, error="out of memory", attempt=2, mending={"labels": {}}
    )
    append_result(path, first)
    append_result(path, second)
    assert read_results(path) == ReadResults([first, second], [])
    assert path.read_bytes().count(b"\n") == 2


def test_a_torn_last_line_is_left_out_with_a_warning_and_replaced_by_the_next(
    tmp_path: Path,
) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result(seed=0))
    whole = path.read_bytes()
    append_result(path, result(seed=1))
    both = path.read_bytes()
    for size in (*range(len(whole) + 1, len(both) - 1, 17), len(both) - 2):
        path.write_bytes(both[:size])
        stored = read_results(path)
        assert [one.seed for one in stored.results] == [0]
        assert stored.warnings == [
            f"{path}: line 2 was cut off and is left out: its cell counts as open"
        ]
    append_result(path, result(seed=2))
    assert [one.seed for one in read_results(path).results] == [0, 2]
    assert read_results(path).warnings == []


def test_a_last_line_that_lacks_only_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result(seed=0))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert [one.seed for one in read_results(path).results] == [0]
    append_result(path, result(seed=1))
    assert [one.seed for one in read_results(path).results] == [0, 1]


def test_a_torn_line_longer_than_a_block_is_found_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result(seed=0))
    with path.open("ab") as file:
        file.write(b'{"cell": "' + b"x" * 200_000)
    append_result(path, result(seed=1))
    assert [one.seed for one in read_results(path).results] == [0, 1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scores": {"voc_ap50_area": 1.5}}, "line 2 is not a result: scores"),
        ({"scores": {"voc_ap50_area": "0.5"}}, "line 2 is not a result: scores"),
        ({"cell": "../../etc/passwd"}, "line 2 is not a result: cell"),
        ({"cell": "a\nb"}, "line 2 is not a result: cell"),
        ({"seed": -1}, "line 2 is not a result: seed"),
        ({"noise": {"labels": "symmetric:7", "boxes": None, "seed": 0}}, "noise.labels"),
        ({"noise": {"labels": "symmetric:0.4\n", "boxes": None}}, "noise.labels"),
        ({"attempt": 0}, "line 2 is not a result: attempt"),
        ({"format": 3}, "line 2 is not a result: format"),
        ({"seconds": -1}, "line 2 is not a result: seconds"),
        ({"surprise": 1}, "unknown field `surprise`"),
    ],
)
def test_a_line_that_is_no_result_is_refused_by_its_number(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result())
    line = msgspec.to_builtins(result()) | fields
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")
    with pytest.raises(DataError, match=r"results\.jsonl: line 2") as caught:
        read_results(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"NaN", b'{"cell": 1e9']
)
def test_what_is_no_json_is_a_data_error(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(DataError, match="line 1 is no"):
        read_results(path)


def test_a_hash_is_64_hexadecimal_digits(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for odd in ("", "a" * 63, "A" * 64, "g" * 64, "a" * 64 + "\n"):
        with pytest.raises(ValueError, match="not a valid result"):
            append_result(path, change_result(result(), data=Data(odd, "b" * 64, "c" * 64)))
    assert not path.exists()


def test_what_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    for fields in ({"scores": {"ap": 2.0}}, {"settings": {"a": object()}}, {"seed": "0"}):
        with pytest.raises(ValueError, match="not a valid result"):
            append_result(path, change_result(result(), **fields))
    assert not path.exists()


def test_a_number_that_json_lacks_becomes_null(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, change_result(result(), scores={"voc_ap50_area": float("nan")}))
    assert read_results(path).results[0].scores == {"voc_ap50_area": None}


def test_names_of_files_that_are_no_text_do_not_cost_a_result(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    one = result()
    odd = msgspec.structs.replace(one.data, addresses={"train": [os.fsdecode(b"/a\xff")]})
    append_result(path, change_result(one, data=odd))
    assert read_results(path).results[0].data.addresses == {"train": ["/a\\udcff"]}


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_results(tmp_path)
    with pytest.raises(OutputError, match="could not be written"):
        append_result(tmp_path, result())


def test_of_several_lines_the_last_one_without_an_error_counts() -> None:
    fine, failed = result(ap50=0.5), change_result(result(), scores={}, error="no memory")
    later, other = change_result(fine, scores={"voc_ap50_area": 0.6}), result(seed=1)
    assert effective_results([failed, fine]) == [fine]
    assert effective_results([fine, failed]) == [fine]
    assert effective_results([fine, other, failed, later]) == [later, other]
    again = change_result(failed, attempt=2)
    assert effective_results([failed, again]) == [again]
    elsewhere = change_result(fine, scale="paper")
    assert effective_results([fine, elsewhere]) == [fine, elsewhere]


def test_several_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for seed, path in enumerate(paths):
        append_result(path, result(seed=seed))
        with path.open("ab") as file:
            file.write(b"{")
    stored = read_all_results([*paths[::-1]])
    assert [one.seed for one in stored.results] == [1, 0]
    assert len(stored.warnings) == 2


def _append_many(path: Path, start: int) -> None:
    for seed in range(start, start + 25):
        append_result(path, result("mend", 0.5, seed=seed, hardware="x" * 5000))


def test_processes_that_append_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, 25 * k)) for k in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert sorted(result.seed for result in read_results(path).results) == list(range(75))


def test_a_line_waits_for_whoever_writes_another(tmp_path: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "results.jsonl"
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        writer = threading.Thread(target=append_result, args=(path, result()))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert path.read_bytes() == b""
    writer.join()
    assert read_results(path).results == [result()]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80))
def test_text_after_the_lines_is_ignored(tmp_path_factory: Any, rest: bytes) -> None:
    path = tmp_path_factory.mktemp("hostile") / "results.jsonl"
    append_result(path, result())
    with path.open("ab") as file:
        file.write(rest.replace(b"\n", b" "))
    assert read_results(path).results == [result()]
    append_result(path, result(seed=1))
    assert [one.seed for one in read_results(path).results] == [0, 1]


def test_noise_defaults_to_none() -> None:
    assert Noise() == Noise(None, None, 0)


def test_lines_of_an_earlier_version_are_read_with_one_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "results.jsonl"
    old = [msgspec.json.encode(result(seed=seed)) for seed in range(3)]
    path.write_bytes(b"\n".join(old) + b"\n")
    append_result(path, result(seed=3))
    stored = read_results(path)
    assert [one.seed for one in stored.results] == [0, 1, 2, 3]
    assert stored.warnings == []
    assert path.read_bytes().startswith(b"\n".join(old) + b"\n")  # they are left as they are
    assert path.read_bytes().count(b'"digest": "sha256:') == 1
    assert [record.getMessage().count("3 of its lines") for record in caplog.records] == [1]


def test_the_committed_results_are_read_with_one_note(caplog: pytest.LogCaptureFixture) -> None:
    path = ROOT / "results" / "voc320.jsonl"
    lines = path.read_bytes().count(b"\n")
    assert len(read_results(path).results) == lines
    assert len(caplog.records) <= 1


def test_a_changed_figure_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result(ap50=0.5))
    append_result(path, result(ap50=0.625))
    path.write_bytes(path.read_bytes().replace(b"0.625", b"0.725"))
    with pytest.raises(DataError, match=r"line 2 is damaged, or was edited.*; remove or correct"):
        read_results(path)


def test_nothing_is_appended_behind_a_line_whose_line_feed_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append_result(path, result(seed=0))
    damaged = path.read_bytes()[:-1] + b"J"
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="line 1 is damaged"):
        append_result(path, result(seed=1))
    with pytest.raises(DataError, match="line 1 is damaged"):
        read_results(path)
    assert path.read_bytes() == damaged


def test_a_line_of_format_1_is_read_with_the_present_names(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    settings = {
        "graph": True,
        "mend": {"near": 0.3, "boxes": "edges"},
        "optimisation": {"lr": 0.02},
    }
    old = {"settings": settings, "variant": {"mend.near": 0.3, "epochs": 6}, "format": 1}
    line = msgspec.to_builtins(result()) | old
    path.write_bytes(msgspec.json.encode(line) + b"\n")
    (upgraded,) = read_results(path).results
    assert upgraded.settings == {
        "cuda_graph": True,
        "mend": {"vote_min_iou": 0.3, "boxes": "edges"},
        "optimisation": {"lr": 0.02},
    }
    assert upgraded.variant == {"mend.vote_min_iou": 0.3, "epochs": 6}
    assert upgraded.format == 2
