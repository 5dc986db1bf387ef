"""Run a cell in a process: noisy data, training, scores, and a line of results.

    python -m boxmend.bench.grids.cell_process OUT/SCALE/cells/CELL

Another call continues after any interruption: it resumes the training, or scores a finished one. A
finished cell stays as it is; a failed one runs again.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boxmend.bench.grids.jobs import (
    LOCK_FILE,
    RESULT_FILE,
    RUN_FOLDER,
    TRIES_FILE,
    Job,
    Tries,
    read_job,
    read_result,
    read_tries,
    write_json,
)
from boxmend.bench.grids.noisy_data import clean_data, mended_data, noisy_data, truth_of
from boxmend.bench.grids.outcomes import failed_result, finished_result, record_result
from boxmend.data.files.locks import HeldError, hold_lock
from boxmend.errors import BoxmendError
from boxmend.runs.folder import Run

if TYPE_CHECKING:
    from boxmend.runs.opening import OpenRun
    from boxmend.scoring.corrections import KnownTruth

FOLLOW_STDIN_FLAG = "--follow-stdin"  # ends the process when its standard input closes
SAVE_INTERVAL_SECONDS = 5.0  # between updates of tries.json

Train = Callable[..., Any]


class CellStatus(IntEnum):
    """The exit status of the process of a cell."""

    DONE = 0
    FAILED = 3
    """The cell ended with an error, which is recorded."""
    STOPPED = 75
    """The cell was asked to stop and saved its state; the next call continues."""
    HELD = 76
    """Another process runs the cell."""


def run_cell(folder: Path, train: Train | None = None) -> CellStatus:
    """Run a cell from its current state to the end, and record its result.

    `train` replaces `boxmend.training.train.train`. Errors are recorded, not raised; the traceback
    goes to stderr.
    """
    try:
        with hold_lock(folder / LOCK_FILE):
            before = read_result(folder)
            if before is not None and before.error is None:
                return CellStatus.DONE
            return _run(folder, train)
    except HeldError:
        return CellStatus.HELD


def _run(folder: Path, train: Train | None) -> CellStatus:
    job, started = read_job(folder), datetime.now(UTC).isoformat(timespec="seconds")
    (folder / RESULT_FILE).unlink(missing_ok=True)  # from a failed try
    clock = _Clock(folder)
    try:
        scored = _train_and_score(folder, job, train, clock)
    except Exception as error:
        tries = clock.save()
        if _is_interruption(error):
            return CellStatus.STOPPED
        traceback.print_exc()
        record_result(folder, failed_result(folder, job, tries, started, _describe_error(error)))
        return CellStatus.FAILED
    record_result(folder, finished_result(folder, job, clock.save(), started, scored))
    if not job.keep_weights:
        for path in (folder / RUN_FOLDER).glob("*.safetensors"):
            path.unlink(missing_ok=True)
    return CellStatus.DONE


def _train_and_score(
    folder: Path, job: Job, train: Train | None, clock: "_Clock"
) -> dict[str, Any]:
    """Train if that is not done, and score the detections and the mending."""
    from boxmend.runs.opening import open_run_with_history
    from boxmend.runs.settings.files import convert_settings
    from boxmend.scoring.corrections import assess, known_truth
    from boxmend.training.evaluation import evaluate

    root, run = folder.parent.parent, Run(folder / RUN_FOLDER)
    data = noisy_data(root, job) if job.needs is None else mended_data(root, job)
    val = clean_data(job.val, job.val_sha256, "data to score on")
    if not run.is_finished:
        settings = convert_settings(folder, job.settings)
        (train or _import_train())(data, run.path, settings, resume=True, log=clock.print_line)
    _say(f"{job.cell}: scoring")
    evaluation = evaluate(run.path, data=val, progress=lambda done, total: clock.save_if_due())
    opened = open_run_with_history(run.path, data)
    truth = known_truth(truth_of(root, job), opened.dataset)
    if job.keep_figures:
        _write_artifacts(folder, job, opened, truth)
    return {"evaluation": evaluation, "mending": assess(opened, truth).to_json()}


def _write_artifacts(folder: Path, job: Job, opened: "OpenRun", truth: "KnownTruth") -> None:
    """Write figures and a picture; an error is logged and does not fail the cell."""
    from boxmend.bench.grids.artifacts import ARTIFACTS_FOLDER, write_artifacts
    from boxmend.web.report.record import RunRecord

    record = RunRecord(job.cell, opened, opened.run.read_metrics(), truth)
    try:
        written = write_artifacts(folder / ARTIFACTS_FOLDER, record)
    except Exception as error:
        _say(f"{job.cell}: no artifacts ({type(error).__name__}: {error})")
    else:
        _say(f"{job.cell}: artifacts: {', '.join(path.name for path in written) or 'none'}")


def _import_train() -> Train:
    from boxmend.training.train import train  # imports torch, which is slow

    return train


class _Clock:
    """The duration of a try, saved in tries.json at the start and every few seconds."""

    def __init__(self, folder: Path):
        before = read_tries(folder)
        self._path, self._before, self._number = folder / TRIES_FILE, before, before.number + 1
        self._started = self._saved_at = time.monotonic()
        self.save()

    def print_line(self, line: dict[str, Any]) -> None:
        """Print a line of the log of the training, and save the duration if it is due."""
        if "note" in line:
            _say(str(line["note"]))
        elif "step" in line:
            figures = (f"{k} {v:.4g}" for k, v in line.items() if isinstance(v, float))
            _say(f"step {line['step']}: {', '.join(figures)}")
        self.save_if_due()

    def save_if_due(self) -> None:
        """Save the duration of the try, at most every SAVE_INTERVAL_SECONDS."""
        if time.monotonic() - self._saved_at >= SAVE_INTERVAL_SECONDS:
            self.save()

    def save(self) -> Tries:
        """Save the duration of the try; return what was saved."""
        self._saved_at = time.monotonic()
        tries = Tries(self._number, self._before.seconds + self._saved_at - self._started)
        write_json(self._path, tries)
        return tries


def _is_interruption(error: Exception) -> bool:
    """Return whether a training was asked to stop; does not import torch."""
    training = sys.modules.get("boxmend.training.train")
    return training is not None and isinstance(error, training.Interrupted)


def _describe_error(error: Exception) -> str:
    """Return why a cell failed, in a few lines."""
    text = str(error) if isinstance(error, BoxmendError) else f"{type(error).__name__}: {error}"
    if "out of memory" in text:
        text += "; trainings side by side share the memory: use fewer --jobs"
    return text


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _follow_stdin() -> None:
    """Send SIGTERM to this process when its standard input closes."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    """Run the cell in the given folder; return a CellStatus."""
    *options, folder = arguments
    for name in ("SIGUSR1", "SIGUSR2"):  # the scheduler sends these to the parent process, too
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if FOLLOW_STDIN_FLAG in options:
        _follow_stdin()
    return run_cell(Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
