"""The metrics of a run: nothing torn, no step twice."""

import contextlib
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmend.errors import DataError, OutputError
from boxmend.runs.folder import Run, create, open_run
from tests.runs.run_folders import FACTS, SETTINGS, content


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return create(tmp_path / "run", SETTINGS, FACTS)


class Phase(StrEnum):
    WARM_UP = "warm-up"


def test_a_line_of_metrics_is_strict_json_whatever_numbers_it_tells(run: Run) -> None:
    run.append_metrics(
        {
            "step": np.int64(1),
            "loss": np.float32(0.5),
            "threshold": float("inf"),
            "rates": {"R": np.float64("nan"), "tau": 1.0},
            "per_class": np.array([1.5, -np.inf]),
            "phase": Phase.WARM_UP,
            "images": ["ä\udcff.jpg"],
        }
    )
    line = (run.path / "metrics.jsonl").read_bytes()
    assert line.count(b"\n") == 1
    assert b"NaN" not in line
    assert b"Infinity" not in line
    assert run.read_metrics() == [
        {
            "step": 1,
            "loss": 0.5,
            "threshold": None,
            "rates": {"R": None, "tau": 1.0},
            "per_class": [1.5, None],
            "phase": "warm-up",
            "images": ["ä\udcff.jpg"],
        }
    ]


@pytest.mark.parametrize("step", [None, "1", 1.0, True])
def test_metrics_need_a_step(run: Run, step: Any) -> None:
    with pytest.raises(ValueError, match="integer 'step'"):
        run.append_metrics({"step": step})
    assert run.read_metrics() == []


def test_a_record_that_is_no_json_adds_nothing(run: Run) -> None:
    with pytest.raises(TypeError, match="JSON"):
        run.append_metrics({"step": 1, "loss": object()})
    assert run.read_metrics() == []


def steps(run: Run) -> list[int]:
    return [record["step"] for record in run.read_metrics()]


@pytest.mark.parametrize(
    ("checkpoint", "kept"),
    [(None, []), (-1, []), (0, [0]), (1, [0, 1, 1]), (2, [0, 1, 1, 2]), (9, [0, 1, 1, 2])],
)
def test_lines_after_the_checkpoint_are_removed(
    run: Run, checkpoint: int | None, kept: list[int]
) -> None:
    for step in (0, 1, 1, 2):  # an evaluation shares its step with a training line
        run.append_metrics({"step": step, "loss": 0.1 * step})
    lines = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    run.rewind_metrics(checkpoint)
    assert steps(run) == kept
    assert (run.path / "metrics.jsonl").read_bytes() == b"".join(lines[: len(kept)])


@pytest.mark.parametrize(("before", "kept"), [(0, []), (1, [0]), (2, [0, 1]), (4, [0, 1, 1])])
def test_lines_of_the_checkpoints_own_step_go_if_they_came_after_it(
    run: Run, before: int, kept: list[int]
) -> None:
    sizes = [run.sync_metrics()]
    for step in (0, 1, 1, 2):
        run.append_metrics({"step": step})
        sizes.append(run.sync_metrics())
    run.rewind_metrics(1, sizes[before])
    assert steps(run) == kept


def test_rewinding_where_no_line_was_written_does_nothing(run: Run) -> None:
    run.rewind_metrics(5)
    assert sorted(content(run.path)) == ["run.json", "settings.json"]


@pytest.mark.parametrize("torn", ['{"step": 3, "lo', '{"step": 3}', "\x00\x00", "{"])
def test_a_torn_last_line_is_passed_over_and_dropped_on_resuming(run: Run, torn: str) -> None:
    run.append_metrics({"step": 1})
    run.append_metrics({"step": 2})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert steps(run) == [1, 2]
    create(run.path, SETTINGS, FACTS, resume=True)
    run.append_metrics({"step": 3})
    assert steps(run) == [1, 2, 3]


def test_a_file_that_is_one_torn_line_becomes_empty(run: Run) -> None:
    (run.path / "metrics.jsonl").write_text('{"st')
    create(run.path, SETTINGS, FACTS, resume=True)
    assert (run.path / "metrics.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "line 2 is not JSON"),
        (b"\xff", "line 2 is not JSON"),
        (b"[" * 100_000, "line 2 is not JSON"),
        (b"", "line 2 is not JSON"),
        (b"3", "line 2 is not an object with an integer 'step'"),
        (b'{"loss": 1}', "line 2 is not an object with an integer 'step'"),
    ],
)
def test_a_damaged_line_before_the_last_is_named(run: Run, line: bytes, message: str) -> None:
    whole = b'{"step": 1}\n' + line + b'\n{"step": 2}\n'
    (run.path / "metrics.jsonl").write_bytes(whole)
    with pytest.raises(DataError, match=message):
        run.read_metrics()
    with pytest.raises(DataError, match=message):
        run.rewind_metrics(1)
    assert (run.path / "metrics.jsonl").read_bytes() == whole


def test_metrics_that_cannot_be_written_are_an_output_error(run: Run) -> None:
    (run.path / "metrics.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"metrics\.jsonl: could not be written \(Is a directory"):
        run.append_metrics({"step": 1})
    with pytest.raises(DataError, match=r"metrics\.jsonl: cannot be read \(a folder"):
        run.read_metrics()


@settings(max_examples=60, deadline=None)
@given(text=st.binary(max_size=60))
def test_any_bytes_as_metrics_end_in_a_data_error_or_in_records(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    run = create(tmp_path_factory.mktemp("runs"), SETTINGS, FACTS)
    (run.path / "metrics.jsonl").write_bytes(text)
    create(run.path, SETTINGS, FACTS, resume=True)
    with contextlib.suppress(DataError):
        run.rewind_metrics(3)
        assert all(record["step"] <= 3 for record in run.read_metrics())


TRAINING = """
import json, sys
from boxmend.data.files.atomic import open_atomic
from boxmend.runs.folder import create
run = create(sys.argv[1], {"a": 1}, {"seed": 2}, resume=True)
saved = run.path / "checkpoint.json"
last = json.loads(saved.read_text()) if saved.exists() else None
run.rewind_metrics(last)
print("ready", flush=True)
for step in range(0 if last is None else last + 1, int(sys.argv[2])):
    run.append_metrics({"step": step, "loss": 1 / (step + 1), "names": ["x" * 5000]})
    if step % 20 == 19:
        with open_atomic(saved) as file:
            file.write(str(step).encode())
run.finish()
"""


def start(path: Path, num_steps: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", TRAINING, str(path), str(num_steps)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_a_run_killed_again_and_again_has_the_metrics_of_one_never_killed(tmp_path: Path) -> None:
    for attempt in range(4):
        with start(tmp_path / "killed", 10**9) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(0.02 + 0.017 * attempt)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert not open_run(tmp_path / "killed").is_finished
    num_steps = len(open_run(tmp_path / "killed").read_metrics()) + 50
    for name in ("killed", "whole"):
        with start(tmp_path / name, num_steps) as process:
            process.communicate()
        assert process.returncode == 0
        assert open_run(tmp_path / name).is_finished
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    assert steps(Run(tmp_path / "killed")) == list(range(num_steps))
