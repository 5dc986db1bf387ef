"""Training: the only room that joins loader, detector, methods and ledger.

`train` makes or resumes a run: settings, versions and metrics, a ledger of every annotation's
fate, checkpoints while it lasts, and the final weights. `trackers` tell others how it goes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from boxmend import runs
from boxmend.dataset import Dataset
from boxmend.detector import save
from boxmend.errors import BoxmendError, DataError, UsageError
from boxmend.formats import load
from boxmend.settings import TrainSettings, resolved
from boxmend.training import checkpoint, facts
from boxmend.training.assembly import completed, make_detector, make_loader, make_training
from boxmend.training.best import Best
from boxmend.training.evaluation import detect, score
from boxmend.training.loop import Interrupted, Training
from boxmend.training.loop import train as run_loop
from boxmend.training.recording import Listener

MODEL_FILE = "model.safetensors"

__all__ = ["MODEL_FILE", "Interrupted", "Listener", "train"]


def train(
    data: Dataset | Sequence[str],
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    val: Dataset | Sequence[str] = (),
    resume: bool = False,
    log: Listener | None = None,
) -> runs.Run:
    """Train a detector on a dataset, or on addresses, and leave the run in the folder `out`.

    With `val` the final weights are scored on it; only with `keep_best` is anything chosen by that
    score. `log` hears a dict at a time: {"plan": ...} as it begins, what metrics.jsonl gets (it has
    a "step"), {"note": text}, and {"summary": ...} at the end. What it raises ends the training,
    which can be resumed.
    """
    settings = resolved(settings or TrainSettings())
    dataset, addresses = _dataset(data)
    truth = _truth(val, dataset.label_names)
    if settings.keep_best and truth is None:
        raise UsageError("keep_best chooses by a score: give the data to score on by --val")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    detector = make_detector(settings, len(dataset.label_names))  # may fail: no folder is made yet
    settings = completed(settings, detector.numbers)
    told = facts.gather(addresses, dataset, device)
    if settings.keep_best and truth is not None:
        told["data"]["val_sha256"] = facts.fingerprint(truth)  # scores of others do not compare
    with runs.sole_writer(out), _memory_explained(settings):
        run = runs.create(out, asdict(settings), told, resume=resume)
        say = _teller(run, log)
        training, state = make_training(
            settings, dataset, detector, run.path, device, lambda text: say({"note": text})
        )
        if settings.keep_best and truth is not None:
            training.best = Best(run.path, partial(evaluate, training, truth, say))
        if state is not None:
            training.take_up(state)
        run.rewind_metrics(training.step if state is not None else None)
        run_loop(training, say)
        summary = _finish(run, training, truth, say)
    say({"summary": summary})
    return run


def evaluate(
    training: Training, truth: Dataset, say: Listener, check: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """VOC's AP50 of the weights that predict, by both rules; `check` is called as it goes on."""
    loader = make_loader(
        training.settings, truth, training.device, lambda text: say({"note": text})
    )
    network = training.teacher.network
    was_training = network.training
    found = detect(
        training.teacher,
        loader,
        training.settings.batch_size,
        precision=training.precision,
        progress=lambda done, total: check(),
    )
    network.train(was_training)
    scores = score(found, truth, training.dataset.label_names)
    return {
        "voc_ap50_11point": float(scores.mean_11_points),
        "voc_ap50_area": float(scores.mean_area),
    }


def _finish(
    run: runs.Run, training: Training, truth: Dataset | None, say: Listener
) -> dict[str, Any]:
    """Write the final weights and mark the run as finished; returns its summary."""
    summary: dict[str, Any] = {"steps": training.step, "ledger_rows": training.ledger.num_rows}
    best = training.best
    if best is not None:
        best.put(run.path / MODEL_FILE)
        summary |= {"best_step": best.step, "val": best.scores}
    else:
        save(training.teacher, run.path / MODEL_FILE)
        if truth is not None:
            summary["val"] = evaluate(training, truth, say)
    run.finish(summary)
    checkpoint.remove(run.path)
    if best is not None:
        best.tidy(is_over=True)
    return summary


def _dataset(data: Dataset | Sequence[str]) -> tuple[Dataset, list[str]]:
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    return load(*data), list(data)


def _truth(val: Dataset | Sequence[str], label_names: Sequence[str]) -> Dataset | None:
    """The data to score on, if any; what could never be scored is refused before hours pass."""
    if not isinstance(val, Dataset) and not val:
        return None
    truth = _dataset(val)[0]
    if not len(truth.images):
        raise DataError("the data to score on (--val) have no images")
    if not set(truth.label_names) & set(label_names):
        asked, known = ", ".join(truth.label_names[:5]), ", ".join(label_names[:5])
        raise DataError(
            f"the data to score on (--val) share no class with the training data: {asked} "
            f"against {known}; classes are matched by name"
        )
    return truth


@contextmanager
def _memory_explained(settings: TrainSettings) -> Iterator[None]:
    """Say what to lower where memory does not suffice, on the device or beside it."""
    try:
        yield
    except RuntimeError as error:
        is_full = isinstance(error, torch.OutOfMemoryError)
        if not is_full and "you tried to allocate" not in str(error):  # as PyTorch says on a CPU
            raise
        raise BoxmendError(
            f"out of memory with --batch-size {settings.batch_size} and --image-size "
            f"{settings.image_size}; lower one of them, or --proposals {settings.proposals} or "
            f"--rois {settings.rois}, in a new run"
        ) from error


def _teller(run: runs.Run, log: Listener | None) -> Listener:
    def tell(line: dict[str, Any]) -> None:
        if "step" in line:
            run.append_metrics({k: v for k, v in line.items() if k not in _CLOCKS})
        if log is not None:
            log(line)

    return tell


_CLOCKS = {"seconds_left"}  # of interest while it runs, and never again
