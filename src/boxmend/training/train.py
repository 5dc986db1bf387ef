"""Training: the only room that joins loader, detector, methods and ledger.

`train` makes or resumes a run: settings, versions and metrics, a ledger of every annotation's
fate, checkpoints while it lasts, and the final weights. `trackers` tell others how it goes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import ensure_unchanged, fingerprint
from boxmend.data.formats import load
from boxmend.detector import Detector, save
from boxmend.errors import BoxmendError, OutputError, UsageError
from boxmend.runs import folder as runs
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED
from boxmend.scoring.voc import VocScores
from boxmend.training import checkpoint, facts
from boxmend.training.assembly import (
    completed,
    make_detector,
    make_loader,
    make_training,
    working_precision,
)
from boxmend.training.best import BestEpoch, remove_candidates
from boxmend.training.card import card_of
from boxmend.training.loop import Interrupted, Training, TrainingOutput, ensure_equal
from boxmend.training.loop import train as run_loop
from boxmend.training.processes import CONTINUE, Processes, join_processes
from boxmend.training.recording import Listener
from boxmend.training.validation import detect, ensure_scorable, score

MODEL_FILE = "model.safetensors"
MOST_CONFUSIONS = 20  # that a summary names

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
    which can be resumed. Started by torchrun, all processes call this alike and train as one;
    only process 0 writes and calls `log`.
    """
    settings = resolve_settings(settings or TrainSettings())
    with join_processes() as processes:
        _ensure_shareable(settings, processes)
        processes.on_rank_zero(lambda: _tidy_finished(runs.Run(Path(out))))
        processes.on_rank_zero(lambda: runs.ensure_open(out, resume=resume))  # before any work
        dataset, addresses = _dataset(data)
        truth = _truth(val, dataset.label_names)
        if settings.keep_best and truth is None:
            raise UsageError("keep_best chooses by a score: give the data to score on by --val")
        detector = make_detector(settings, len(dataset.label_names))  # may fail: no folder yet
        settings = completed(settings, detector.numbers)
        told = facts.gather(addresses, dataset, processes)
        if settings.keep_best and truth is not None:
            told["data"]["val_sha256"] = fingerprint(truth)  # scores of others don't compare
        _ensure_same_run(settings, told, processes)
        processes.on_rank_zero(lambda: _ensure_unchanged(dataset, truth))
        with ExitStack() as held, _memory_explained(settings):
            processes.on_rank_zero(lambda: held.enter_context(runs.sole_writer(out)))
            run = processes.on_rank_zero(
                lambda: runs.create(out, asdict(settings), told, resume=resume)
            )
            say = _teller(run, log) if processes.is_rank_zero else _silent
            validation = None
            if truth is not None:
                validation = Validation(truth, dataset.label_names, settings, processes, say)
            output = _output(run, settings, dataset, validation, say)
            with _withdrawn_if_refused(run, processes):
                training, state = make_training(settings, dataset, detector, processes, output)
            with _unwritten_explained():
                _run_to_the_end(training, state, validation, say)
        return run


@dataclass(frozen=True)
class Validation:
    """Scores detectors on the data given by --val."""

    truth: Dataset
    label_names: tuple[str, ...]
    """Classes of the detectors."""
    settings: TrainSettings
    processes: Processes
    say: Listener

    def scores(self, detector: Detector, check: Callable[[], None] = lambda: None) -> VocScores:
        """Return VOC's AP50 of a detector; `check` is called as it goes on."""
        settings, network = self.settings, detector.network
        loader = make_loader(settings, self.truth, self.processes, _noting(self.say))
        was_training = network.training
        found = detect(
            detector,
            loader,
            settings.batch_size,
            precision=working_precision(settings.precision, self.processes.device),
            progress=lambda done, total: check(),
        )
        network.train(was_training)
        return score(found, self.truth, self.label_names)


def evaluate(
    validation: Validation, detector: Detector, check: Callable[[], None]
) -> dict[str, float]:
    """Return the means of VOC's AP50 of a detector, by both rules."""
    return _means(validation.scores(detector, check))


def _output(
    run: runs.Run,
    settings: TrainSettings,
    dataset: Dataset,
    validation: Validation | None,
    say: Listener,
) -> TrainingOutput:
    best = None
    if settings.keep_best and validation is not None:
        score_by = partial(evaluate, validation)
        best = BestEpoch(run.path, score_by, card_of(settings, dataset).metadata())
    return TrainingOutput(run.path, _noting(say), best)


def _noting(say: Listener) -> Callable[[str], None]:
    return lambda text: say({"note": text})


def _run_to_the_end(
    training: Training,
    state: dict[str, Any] | None,
    validation: Validation | None,
    say: Listener,
) -> None:
    """Train from the state of a checkpoint, or from the start, and finish the run."""
    run, processes = runs.Run(training.output.run), training.processes
    if state is not None:
        training.load_state(state)
    if processes.is_rank_zero:
        saved = state or {}
        run.rewind_metrics(saved.get("step"), saved.get("metrics_bytes"))
    if not processes.is_single_process:
        ensure_equal(training)
    run_loop(training, say)
    summary = processes.on_rank_zero(lambda: _finish(run, training, validation))
    say({"summary": summary})


