"""Run cells as SLURM jobs: job arrays of submitit, requeued after preemption."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxmend.bench.grids.cell_process import CellStatus
from boxmend.bench.grids.executors import LocalProcess, Process
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import add_json_digest, split_json_digest
from boxmend.data.files.reading import read_record
from boxmend.errors import BoxmendError, UsageError

if TYPE_CHECKING:
    from submitit import Executor
    from submitit.helpers import DelayedSubmission

POLL_SECONDS = 0.2  # between checks of the process of the cell
QUERY_INTERVAL_SECONDS = 30.0  # of the queue
SLURM_CAPACITY = 1_000_000  # cells at the same time; SLURM has no limit
DEFAULT_TIMEOUT_MINUTES = 720  # of a job; an unfinished cell is requeued and continues
MAX_TIMEOUTS = 100
SUBMITTED_FILE = "submitted.json"
SUBMITIT_NAMES = {
    "gpus": "gpus_per_node",
    "timeout-minutes": "timeout_min",
    "cpus": "cpus_per_task",
}
"""The names in submitit of options of boxmend; other options have the names of sbatch."""


class CellTask:
    """The task of a job: the cell runs in a child process, which saves before the job ends.

    submitit calls `checkpoint` on preemption and shortly before the time limit, and requeues.
    """

    def __init__(self, folder: str):
        self.folder = folder
        self._process: LocalProcess | None = None

    def __call__(self) -> int:
        """Run the cell; return its exit status."""
        self._process = LocalProcess(Path(self.folder), {})
        try:
            while (status := self._process.poll()) is None:
                time.sleep(
                    POLL_SECONDS
                )  # unlike a wait, this lets a signal handler poll the process
            return status
        finally:
            self._stop_process()

    def checkpoint(self) -> "DelayedSubmission":
        """Stop the cell, which saves its state; return the task that continues it."""
        from submitit.helpers import DelayedSubmission

        self._stop_process()
        return DelayedSubmission(CellTask(self.folder))

    def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.stop()
            while process.poll() is None:
                time.sleep(POLL_SECONDS)


class Queue:
    """The user's jobs in the SLURM queue, updated now and then; needs no accounting database."""

    def __init__(self) -> None:
        self._names: frozenset[str] | None = None
        self._asked_at = -QUERY_INTERVAL_SECONDS
        self.num_queries = 0

    def has(self, job: str) -> bool:
        """Return whether a job waits or runs by the last answer; True without an answer."""
        if time.monotonic() - self._asked_at >= QUERY_INTERVAL_SECONDS:
            self._names, self._asked_at = queued_jobs(), time.monotonic()
            self.num_queries += 1
        return self._names is None or job in self._names


class JobProcess:
    """A cell in a job of the scheduler."""

    def __init__(self, job: Any, queue: Queue | None = None):
        """Watch a job; without a queue, the job itself reports whether it is over."""
        self.job, self._queue = job, queue
        self._missed_at: int | None = None  # number of the first query whose answer lacked the job

    def poll(self) -> int | None:
        """Return None while the job waits, runs or is requeued, then the status of the cell."""
        if not self._is_over():
            return None
        try:
            outcome, result = self.job._get_outcome_and_result()
        except Exception:  # cancelled, lost with its node, or over its time: it can continue
            return CellStatus.STOPPED
        return int(result) if outcome == "success" else 1

    def stop(self) -> None:
        """Cancel the job; its cell saves its state."""
        self.job.cancel(check=False)

    def kill(self) -> None:
        """Cancel the job."""
        self.stop()

    def _is_over(self) -> bool:
        """Return whether there is a result, or two answers of SLURM in a row lack the job.

        One answer is not enough, since files may appear late.
        """
        if self._queue is None:
            return bool(self.job.done())
        if self.job.paths.result_pickle.exists():
            return True
        if self._queue.has(self.job.job_id):
            self._missed_at = None
        elif self._missed_at is None:
            self._missed_at = self._queue.num_queries
        return self._missed_at is not None and self._queue.num_queries > self._missed_at


