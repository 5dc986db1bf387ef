"""`boxmend bench speed`: all rows are there, ratios are quotients, and failures are reported."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from boxmend.bench.speed import growth, timing
from boxmend.bench.speed.choices import DEFAULT_ROWS
from boxmend.cli import run
from boxmend.cli.bench import _print

QUICK = [
    *("--detector", "tiny", "--sizes", "64", "--counts", "8/20", "--steps", "5"),
    *("--batch-size", "2", "--num-images", "4", "--workers", "0"),
]


@pytest.fixture(scope="module")
def record_measurement(
    toys: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command prints with --json, and what it writes: measured once."""
    out = tmp_path_factory.mktemp("bench") / "speed.json"
    printed, threads = io.StringIO(), torch.get_num_threads()
    torch.set_num_threads(1)  # more would wait for one another on so small images
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(timing, "WARM_UP", 1)
        patch.setattr(growth, "NUMBERS_OF_OBJECTS", (2, 3))
        patch.setattr(growth, "QUEUE_LENGTHS", (4,))
        result = ["bench", "speed", f"{toys}:train", *QUICK, "--json", "--out", str(out)]
        assert run(result) == 0
    torch.set_num_threads(threads)
    return json.loads(printed.getvalue()), json.loads(
        out.read_text(), parse_constant=_refuse_constant
    )


def _refuse_constant(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_the_table_has_all_rows_with_their_figures(record_measurement: tuple[Any, Any]) -> None:
    answer, written = record_measurement
    assert written == answer
    (table,) = answer["tables"]
    assert tuple(table["rows"]) == DEFAULT_ROWS
    assert (table["rois"], table["proposals"]) == (8, 20)
    for row in table["rows"].values():
        assert row["error"] is None
        assert len(row["blocks"]) == 5
        assert row["milliseconds"] == sorted(row["blocks"])[2]
        assert row["images_per_second"] == pytest.approx(2e3 / row["milliseconds"])
        assert row["peak_bytes"] is None  # of a CPU nothing is known


def test_ratios_are_quotients_of_what_is_shown(record_measurement: tuple[Any, Any]) -> None:
    (table,) = record_measurement[0]["tables"]
    assert len(table["ratios"]) == 6  # all but that of memory
    for ratio in table["ratios"]:
        above, below = ratio["ratio"].split(" / ")
        rows, measure = table["rows"], ratio["measure"]
        assert ratio["is"] == rows[above][measure] / rows[below][measure]


def test_stages_growth_and_memory_are_measured(record_measurement: tuple[Any, Any]) -> None:
    answer = record_measurement[0]
    assert [stage["row"] for stage in answer["stages"]] == ["baseline", "mend-paper", "mend"]
    assert all(sum(stage["shares"].values()) == pytest.approx(1) for stage in answer["stages"])
    objects = answer["growth"]["objects"]
    assert [(one["row"], one["number"]) for one in objects] == [
        ("mend-paper", 2),
        ("mend-paper", 3),
        ("mend", 2),
        ("mend", 3),
    ]
    assert [one["times_the_first"] for one in objects[::2]] == [1, 1]
    assert objects[3]["times_the_first"] == objects[3]["milliseconds"] / objects[2]["milliseconds"]
    mend = answer["tables"][0]["rows"]["mend"]["milliseconds"]
    memory = answer["growth"]["memory"]
    assert memory["share"] == memory["milliseconds"] / mend
    assert answer["side_by_side"] == []


def test_facts_and_requirements_are_printed(record_measurement: tuple[Any, Any]) -> None:
    answer = record_measurement[0]
    assert {"boxmend", "torch", "torchvision"} <= set(answer["facts"]["versions"])
    assert answer["facts"]["hardware"]
    notes = " ".join(answer["notes"])
    assert "times of a CPU say little" in notes
    assert "the weights are random" in notes
    assert "at 64 images are" in notes


def test_people_see_tables_and_failures(
    record_measurement: tuple[Any, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = json.loads(json.dumps(record_measurement[0]))
    failed = answer["tables"][0]["rows"]["plain"]
    failed |= {"milliseconds": None, "images_per_second": None, "error": "OutOfMemoryError: full"}
    beside = {
        "row": "mend",
        "image_size": "64",
        "jobs": 3,
        "images_per_second": 12.5,
        "error": None,
    }
    answer["side_by_side"] = [beside]
    _print(answer)
    shown = capsys.readouterr().out
    lines = {line.split()[0]: line for line in shown.splitlines() if line}
    assert all(row in lines for row in DEFAULT_ROWS)
    assert any("OutOfMemoryError: full" in line for line in shown.splitlines())
    assert "mend / baseline" in shown
    assert "features" in shown
    assert "memory across visits takes" in shown
    assert "12.5" in shown


def test_a_failing_row_is_reported_and_the_others_are_measured(
    toys: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from boxmend.bench.speed import tables

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(tables, "plain_steps", full)
    only = ["--rows", "plain,baseline", "--no-stages", "--no-growth"]
    assert run(["bench", "speed", f"{toys}:train", *QUICK, *only, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    rows = answer["tables"][0]["rows"]
    assert rows["plain"]["error"] == "RuntimeError: CUDA out of memory"
    assert rows["plain"]["milliseconds"] is None
    assert rows["baseline"]["milliseconds"] > 0
    assert answer["tables"][0]["ratios"] == []
    assert (answer["stages"], answer["growth"]) == ([], None)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "give the data"),
        (["TOYS:train", "--rows", "fastest"], "known: plain, "),
        (["TOYS:train", "--sizes", "huge"], "image_size is 'huge'"),
        (["TOYS:train", "--steps", "0"], "at least 5"),
        (["TOYS:train", "--detector", "yolo"], "unknown detector 'yolo'"),
        (["TOYS:train", "--weights", "nowhere.safetensors"], "no such file"),
        (["TOYS:train", "--out", "TOYS"], "the file exists"),
    ],
    ids=str,
)
def test_wrong_usage_ends_with_two_and_a_message(
    tokens: list[str], message: str, toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "speed", *(token.replace("TOYS", str(toys)) for token in tokens)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err


def test_the_help_of_bench_names_what_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--help"]) == 0
    assert "speed" in capsys.readouterr().out
