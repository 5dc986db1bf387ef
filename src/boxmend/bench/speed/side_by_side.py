"""Run several trainings at the same time on one device, each in its own process."""

import multiprocessing
import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from boxmend.bench.speed.choices import SpeedChoices
from boxmend.bench.speed.timed_training import TrainingFactory
from boxmend.bench.speed.timing import WARM_UP, first_reason, own_stream
from boxmend.data.dataset import Dataset
from boxmend.errors import BoxmendError

ROWS = ("baseline", "mend")
STEPS_PER_CHECK = 10  # then the loop waits for the device
MAX_WAIT_SECONDS = 300.0  # until all are ready, and again until all have answered
MPS_PIPE_FOLDER = "/tmp/nvidia-mps"  # default folder of NVIDIA's service


class TimedJob(NamedTuple):
    """The training of one process."""

    dataset: Dataset
    choices: SpeedChoices
    device: str
    row: str
    size: str


def time_side_by_side(factory: TrainingFactory, row: str, size: str) -> dict[str, Any]:
    """Train a row in `jobs` processes at once; return images per second, each and in total.

    All start when the last one is ready. If a process fails, the result has its error and no total.
    """
    choices, jobs = factory.choices, factory.choices.jobs
    factory.note(f"{size}: {jobs} trainings of {row} side by side")
    plain = replace(factory.dataset, sources=())  # the documents are not needed in the processes
    job = TimedJob(plain, choices, str(factory.device), row, size)
    each: list[float] = []
    error: str | None = None
    try:
        each = _measure_rates(job, jobs, choices.seconds)
    except BoxmendError as failure:
        error = str(failure)
    return {
        "row": row,
        "image_size": size,
        "jobs": jobs,
        "images_per_second": None if error else sum(each),
        "each": each,
        "error": error,
    }


def is_mps_running() -> bool:
    """Return whether NVIDIA's multi-process service seems to run, so that kernels overlap."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPE_FOLDER)).exists()


def _measure_rates(job: TimedJob, jobs: int, seconds: float) -> list[float]:
    context = multiprocessing.get_context("spawn")  # a GPU cannot be shared with a fork
    with ExitStack() as cleanup:
        lines: list[Connection] = []
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(target=train_for, args=(job, seconds, theirs), daemon=True)
            process.start()
            theirs.close()  # so that this process notices its end
            cleanup.callback(_end_process, process)
            lines.append(ours)
        for line in lines:
            _receive_answer(line, MAX_WAIT_SECONDS)
        for line in lines:
            line.send("go")
        answers = [_receive_answer(line, MAX_WAIT_SECONDS + seconds) for line in lines]
    return [answer["images"] / answer["seconds"] for answer in answers]


def _receive_answer(line: Connection, max_wait_seconds: float) -> dict[str, Any]:
    if not line.poll(max_wait_seconds):
        raise BoxmendError(f"a training side by side did not respond for {max_wait_seconds:.0f} s")
    try:
        answer: dict[str, Any] = line.recv()
    except EOFError:
        raise BoxmendError("a training side by side exited without a result") from None
    if "error" in answer:
        raise BoxmendError(answer["error"])
    return answer


def _end_process(process: BaseProcess) -> None:
    process.join(5)
    if process.is_alive():
        process.kill()
        process.join()


def train_for(job: TimedJob, seconds: float, line: Connection) -> None:
    """Train in this process: report readiness, wait for the start, and report the speed."""
    device = torch.device(job.device)
    try:
        with tempfile.TemporaryDirectory() as folder, own_stream(device):
            factory = TrainingFactory(
                job.dataset, job.choices, device, Path(folder), lambda text: None
            )
            steps = factory.steps(job.row, job.size)
            steps.run(WARM_UP)
            line.send({"ready": True})
            line.recv()
            started, num_steps = time.perf_counter(), 0
            while time.perf_counter() - started < seconds:
                steps.run(STEPS_PER_CHECK)  # fetches figures, so it waits for the device
                num_steps += STEPS_PER_CHECK
            elapsed = time.perf_counter() - started
            line.send({"images": num_steps * steps.batch_size, "seconds": elapsed})
    except Exception as error:  # the parent process reports it
        line.send({"error": first_reason(error)})
