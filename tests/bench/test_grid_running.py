"""The runner, with processes that only pretend: order, failures, kills, and others beside it."""

import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from boxmend.bench.grids import running
from boxmend.bench.grids.cell_process import CellStatus
from boxmend.bench.grids.executors import Local, Process
from boxmend.bench.grids.jobs import (
    LOCK_FILE,
    RUN_FOLDER,
    TRIES_FILE,
    State,
    Tries,
    state_of,
    write_json,
)
from boxmend.bench.grids.results import RESULTS_FILE, read_results
from boxmend.bench.grids.running import GridProgress, run_grid
from boxmend.data.files.locks import hold_lock
from tests.bench.grid_worlds import QUICK, Ending, Pretending, begun, pretended, ready

FOUR = ("label40-box40-baseline-0", "label40-box40-[bl]r-0", "label40-box40-mend-0")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "POLL_SECONDS", 0.01)


def test_every_cell_is_run_once_and_never_again(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    executor, updates = Pretending(2), list[GridProgress]()
    ended = run_grid(plan, executor, show=updates.append)
    names = [cell.name for cell in plan.cells]
    assert executor.started == names
    assert sorted(ended.done) == sorted(names)
    assert (ended.failed, ended.stopped, ended.was_stopped) == ({}, [], False)
    assert max(len(update.running) for update in updates) == 2
    assert (updates[-1].done, updates[-1].left) == (4, 0)
    again = Pretending(2)
    assert sorted(run_grid(plan, again).done) == sorted(names)
    assert again.started == []


def test_cells_are_shared_by_the_grids_of_a_scale(toys: Path, tmp_path: Path) -> None:
    run_grid(ready(toys, tmp_path, only=FOUR), Pretending())
    core, executor = ready(toys, tmp_path, "core", only=("label40-box40-*",)), Pretending()
    run_grid(core, executor)
    assert "label40-box40-oa-mil-0" in executor.started
    assert not any(name.endswith(("-br-0", "-lr-0", "-mend-0")) for name in executor.started)


def test_a_failed_cell_does_not_stop_the_others(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    ended = run_grid(plan, Pretending(1, br="the dog ate it"))
    assert ended.failed == {"label40-box40-br-0": "the dog ate it"}
    assert len(ended.done) == 3

    again = Pretending(1)
    assert run_grid(plan, again).failed == ended.failed
    assert again.started == []
    assert run_grid(plan, again, retry_failed=True).failed == {}
    assert again.started == ["label40-box40-br-0"]


def test_a_cell_that_fails_again_is_tried_once(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    run_grid(plan, Pretending(1, br="no", lr="no"))
    executor = Pretending(1, br="no", lr="no")
    assert len(run_grid(plan, executor, retry_failed=True).failed) == 2
    assert len(executor.started) == 2


def test_a_killed_cell_is_recorded_and_continued_by_the_next_call(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    ended = run_grid(plan, Pretending(2, lr=-signal.SIGKILL))
    assert "killed by SIGKILL" in ended.failed["label40-box40-lr-0"]
    assert "--jobs" in ended.failed["label40-box40-lr-0"]
    (killed,) = [
        result for result in read_results(plan.root / RESULTS_FILE).results if result.error
    ]
    assert killed.cell == "label40-box40-lr-0"
    executor = Pretending(2)
    assert run_grid(plan, executor).failed == {}
    assert executor.started == ["label40-box40-lr-0"]


def test_a_process_that_ends_without_a_word_leaves_its_last_lines(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path, only=("label40-box40-mend-0",))
    folder = plan.folder(plan.cells[0])
    (folder / "log.txt").write_text("first\n" * 9 + "ImportError: no torch\n")
    ended = run_grid(plan, Pretending(1, mend=1))
    assert ended.failed[folder.name].startswith(
        "exited with status 1. Its last lines of output:\nfirst\n"
    )
    assert ended.failed[folder.name].endswith("ImportError: no torch")
    assert state_of(folder) is State.FAILED


def test_a_cell_that_was_asked_to_stop_is_no_failure(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    ended = run_grid(plan, Pretending(2, mend=int(CellStatus.STOPPED), br=-signal.SIGTERM))
    assert sorted(ended.stopped) == ["label40-box40-br-0", "label40-box40-mend-0"]
    assert ended.failed == {}


def test_a_cell_waits_for_the_cell_it_needs_and_fails_with_it(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, "two-stage", only=())
    executor = Pretending(8)
    assert run_grid(plan, executor).failed == {}
    assert executor.started[-1] == "label40-box40-two-stage-0"

    plan = ready(toys, tmp_path / "other", "two-stage", only=())
    executor = Pretending(8, mend="no")
    ended = run_grid(plan, executor)
    assert set(ended.failed) == {"label40-box40-mend-0", "label40-box40-two-stage-0"}
    assert "needs label40-box40-mend-0" in ended.failed["label40-box40-two-stage-0"]


def test_a_cell_that_another_process_runs_is_waited_for(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    folder = plan.folder(plan.cells[-1])
    seen, executor = list[GridProgress](), Pretending(4)
    with hold_lock(folder / LOCK_FILE):
        thread_ended = threading.Event()

        def other() -> None:
            while not any(one.done == 3 for one in list(seen)):
                time.sleep(0.01)
            pretended(folder)
            thread_ended.set()

        threading.Thread(target=other).start()
        box: list[object] = []
        runner = threading.Thread(
            target=lambda: box.append(run_grid(plan, executor, show=seen.append))
        )
        runner.start()
        assert thread_ended.wait(20)
    runner.join(20)
    assert not runner.is_alive()
    assert folder.name not in executor.started
    assert any(one.elsewhere == [folder.name] for one in seen)
    assert len(box) == 1


def test_a_cell_that_another_process_took_first_is_not_lost(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path)
    (cell,) = plan.cells

    class Late(Pretending):
        def _started(self, folder: Path) -> Process:
            self.started.append(folder.name)
            if len(self.started) == 1:
                return Ending(int(CellStatus.HELD))
            pretended(folder)
            return Ending(0)

    executor = Late(1)
    assert run_grid(plan, executor).done == [cell.name]
    assert len(executor.started) == 2


def test_sigterm_is_passed_on_and_a_second_one_kills(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)

    class Stubborn(Ending):
        def poll(self) -> int | None:
            return -signal.SIGKILL if "kill" in self.asked else None

        def stop(self) -> None:
            super().stop()
            os.kill(os.getpid(), signal.SIGTERM)

    endings = list[Stubborn]()

    class Endless(Pretending):
        def start(self, folders: Sequence[Path]) -> list[Process]:
            endings.extend(Stubborn(0) for _ in folders)
            os.kill(os.getpid(), signal.SIGTERM)
            return list(endings)

    before = signal.getsignal(signal.SIGTERM)
    updates = list[GridProgress]()
    ended = run_grid(plan, Endless(2), show=updates.append)
    assert updates[-1].is_stopping
    assert signal.getsignal(signal.SIGTERM) is before
    assert ended.was_stopped
    assert len(ended.stopped) == 2
    assert [ending.asked[0] for ending in endings] == ["stop", "stop"]
    assert all("kill" in ending.asked for ending in endings)


def test_no_cell_is_started_when_the_time_is_over_and_those_that_run_end(
    toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    pretended(plan.folder(plan.cells[-1]))
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(Pretending):
        def _started(self, folder: Path) -> Process:
            now[0] += 3.0
            return super()._started(folder)

    executor, updates = Slow(1), list[GridProgress]()
    ended = run_grid(plan, executor, stop_after=4.0, show=updates.append)
    names = [cell.name for cell in plan.cells]
    assert executor.started == names[:2]  # at 0 and 3 seconds; at 6 it is too late
    assert sorted(ended.done) == sorted([*names[:2], names[3]])
    assert ended.left == [names[2]]
    assert (ended.failed, ended.stopped, ended.was_stopped) == ({}, [], False)
    assert updates[-1].is_closing
    assert not updates[0].is_closing
    again = Pretending(1)
    assert run_grid(plan, again).left == []
    assert again.started == [names[2]]


def test_a_cell_that_another_process_runs_is_left_when_the_time_is_over(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path)
    folder = plan.folder(plan.cells[0])
    with hold_lock(folder / LOCK_FILE):
        ended = run_grid(plan, Pretending(1), stop_after=0.05)
    assert ended.left == [folder.name]


def test_time_left_uses_finished_cells(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=FOUR)
    updates = list[GridProgress]()
    run_grid(plan, Pretending(1), show=updates.append)
    assert updates[0].seconds_left is None
    # One is done, took 2 s; one runs, begun just now; two wait, and there is one slot.
    second = next(update for update in updates if update.done == 1 and update.running)
    assert second.seconds_left == pytest.approx(2 + 2 * 2, abs=0.5)


def test_time_left_uses_the_epochs_of_a_running_cell(toys: Path, tmp_path: Path) -> None:
    changes = {**QUICK, "epochs": 4}
    plan = ready(toys, tmp_path, changes=changes)
    folder = plan.folder(plan.cells[0])
    begun(folder)
    write_json(folder / TRIES_FILE, Tries(1, 30.0))
    lines = ({"step": 30, "epoch": 2, "epoch_ends": 2}, {"step": 30, "epoch": 2})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / RUN_FOLDER / "metrics.jsonl").write_text(text)
    updates = list[GridProgress]()
    run_grid(plan, Pretending(1), show=updates.append)
    # It continues after three of four epochs, which took 30 s in an earlier try: 10 s are left.
    assert updates[0].running[0].epochs_done == 3
    assert updates[0].seconds_left == pytest.approx(10, abs=1.5)


def test_slots_are_spread_over_gpus_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    spread = Local(3, ("4", "7"), cores=16)
    assert [spread.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(3)] == [
        "4",
        "7",
        "4",
    ]
    assert spread.environment(0)["OMP_NUM_THREADS"] == "5"  # 16 // 3
    alone = Local(8, (), cores=2).environment(0)
    assert alone == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
