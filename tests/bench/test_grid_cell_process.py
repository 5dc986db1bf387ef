"""The life of one cell: trained, scored, recorded; killed at any moment, it goes on."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from boxmend.bench.grids.cell_process import CellStatus, run_cell
from boxmend.bench.grids.executors import Local
from boxmend.bench.grids.jobs import LOCK_FILE, State, read_result, read_tries, state_of
from boxmend.bench.grids.outcomes import source_hash
from boxmend.bench.grids.planning import Plan
from boxmend.bench.grids.results import RESULTS_FILE, read_results
from boxmend.bench.grids.running import run_grid
from boxmend.data.files.locks import hold_lock
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs.folder import Run
from boxmend.training.train import Interrupted
from tests.bench.grid_worlds import ready


@pytest.fixture(scope="module")
def finished_plan(toys: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A grid of one cell that was run to its end in this process."""
    plan = ready(toys, tmp_path_factory.mktemp("grid"))
    assert run_cell(plan.folder(plan.cells[0])) is CellStatus.DONE
    return plan


def test_a_cell_that_is_done_has_scores_hashes_and_a_line(finished_plan: Plan, toys: Path) -> None:
    folder = finished_plan.folder(finished_plan.cells[0])
    result = read_result(folder)
    assert result is not None
    assert read_results(finished_plan.root / RESULTS_FILE).results == [result]
    assert (result.cell, result.scale, result.method) == (folder.name, "voc320", "mend")
    assert (result.noise.labels, result.noise.boxes) == ("symmetric:0.4", "uniform:0.4")
    assert result.error is None
    assert {"voc_ap50_area", "voc_ap50_11point", "coco_ap", "coco_ap50"} <= set(result.scores)
    assert all(value is None or 0 <= value <= 1 for value in result.scores.values())
    assert set(result.scores_by_label) == set(load(str(toys)).label_names)
    noise = finished_plan.root / "noise" / "label40-box40-0"
    assert result.data.noisy_sha256 == fingerprint(load(str(noise)))
    assert result.data.train_sha256 == fingerprint(load(f"{toys}:train"))
    assert result.data.val_sha256 == fingerprint(load(f"{toys}:val"))
    assert result.mending is not None
    assert result.mending["labels"]["noise_before"] == pytest.approx(0.4, abs=0.01)
    assert {"boxmend", "torch", "numpy"} <= set(result.versions)
    assert result.code == source_hash()
    assert (result.attempt, result.settings["epochs"], result.settings["mend"]["vote_min_iou"]) == (
        1,
        1,
        0.3,
    )
    assert "published" not in result.settings
    assert result.seconds > 0