class Submitit:
    """An executor of cells as SLURM jobs, or with `is_local` as processes of submitit."""

    def __init__(self, root: Path, jobs: int | None, options: Mapping[str, str], *, is_local: bool):
        self._folder = root / "jobs"
        self._is_local, self._jobs = is_local, jobs
        self._executor = _make_executor(self._folder, jobs, options, is_local=is_local)
        self._queue = None if is_local else Queue()
        self.outlives = not is_local

    @property
    def capacity(self) -> int:
        """Return the number of local processes; for SLURM there is no limit."""
        return (self._jobs or 1) if self._is_local else SLURM_CAPACITY

    def start(self, folders: Sequence[Path]) -> list[Process]:
        """Submit the cells as an array; cells that are still queued are not submitted again."""
        known = {folder: self._find_queued_job(folder) for folder in folders}
        new = [folder for folder in folders if known[folder] is None]
        tasks = [CellTask(str(folder.absolute())) for folder in new]
        try:
            submitted = self._submit_array(tasks)
        except Exception as error:  # submitit raises errors of many types
            raise BoxmendError(f"the jobs could not be submitted: {error}") from error
        for folder, job in zip(new, submitted, strict=True):
            known[folder] = JobProcess(job, self._queue)
            with open_atomic(folder / SUBMITTED_FILE) as file:
                file.write(add_json_digest(json.dumps({"job": job.job_id}).encode()))
        return [process for process in known.values() if process is not None]

    def _submit_array(self, tasks: Sequence[CellTask]) -> list[Any]:
        """Submit tasks as one array."""
        if not tasks:
            return []
        with self._executor.batch():
            return [self._executor.submit(task) for task in tasks]

    def _find_queued_job(self, folder: Path) -> JobProcess | None:
        """Return the job of a cell that an earlier call submitted, if it is still queued."""
        path = folder / SUBMITTED_FILE
        if self._queue is None or not path.exists():
            return None
        try:
            content = read_record(path)
            name = str(json.loads(split_json_digest(content) or content)["job"])
        except (ValueError, KeyError, TypeError):
            return None
        if not self._queue.has(name):
            return None
        from submitit import SlurmJob

        return JobProcess(SlurmJob(folder=self._folder, job_id=name), self._queue)


def queued_jobs() -> frozenset[str] | None:
    """Ask SLURM for the names of the user's jobs; None without an answer."""
    try:
        answer = subprocess.run(
            ["squeue", "--me", "--noheader", "--array", "--format", "%i"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return frozenset(answer.stdout.split())


def _make_executor(
    folder: Path, jobs: int | None, options: Mapping[str, str], *, is_local: bool
) -> "Executor":
    try:
        import submitit
    except ModuleNotFoundError as error:
        raise UsageError(
            "--executor submitit needs submitit, which is not installed: pip install "
            "'boxmend[slurm]'"
        ) from error
    values = {
        SUBMITIT_NAMES.get(name, name.replace("-", "_")): _parse_value(options[name])
        for name in options
    }
    values.setdefault("timeout_min", DEFAULT_TIMEOUT_MINUTES)
    try:
        if is_local:
            executor: Executor = submitit.LocalExecutor(folder, max_num_timeout=MAX_TIMEOUTS)
            executor.update_parameters(timeout_min=values["timeout_min"])
            return executor
        executor = submitit.SlurmExecutor(folder, max_num_timeout=MAX_TIMEOUTS)
        minutes = values.pop("timeout_min")
        if jobs is not None:
            values.setdefault("array_parallelism", jobs)
        executor.update_parameters(**{"job_name": "boxmend", "time": minutes, **values})
    except Exception as error:  # of any type: no SLURM on this machine, an unknown option
        raise UsageError(f"--executor submitit: {error}") from error
    return executor


def _parse_value(text: str) -> int | str:
    return int(text) if text.isdecimal() else text
