"""Cells as jobs: through submitit's own local processes, which are kept as SLURM's jobs are."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from boxmend.bench.grids import slurm
from boxmend.bench.grids.cell_process import CellStatus
from boxmend.bench.grids.jobs import State, read_result, state_of
from boxmend.bench.grids.running import run_grid
from boxmend.bench.grids.slurm import CellTask, JobProcess, Queue, Submitit
from boxmend.errors import UsageError
from tests.bench.grid_worlds import QUICK, ready

pytest.importorskip("submitit")


class Job:
    """The state of a job, as submitit reports it."""

    job_id = "7_1"

    def __init__(self, folder: Path, *, done: bool = False, outcome: object = None):
        self._done, self._outcome, self.is_cancelled = done, outcome, False
        self.paths = SimpleNamespace(result_pickle=folder / "7_1_result.pkl")

    def done(self) -> bool:
        return self._done

    def cancel(self, check: bool = True) -> None:
        self.is_cancelled = True

    def _get_outcome_and_result(self) -> object:
        if self._outcome is None:
            raise RuntimeError("no result")
        return self._outcome


def test_the_status_of_a_job_is_that_of_its_cell(tmp_path: Path) -> None:
    assert JobProcess(Job(tmp_path)).poll() is None
    assert JobProcess(Job(tmp_path, done=True, outcome=("success", 3))).poll() == 3
    assert JobProcess(Job(tmp_path, done=True, outcome=("error", "trace"))).poll() == 1
    assert JobProcess(Job(tmp_path, done=True)).poll() == CellStatus.STOPPED  # cancelled, say
    job = Job(tmp_path)
    JobProcess(job).stop()
    assert job.is_cancelled


def test_a_result_tells_that_a_job_is_over_before_the_scheduler_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "queued_jobs", lambda: frozenset({"7_1"}))
    job = Job(tmp_path, outcome=("success", 0))
    assert JobProcess(job, Queue()).poll() is None
    job.paths.result_pickle.touch()
    assert JobProcess(job, Queue()).poll() == 0


def test_a_job_that_two_answers_of_the_scheduler_lack_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([{"7_1", "7_2"}, {"7_2"}, {"7_1"}, None, {"7_2"}, {"7_2"}])
    monkeypatch.setattr(slurm, "QUERY_INTERVAL_SECONDS", 0)
    monkeypatch.setattr(slurm, "queued_jobs", lambda: next(answers))
    process = JobProcess(Job(tmp_path), Queue())
    assert [process.poll() for _ in range(6)] == [*[None] * 5, CellStatus.STOPPED]


def test_the_scheduler_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def answer() -> frozenset[str]:
        asked.append(1)
        return frozenset({"a"})

    monkeypatch.setattr(slurm, "queued_jobs", answer)
    queue = Queue()
    assert [queue.has(name) for name in "ab" * 20] == [True, False] * 20
    assert len(asked) == 1


def test_no_answer_of_the_scheduler_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert slurm.queued_jobs() is None
    assert Queue().has("7_1")


def test_without_submitit_the_message_has_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(UsageError, match=r"pip install 'boxmend\[slurm\]'"):
        Submitit(tmp_path, 2, {}, is_local=False)


def test_a_machine_without_slurm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="--executor submitit: Could not detect"):
        Submitit(tmp_path, 2, {}, is_local=False)


def test_options_of_sbatch_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import submitit

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    options = {"partition": "gpu", "gpus": "1", "timeout-minutes": "60", "cpus": "8", "mem": "32G"}
    executor = Submitit(tmp_path, 5, options, is_local=False)
    assert executor.outlives
    assert executor._executor.parameters == {
        "job_name": "boxmend",
        "partition": "gpu",
        "gpus_per_node": 1,
        "time": 60,
        "cpus_per_task": 8,
        "mem": "32G",
        "array_parallelism": 5,
    }
    with pytest.raises(UsageError, match=r"--executor submitit: .*colour"):
        Submitit(tmp_path, 5, {"colour": "red"}, is_local=False)


@pytest.mark.slow
def test_cells_run_as_jobs_and_one_that_fails_is_recorded(toys: Path, tmp_path: Path) -> None:
    plan = ready(toys, tmp_path, only=("label40-box40-baseline-0", "label40-box40-mend-0"))
    (tmp_path / "voc320/cells/label40-box40-mend-0/run").mkdir()
    (tmp_path / "voc320/cells/label40-box40-mend-0/run/foreign").touch()
    ended = run_grid(plan, Submitit(plan.root, 2, {}, is_local=True))
    assert ended.done == ["label40-box40-baseline-0"]
    assert (
        "is not the folder of a run, and not empty (foreign)"
        in ended.failed["label40-box40-mend-0"]
    )


@pytest.mark.slow
def test_a_preempted_job_saves_and_continues_when_it_is_requeued(
    toys: Path, tmp_path: Path
) -> None:
    plan = ready(toys, tmp_path, changes={**QUICK, "epochs": 3, "checkpoint_every": 1000})
    folder = plan.folder(plan.cells[0])
    code = (
        "import sys; from boxmend.bench.grids.slurm import CellTask; import signal\n"
        "task = CellTask(sys.argv[1])\n"
        "def preempt(*_):\n"
        "    again = task.checkpoint()\n"
        "    assert again.function.folder == sys.argv[1]\n"
        "    sys.exit(99)\n"
        "signal.signal(signal.SIGUSR2, preempt)\n"
        "sys.exit(task())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    metrics = folder / "run" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not metrics.exists() or not metrics.stat().st_size:
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR2)
    assert process.wait(120) == 99
    assert state_of(folder) is State.STOPPED
    assert (folder / "run" / "checkpoint.pt").exists()  # though none was due
    assert CellTask(str(folder))() == CellStatus.DONE
    result = read_result(folder)
    assert result is not None
    assert result.attempt == 2