def _means(scores: VocScores) -> dict[str, float]:
    return {
        "voc_ap50_11point": float(scores.mean_11_points),
        "voc_ap50_area": float(scores.mean_area),
    }


def _finish(run: runs.Run, training: Training, validation: Validation | None) -> dict[str, Any]:
    """Write the final weights and mark the run as finished; returns its summary."""
    assert training.ledger is not None
    summary: dict[str, Any] = {"steps": training.step, "ledger_rows": training.ledger.num_rows}
    best = training.output.best
    if best is not None:
        best.put(run.path / MODEL_FILE)
        summary |= {"best_step": best.step, "val": best.scores}
    else:
        save(training.teacher, run.path / MODEL_FILE, _told(training))
        if validation is not None:
            scores = validation.scores(training.teacher)
            areas = zip(training.dataset.label_names, scores.ap_area.tolist(), strict=True)
            summary |= {"val": _means(scores), "val_by_label": dict(areas)}
    summary |= _more_models(run, training, validation)
    noise = _noise(training)
    if noise:
        summary["noise"] = noise
    run.finish(summary)
    _tidy_finished(run)
    return summary


def _tidy_finished(run: runs.Run) -> None:
    """Remove what only an unfinished run needs; a kill right after the end leaves it behind."""
    if run.is_finished:
        checkpoint.remove(run.path)
        remove_candidates(run.path)
        runs.remove_lock(run)


def _more_models(
    run: runs.Run, training: Training, validation: Validation | None
) -> dict[str, Any]:
    """Write and score the models that a method has beside the one that predicts."""
    found: dict[str, Any] = {}
    for name, detector in training.method.models(training.teacher).items():
        save(detector, run.path / f"model-{name}.safetensors", _told(training))
        if validation is not None:
            found[f"val_{name}"] = _means(validation.scores(detector))
    return found


def _noise(training: Training) -> dict[str, Any]:
    """What the method found out about the annotations, with classes by name."""
    found = dict(training.method.report())
    names = training.dataset.label_names
    if "confusions" in found:
        found["confusions"] = [
            {
                "called": names[called],
                "truly": names[truly],
                "share": round(share, 4),
                "annotations": round(number),
            }
            for called, truly, share, number in found["confusions"][:MOST_CONFUSIONS]
        ]
    return found


def _told(training: Training) -> dict[str, str]:
    """What the model file says besides its weights."""
    return card_of(training.settings, training.dataset).metadata()


def _ensure_shareable(settings: TrainSettings, processes: Processes) -> None:
    """Refuse what several processes cannot do as one would."""
    if settings.batch_size % processes.world_size:
        raise UsageError(
            f"--batch-size {settings.batch_size} is that of all {processes.world_size} processes "
            "together and must be a multiple of their number"
        )
    is_published = METHOD_SECTIONS.get(settings.method) == PUBLISHED
    one_by_one = is_published and settings.published.granularity == "object"
    if one_by_one and not processes.is_single_process:
        raise UsageError(
            "--published.granularity object judges one annotation after the other, which several "
            "processes cannot; choose batch, or train in one process"
        )


def _ensure_same_run(settings: TrainSettings, told: dict[str, Any], processes: Processes) -> None:
    """Refuse processes that were told different things."""
    numbers = asdict(replace(settings, weights=None))  # a file may lie elsewhere on each machine
    different = {name: repr(value) for name, value in numbers.items()}
    alike = {"data": repr(told["data"]), "device": processes.device.type, **different}
    processes.ensure_equal(alike, "start all of them with the same command and the same data")


def _dataset(data: Dataset | Sequence[str]) -> tuple[Dataset, list[str]]:
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    return load(*data), list(data)


def _truth(val: Dataset | Sequence[str], label_names: Sequence[str]) -> Dataset | None:
    """The data to score on, if any; what could never be scored is refused before hours pass."""
    if not isinstance(val, Dataset) and not val:
        return None
    truth = _dataset(val)[0]
    ensure_scorable(truth, label_names, "the data to score on (--val)", "the training data")
    return truth


def _ensure_unchanged(dataset: Dataset, truth: Dataset | None) -> None:
    """Refuse to begin a run on data that have changed since they were read."""
    ensure_unchanged(dataset)
    if truth is not None:
        ensure_unchanged(truth)


@contextmanager
def _withdrawn_if_refused(run: runs.Run, processes: Processes) -> Iterator[None]:
    """Leave no folder of a run that cannot begin, as where no image can be read."""
    try:
        yield
    except BoxmendError:
        if processes.is_rank_zero:
            runs.remove_unstarted(run)
        raise


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


@contextmanager
def _unwritten_explained() -> Iterator[None]:
    """Say how to continue a run one of whose files could not be written."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{error}. If the disk is full, make room. {CONTINUE}") from error


def _silent(line: dict[str, Any]) -> None:
    """Say nothing: process 0 does."""


def _teller(run: runs.Run, log: Listener | None) -> Listener:
    def tell(line: dict[str, Any]) -> None:
        if "step" in line:
            run.append_metrics({k: v for k, v in line.items() if k not in _CLOCKS})
        if log is not None:
            log(line)

    return tell


_CLOCKS = {"seconds_left"}  # of interest while it runs, and never again
