"""Train a detector and write the run: `train` joins loader, detector, method and ledger.

A run has settings, versions, metrics, a ledger of every annotation, checkpoints while it lasts, and
the final weights. `trackers` pass its log on to other tools.
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
from boxmend.repair.trained_runs import TrainedRun
from boxmend.runs import folder as runs
from boxmend.runs.planting import PLANTED_KEY, plant_errors, remove_planted_share
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED
from boxmend.scoring.voc import VocScores
from boxmend.training import checkpoint, facts
from boxmend.training.assembly import (
    fill_detector_numbers,
    make_detector,
    make_loader,
    make_training,
    resolve_precision,
)
from boxmend.training.best import BestEpoch, remove_candidates
from boxmend.training.card import make_card
from boxmend.training.loop import Interrupted, Training, TrainingOutput, ensure_equal
from boxmend.training.loop import train as run_loop
from boxmend.training.processes import CONTINUE, Processes, join_processes
from boxmend.training.progress import show_in_notebook
from boxmend.training.recording import Listener
from boxmend.training.validation import detect, ensure_scorable, score

MODEL_FILE = "model.safetensors"
MAX_CONFUSIONS = 20  # in a summary
PLANTED_WHERE = "of the annotations, in memory only"
NOISE_FIGURES = {"label_noise", "label_noise_low", "label_noise_high"}

__all__ = ["MODEL_FILE", "Interrupted", "Listener", "train"]


def train(
    data: Dataset | Sequence[str],
    out: str | Path,
    settings: TrainSettings | None = None,
    *,
    val: Dataset | Sequence[str] = (),
    resume: bool = False,
    log: Listener | None = None,
) -> TrainedRun:
    """Train a detector on a dataset, or on addresses of datasets; write the run into `out`.

    The final weights are scored on `val`; with `keep_best` the epoch with the best score is kept.
    `log` is called with dicts: first {"plan": ...}, then every line of metrics.jsonl (it has a
    "step") and every {"note": text}, and {"summary": ...} at the end. Without `log`, a notebook
    shows the progress. An exception of `log` ends the training, which can be resumed. Under
    torchrun all processes make the same call and train together; only process 0 writes and calls
    `log`.
    """
    settings = resolve_settings(settings or TrainSettings())
    with join_processes() as processes:
        _ensure_shareable(settings, processes)
        processes.on_rank_zero(lambda: _tidy_finished(runs.Run(Path(out))))
        processes.on_rank_zero(lambda: runs.ensure_open(out, resume=resume))  # before any work
        dataset, addresses = _load_dataset(data)
        truth = _load_truth(val, dataset.label_names)
        if settings.keep_best and truth is None:
            raise UsageError("keep_best needs data to score on: name them by --val")
        detector = make_detector(settings, len(dataset.label_names))  # may fail: no folder yet
        settings = fill_detector_numbers(settings, detector.numbers)
        run_facts = facts.collect_facts(addresses, dataset, processes)
        seen = _plant_errors(dataset, settings, run_facts["data"])
        if settings.keep_best and truth is not None:
            run_facts["data"]["val_sha256"] = fingerprint(truth)  # scores on other data differ
        _ensure_same_run(settings, run_facts, processes)
        processes.on_rank_zero(lambda: _ensure_unchanged(dataset, truth))
        with ExitStack() as context, _explain_full_memory(settings):
            processes.on_rank_zero(lambda: context.enter_context(runs.sole_writer(out)))
            run = processes.on_rank_zero(
                lambda: runs.create(out, asdict(settings), run_facts, resume=resume)
            )
            show = log or show_in_notebook(settings.epochs)
            listener = _make_listener(run, show) if processes.is_rank_zero else _ignore
            if settings.probe:
                listener({"note": f"planted errors into {settings.probe:.1%} {PLANTED_WHERE}"})
            validation = None
            if truth is not None:
                validation = Validation(truth, dataset.label_names, settings, processes, listener)
            output = _make_output(run, settings, dataset, validation, listener)
            with _withdraw_on_error(run, processes):
                training, state = make_training(settings, seen, detector, processes, output)
            with _explain_write_error():
                _run_to_end(training, state, validation, listener)
        return TrainedRun(run.path, dataset)


def _plant_errors(dataset: Dataset, settings: TrainSettings, data_facts: dict[str, Any]) -> Dataset:
    """Return the dataset that the training sees: with the errors of the setting `probe`.

    The facts about the data get its fingerprint, so that a resumed run has the same errors.
    """
    if not settings.probe:
        return dataset
    seen = plant_errors(dataset, settings.probe, settings.seed)
    data_facts[PLANTED_KEY] = fingerprint(seen)
    return seen


@dataclass(frozen=True)
class Validation:
    """The data of --val, on which detectors are scored."""

    truth: Dataset
    label_names: tuple[str, ...]
    """The classes of the detectors."""
    settings: TrainSettings
    processes: Processes
    listener: Listener

    def scores(self, detector: Detector, check: Callable[[], None] = lambda: None) -> VocScores:
        """Return VOC's AP50 of a detector; `check` is called after each batch."""
        settings, network = self.settings, detector.network
        loader = make_loader(settings, self.truth, self.processes, _note_by(self.listener))
        was_training = network.training
        detections = detect(
            detector,
            loader,
            settings.batch_size,
            precision=resolve_precision(settings.precision, self.processes.device),
            progress=lambda done, total: check(),
        )
        network.train(was_training)
        return score(detections, self.truth, self.label_names)