def test_the_hash_of_the_source_changes_with_its_lines_alone(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    sources = {"a.py": b"one = 1\n", "parts/b.py": b"two = 2\n"}
    for name, text in sources.items():
        (tmp_path / name).write_bytes(text)

    before = source_hash(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", before)
    (tmp_path / "a.pyc").write_bytes(b"compiled")
    (tmp_path / "a.py").write_bytes(b"one = 1\r\n")
    assert source_hash(tmp_path) == before
    (tmp_path / "parts/b.py").write_bytes(b"two = 3\n")
    assert source_hash(tmp_path) != before
    (tmp_path / "parts/b.py").write_bytes(sources["parts/b.py"])
    assert source_hash(tmp_path) == before
    (tmp_path / "parts/b.py").rename(tmp_path / "parts/c.py")
    assert source_hash(tmp_path) != before


def test_weights_go_when_all_is_scored_and_the_rest_stays(finished_plan: Plan) -> None:
    run = finished_plan.folder(finished_plan.cells[0]) / "run"
    assert not list(run.glob("*.safetensors"))
    assert not (run / "checkpoint.pt").exists()
    assert Run(run).is_finished
    assert (run / "ledger").is_dir()
    assert (run / "metrics.jsonl").is_file()


def test_a_cell_that_is_done_is_left_alone(finished_plan: Plan) -> None:
    folder = finished_plan.folder(finished_plan.cells[0])
    before = (folder / "result.json").read_bytes()

    def train(*arguments: Any, **more: Any) -> None:
        raise AssertionError("it was trained again")

    assert run_cell(folder, train) is CellStatus.DONE
    assert (folder / "result.json").read_bytes() == before


def test_a_cell_that_is_held_is_not_touched(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    with hold_lock(folder / LOCK_FILE):
        assert run_cell(folder) is CellStatus.HELD
    assert not (folder / "tries.json").exists()


def test_a_failure_is_recorded_and_another_try_counts_anew(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])

    def train(*arguments: Any, **more: Any) -> None:
        raise RuntimeError("CUDA error: out of memory")

    assert run_cell(folder, train) is CellStatus.FAILED
    assert "Traceback" in capsys.readouterr().err
    result = read_result(folder)
    assert result is not None
    assert result.error is not None
    assert result.error.startswith("RuntimeError: CUDA error: out of memory; ")
    assert "--jobs" in result.error
    assert result.scores == {}
    assert run_cell(folder, train) is CellStatus.FAILED
    assert [one.attempt for one in read_results(plan.root / RESULTS_FILE).results] == [1, 2]


def test_a_method_that_there_is_not_fails_with_those_that_are(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from boxmend.methods import table as methods

    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    monkeypatch.delitem(methods.METHODS, "mend")
    assert run_cell(folder) is CellStatus.FAILED
    result = read_result(folder)
    assert result is not None
    assert result.error is not None
    assert "baseline" in result.error


def test_an_interruption_leaves_no_result(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])

    def train(*arguments: Any, **more: Any) -> None:
        raise Interrupted("stopped at step 3")

    assert run_cell(folder, train) is CellStatus.STOPPED
    assert read_result(folder) is None
    assert not (plan.root / RESULTS_FILE).exists()
    assert read_tries(folder).number == 1


def start_cell(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "boxmend.bench.grids.cell_process", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)


def wait_for(path: Path, lines: int = 1, seconds: float = 120) -> None:
    """Wait until a file has that many lines."""
    until = time.monotonic() + seconds
    while not path.exists() or path.read_bytes().count(b"\n") < lines:
        assert time.monotonic() < until, f"{path} was not written"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_cell_killed_in_the_middle_continues_to_the_same_end(toys: Path, tmp_path: Path) -> None:
    plain, killed = (
        ready(toys, tmp_path / name, changes=_longer()) for name in ("plain", "killed")
    )
    assert run_cell(plain.folder(plain.cells[0])) is CellStatus.DONE
    folder = killed.folder(killed.cells[0])
    process = start_cell(folder)
    wait_for(folder / "run" / "metrics.jsonl", lines=3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert state_of(folder) is State.STOPPED
    assert run_grid(killed, Local(1)).done == [folder.name]
    one, other = read_result(folder), read_result(plain.folder(plain.cells[0]))
    assert one is not None
    assert other is not None
    assert (one.attempt, other.attempt) == (2, 1)
    assert one.scores == other.scores  # bit for bit on a CPU
    assert one.mending == other.mending
    assert one.data == other.data


def _longer() -> dict[str, Any]:
    from tests.bench.grid_worlds import QUICK

    return {**QUICK, "epochs": 3, "batch_size": 4}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_cells_leave_with_the_runner_and_two_runners_finish_them(
    number: signal.Signals, toys: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "boxmend", "bench", "run", "table1", "--scale", "voc320"]
    command += ["--data", f"{toys}:train", "--val", f"{toys}:val", "--out", str(tmp_path)]
    command += ["--only", "label40-box40-baseline-0,label40-box40-mend-0", "--jobs", "2", "--json"]
    for key, value in _longer().items():
        command += ["--set", f"{key}={value}"]

    def begin() -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)

    folders = [
        tmp_path / "voc320/cells" / f"label40-box40-{name}-0" for name in ("baseline", "mend")
    ]
    runner = begin()
    wait_for(folders[1] / "run" / "metrics.jsonl", lines=2)
    runner.send_signal(number)
    runner.communicate(timeout=120)
    assert runner.returncode == (3 if number is signal.SIGTERM else -number)
    until = time.monotonic() + 60
    while any(state_of(folder) is State.RUNNING for folder in folders):
        assert time.monotonic() < until, "a cell outlived its runner"
        time.sleep(0.1)
    assert State.FAILED not in {state_of(folder) for folder in folders}

    both = [begin(), begin()]
    answers = [json.loads(one.communicate(timeout=300)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    for answer in answers:
        assert sorted(answer["done"]) == sorted(folder.name for folder in folders)
    results = read_results(tmp_path / "voc320" / RESULTS_FILE).results
    assert sorted(result.cell for result in results) == sorted(folder.name for folder in folders)
    shutil.rmtree(tmp_path / "voc320")


@pytest.mark.slow
def test_the_second_stage_is_trained_on_what_the_first_mended(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, "two-stage", only=("*-two-stage-0",))
    assert len(run_grid(plan, Local(1)).done) == 2
    second = read_result(plan.folder(plan.cells[1]))
    assert second is not None
    assert second.settings["method"] == "baseline"
    mended = plan.root / "mended" / "label40-box40-mend-0"
    assert (mended / "patch.json").is_file()
    first = read_result(plan.folder(plan.cells[0]))
    assert first is not None
    assert second.data.noisy_sha256 == first.data.noisy_sha256
    facts = Run(plan.folder(plan.cells[1]) / "run").facts()
    assert facts["data"]["sha256"] == fingerprint(load(str(mended)))
    assert second.mending is not None