def evaluate(
    validation: Validation, detector: Detector, check: Callable[[], None]
) -> dict[str, float]:
    """Return the means of VOC's AP50 of a detector, by both rules."""
    return _means(validation.scores(detector, check))


def _make_output(
    run: runs.Run,
    settings: TrainSettings,
    dataset: Dataset,
    validation: Validation | None,
    listener: Listener,
) -> TrainingOutput:
    best = None
    if settings.keep_best and validation is not None:
        score_by = partial(evaluate, validation)
        best = BestEpoch(run.path, score_by, make_card(settings, dataset).metadata())
    return TrainingOutput(run.path, _note_by(listener), best)


def _note_by(listener: Listener) -> Callable[[str], None]:
    return lambda text: listener({"note": text})


def _run_to_end(
    training: Training,
    state: dict[str, Any] | None,
    validation: Validation | None,
    listener: Listener,
) -> None:
    """Train from a checkpoint, or from the start, and finish the run."""
    run, processes = runs.Run(training.output.run), training.processes
    if state is not None:
        training.load_state(state)
    if processes.is_rank_zero:
        saved = state or {}
        run.rewind_metrics(saved.get("step"), saved.get("metrics_bytes"))
    if not processes.is_single_process:
        ensure_equal(training)
    run_loop(training, listener)
    summary = processes.on_rank_zero(lambda: _finish(run, training, validation))
    listener({"summary": summary})


def _means(scores: VocScores) -> dict[str, float]:
    return {
        "voc_ap50_11point": float(scores.mean_11_points),
        "voc_ap50_area": float(scores.mean_area),
    }


def _finish(run: runs.Run, training: Training, validation: Validation | None) -> dict[str, Any]:
    """Write the final weights and mark the run as finished; return its summary."""
    assert training.ledger is not None
    summary: dict[str, Any] = {"steps": training.step, "ledger_rows": training.ledger.num_rows}
    best = training.output.best
    if best is not None:
        best.write_weights(run.path / MODEL_FILE)
        summary |= {"best_step": best.step, "val": best.scores}
    else:
        save(training.teacher, run.path / MODEL_FILE, _card_metadata(training))
        if validation is not None:
            scores = validation.scores(training.teacher)
            areas = zip(training.dataset.label_names, scores.ap_area.tolist(), strict=True)
            summary |= {"val": _means(scores), "val_by_label": dict(areas)}
    summary |= _more_models(run, training, validation)
    noise = _report_noise(training)
    if noise:
        summary["noise"] = noise
    run.finish(summary)
    _tidy_finished(run)
    return summary


def _tidy_finished(run: runs.Run) -> None:
    """Remove the files that only an unfinished run needs; a kill at the end leaves them."""
    if run.is_finished:
        checkpoint.remove(run.path)
        remove_candidates(run.path)
        runs.remove_lock(run)


def _more_models(
    run: runs.Run, training: Training, validation: Validation | None
) -> dict[str, Any]:
    """Write and score the further models of a method; return their scores."""
    scores: dict[str, Any] = {}
    for name, detector in training.method.models(training.teacher).items():
        save(detector, run.path / f"model-{name}.safetensors", _card_metadata(training))
        if validation is not None:
            scores[f"val_{name}"] = _means(validation.scores(detector))
    return scores


def _report_noise(training: Training) -> dict[str, Any]:
    """Return the method's report about the annotations, with class names.

    The label noise is that of the user's annotations, without the share of planted labels.
    """
    report = dict(training.method.report())
    names, settings = training.dataset.label_names, training.settings
    if settings.probe and settings.label_noise == "auto":
        for name in NOISE_FIGURES & report.keys():
            report[name] = remove_planted_share(report[name], settings.probe / 2)
    if "confusions" in report:
        report["confusions"] = [
            {
                "called": names[called],
                "truly": names[truly],
                "share": round(share, 4),
                "annotations": round(number),
            }
            for called, truly, share, number in report["confusions"][:MAX_CONFUSIONS]
        ]
    return report


def _card_metadata(training: Training) -> dict[str, str]:
    """Return the metadata of the model file."""
    return make_card(training.settings, training.dataset).metadata()


def _ensure_shareable(settings: TrainSettings, processes: Processes) -> None:
    """Raise a UsageError for settings with which several processes cannot train."""
    if settings.batch_size % processes.world_size:
        raise UsageError(
            f"--batch-size {settings.batch_size} counts the images of all {processes.world_size} "
            "processes and must be a multiple of their number"
        )
    is_published = METHOD_SECTIONS.get(settings.method) == PUBLISHED
    is_sequential = is_published and settings.published.granularity == "object"
    if is_sequential and not processes.is_single_process:
        raise UsageError(
            "--published.granularity object judges annotations one after another, which several "
            "processes cannot do; choose batch, or train in one process"
        )


def _ensure_same_run(
    settings: TrainSettings, run_facts: dict[str, Any], processes: Processes
) -> None:
    """Raise a UsageError where processes have different settings, data or types of device."""
    fields = asdict(replace(settings, weights=None))  # the path may differ between machines
    texts = {name: repr(value) for name, value in fields.items()}
    compared = {"data": repr(run_facts["data"]), "device": processes.device.type, **texts}
    processes.ensure_equal(compared, "start all of them with the same command and the same data")


def _load_dataset(data: Dataset | Sequence[str]) -> tuple[Dataset, list[str]]:
    if isinstance(data, Dataset):
        return data, [str(source.path) for source in data.sources]
    return load(*data), list(data)


def _load_truth(val: Dataset | Sequence[str], label_names: Sequence[str]) -> Dataset | None:
    """Load the data to score on, if any; raise a DataError if no score is possible on them."""
    if not isinstance(val, Dataset) and not val:
        return None
    truth = _load_dataset(val)[0]
    ensure_scorable(truth, label_names, "the data to score on (--val)", "the training data")
    return truth


def _ensure_unchanged(dataset: Dataset, truth: Dataset | None) -> None:
    """Raise an error if the data have changed since they were read."""
    ensure_unchanged(dataset)
    if truth is not None:
        ensure_unchanged(truth)


@contextmanager
def _withdraw_on_error(run: runs.Run, processes: Processes) -> Iterator[None]:
    """Remove the folder of a run that cannot start, for example without readable images."""
    try:
        yield
    except BoxmendError:
        if processes.is_rank_zero:
            runs.remove_unstarted(run)
        raise


@contextmanager
def _explain_full_memory(settings: TrainSettings) -> Iterator[None]:
    """Name the settings to lower where memory runs out, on the device or the host."""
    try:
        yield
    except RuntimeError as error:
        is_full = isinstance(error, torch.OutOfMemoryError)
        if not is_full and "you tried to allocate" not in str(error):  # PyTorch's message on a CPU
            raise
        raise BoxmendError(
            f"out of memory with --batch-size {settings.batch_size} and --image-size "
            f"{settings.image_size}; lower one of them, or --proposals {settings.proposals} or "
            f"--rois {settings.rois}, in a new run"
        ) from error


@contextmanager
def _explain_write_error() -> Iterator[None]:
    """Say how to continue after a file of the run could not be written."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{error}. If the disk is full, make room. {CONTINUE}") from error


def _ignore(line: dict[str, Any]) -> None:
    """Do nothing: only process 0 logs."""


def _make_listener(run: runs.Run, log: Listener | None) -> Listener:
    def listen(line: dict[str, Any]) -> None:
        if "step" in line:
            run.append_metrics({k: v for k, v in line.items() if k not in _TRANSIENT})
        if log is not None:
            log(line)

    return listen


_TRANSIENT = {"seconds_left"}  # figures that metrics.jsonl does not get
