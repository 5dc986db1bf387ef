"""The training loop: one step of the optimiser on the losses of a method, again and again.

The loop does not depend on the method. Random numbers follow from the seed and the step, learning
rates from the step, so a resumed run computes the same steps as an uninterrupted one.
"""

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from boxmend.data.dataset import Dataset
from boxmend.detector import Detector, Features
from boxmend.errors import BoxmendError
from boxmend.methods.protocol import (
    BatchAnnotations,
    BoxScorer,
    Method,
    Outcome,
    StepContext,
    TrainingProgress,
)
from boxmend.runs.folder import Run
from boxmend.runs.ledger import Ledger
from boxmend.runs.settings import TrainSettings
from boxmend.training import checkpoint
from boxmend.training.best import BestEpoch
from boxmend.training.facts import hash_state
from boxmend.training.loader import Batch, Loader
from boxmend.training.optimisation import (
    average_decay_at,
    build_optimizer,
    clip_gradients,
    copy_for_average,
    learning_rate_at,
    update_average,
)
from boxmend.training.prescreen import describe_annotations
from boxmend.training.processes import Processes
from boxmend.training.recording import Listener, Recorder
from boxmend.training.replay import RandomNumbers, Replay
from boxmend.training.stopping import stop_requests
from boxmend.training.validation import detects_nothing

BLINDNESS_CHECK_SHARE, BLINDNESS_CHECK_STEPS = 0.25, 200
"""After this share of all steps, and at least so many, a detector should detect something."""


class Interrupted(BoxmendError):
    """The run stopped on request; it saved its state and can be resumed."""


class StepResult(NamedTuple):
    """The outcome and the figures of a step; its gradients are in the parameters."""

    outcome: Outcome
    sums: dict[str, Tensor]  # scalars that add up over processes: the loss and its parts
    means: dict[str, Tensor]  # scalars that are averaged over processes


@dataclass(frozen=True)
class TrainingOutput:
    """The folder of a run, and where its messages go."""

    run: Path
    note: Callable[[str], None] = lambda text: None
    """Called with each message for the user."""
    best: BestEpoch | None = None
    """Scores every epoch and keeps the best one; None without `keep_best`."""


@dataclass
class Training:
    """The state of a run in progress."""

    settings: TrainSettings
    detector: Detector
    method: Method
    dataset: Dataset
    loader: Loader
    ledger: Ledger | None
    """None in all processes but process 0, which writes."""
    processes: Processes
    precision: torch.dtype
    output: TrainingOutput
    step: int = 0
    epochs_done: int = 0
    """Finished epochs, including their estimates and scores."""

    def __post_init__(self) -> None:
        network = self.detector.network
        self.device = self.processes.device
        self.num_steps = self.settings.epochs * self.loader.num_batches
        self.optimizer = build_optimizer(
            network.parameters(), self.settings.optimisation, self.settings.learning_rate
        )
        groups = self.optimizer.param_groups
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        self.teacher = self.detector
        if self.settings.optimisation.average_decay:
            self.teacher = replace(self.detector, network=copy_for_average(network))
        self.recorder = Recorder(self.dataset, self.ledger, self.processes)
        self.random_numbers = RandomNumbers(self.processes)
        self.replay: Replay | None = None
        if (
            self.settings.cuda_graph
            and self.device.type == "cuda"
            and self.processes.is_single_process
        ):
            self.replay = Replay(self._compute, self.random_numbers, self.output.note)

    def state(self) -> dict[str, Any]:
        """Return all that a checkpoint needs; call it in process 0, with nothing pending."""
        assert self.ledger is not None
        return {
            "format": checkpoint.FORMAT_VERSION,
            "step": self.step,
            "epochs_done": self.epochs_done,
            "best": None if self.output.best is None else self.output.best.state(),
            "network": self.detector.network.state_dict(),
            "average": self.teacher.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "ledger": _with_tensors(self.ledger.state()),
            "figures": self.recorder.window,
            "metrics_bytes": Run(self.output.run).sync_metrics(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from the result of `state`; the caller has resumed the ledger already."""
        self.step, self.epochs_done = state["step"], state["epochs_done"]
        if self.output.best is not None and state["best"] is not None:
            self.output.best.load_state(state["best"])
        self.detector.network.load_state_dict(state["network"])
        self.teacher.network.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state["method"])
        self.recorder.window = dict(state.get("figures", {}))  # older versions saved none

    def progress(self, step: int | None = None) -> TrainingProgress:
        """Return the progress at a step; without one, at the next step to be taken."""
        step = self.step if step is None else step
        epoch = step // self.loader.num_batches
        warm_up, num_epochs = self.settings.warm_up, self.settings.epochs
        return TrainingProgress.at(epoch, step, self.num_steps, warm_up, num_epochs)

    def train_on(self, batch: Batch) -> None:
        """Take one step: refine the annotations of a batch and learn from them."""
        progress = self.progress()
        settings = self.settings.optimisation
        rate = learning_rate_at(*self.method.clock(progress), self.settings.learning_rate, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed = (self.settings.seed << 32) + progress.step
        if self.replay is None:
            self.random_numbers.start(seed)
            result = self._compute(batch)
        else:
            result = self.replay(batch, (progress.epoch, self.method.phase(progress)), seed)
        self.optimizer.step()
        if self.teacher is not self.detector:
            decay = average_decay_at(progress.step, settings.average_decay or 0.0)
            update_average(self.teacher.network, self.detector.network, decay)
        self.recorder.add(batch, result.outcome, progress, result.sums, result.means)
        self.step += 1

    def _compute(self, batch: Batch) -> StepResult:
        """Refine a batch and compute the gradients of its losses; never wait for the device."""
        self.detector.network.train()
        enabled = self.precision != torch.float32
        with torch.autocast(self.device.type, self.precision, enabled=enabled):
            outcome, losses = self.method.losses(self._step_context(batch))
        total = sum(losses.values(), torch.zeros((), device=self.device))
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        gradients = (parameter.grad for parameter in self.parameters)
        self.processes.sum_gradients(grad for grad in gradients if grad is not None)
        norm = clip_gradients(self.parameters, self.settings.optimisation.max_norm or 0.0)
        parts = {name: value.detach() for name, value in losses.items()}
        sums = {"loss": total.detach(), **parts}
        return StepResult(outcome, sums, {"norm": norm, **outcome.metrics})

    def _step_context(self, batch: Batch) -> StepContext:
        return StepContext(
            detector=self.detector,
            images=batch.images,
            annotations=BatchAnnotations(
                batch.boxes, batch.labels, batch.is_box, batch.is_ignored, batch.rows, batch.sizes
            ),
            progress=self.progress(),
            draw=self.random_numbers.draw,
            scorer_on=partial(self._scorer, batch),
        )

    def _scorer(self, batch: Batch, features: Features) -> BoxScorer:
        """Return the second stage that judges annotations, with the features it uses."""
        which = self.settings.judging_weights
        judging = self.detector if which == "network" else self.teacher
        if which == "average" and judging is not self.detector:
            features = judging.features(batch.images, batch.sizes)
        return lambda boxes: judging.score(features, boxes, batch.sizes)


def train(training: Training, log: Listener) -> None:
    """Train from the current step to the end."""
    clock = _Clock(time.monotonic(), training.step)
    with stop_requests() as stop, _recording_stream(training):
        log({"plan": {"first_step": training.step, "steps": training.num_steps}})
        if training.step == 0 and training.method.wants_prescreen:
            _prescreen(training, log, stop)
        while training.epochs_done < training.settings.epochs:
            last = _finish_steps(training, log, clock, stop)
            _end_epoch(training, log, clock, stop)
            _warn_of_blindness(training, last, log)
            _save(training)
            _interrupt_if(training.processes.any(stop.is_set()), training)
    if training.ledger is not None:
        training.ledger.flush()


def _recording_stream(training: Training) -> AbstractContextManager[Any]:
    """Return a stream for the steps: CUDA graphs cannot record the default stream."""
    if training.replay is None:
        return nullcontext()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


class _Clock(NamedTuple):
    """The time and the step at which this process started."""

    started: float
    first_step: int


def _prescreen(training: Training, log: Listener, stop: threading.Event) -> None:
    """Let the method judge all annotations before the first step."""

    def note(text: str) -> None:
        log({"note": text})

    def judge() -> dict[str, Any]:
        note("prescreening the annotations before training")
        features = describe_annotations(
            *(training.detector, training.loader, training.dataset, training.settings.seed, note),
            partial(_interrupt_if_asked, stop, training),
        )
        return dict(training.method.prescreen(features))

    figures = training.processes.on_rank_zero(judge)
    _share_estimates(training)
    if not figures:
        note("the prescreen cannot judge these labels; they are judged during training only")
    elif "label_noise_low" in figures:  # the rate is unknown
        rate, low, high = (figures[f"label_noise{end}"] for end in ("", "_low", "_high"))
        note(f"prescreen: {rate:.1%} of the labels seem wrong ({low:.1%} to {high:.1%})")


def _finish_steps(
    training: Training, log: Listener, clock: _Clock, stop: threading.Event
) -> Batch | None:
    """Train on the rest of the epoch; return its last batch."""
    settings, saved = training.settings, training.step
    done = training.step - training.epochs_done * training.loader.num_batches
    if not done:
        training.method.begin_epoch(training.epochs_done, training.detector)
    batch = None
    for batch in training.loader.epoch(training.epochs_done, done):
        training.train_on(batch)
        if training.step % settings.log_every == 0:
            log(_figures(training, clock))
        must_stop = training.processes.any(stop.is_set())
        if training.step - saved >= settings.checkpoint_every or must_stop:
            saved = _save(training)
        _interrupt_if(must_stop, training)
    return batch


def _warn_of_blindness(training: Training, batch: Batch | None, log: Listener) -> None:
    """Log a note if a detector that should have learnt something detects nothing."""
    due = max(BLINDNESS_CHECK_SHARE * training.num_steps, BLINDNESS_CHECK_STEPS)
    if batch is None or training.step < due:
        return
    teacher, precision = training.teacher, training.precision
    if training.processes.on_rank_zero(lambda: detects_nothing(teacher, batch, precision)):
        note = (
            f"after epoch {training.epochs_done} the detector detects nothing in the images of "
            "the last step; if this lasts, the training has collapsed: start a new run with a "
            f"lower --optimisation.lr than {training.settings.learning_rate:g}"
        )
        log({"note": note})


def _end_epoch(training: Training, log: Listener, clock: _Clock, stop: threading.Event) -> None:
    """Update the estimates, score the detector and log both at the end of an epoch."""
    if training.output.best is not None:
        _save(training)  # scoring takes long, and a request to stop interrupts it
    epoch = training.epochs_done
    position = {"step": training.step, "epoch": epoch}
    log(_figures(training, clock) | {"epoch_ends": epoch})
    log(_update_estimates(training, epoch) | position)
    best = training.output.best
    if best is not None:
        check = partial(_interrupt_if_asked, stop, training)
        scores = training.processes.on_rank_zero(
            lambda: best.consider(training.teacher, training.step, check)
        )
        log(scores | position)
    training.epochs_done += 1


def _update_estimates(training: Training, epoch: int) -> dict[str, Any]:
    """Update the estimates of the method in process 0 and copy them to the other processes."""
    method, processes = training.method, training.processes
    is_warm_up = training.progress(training.step - 1).is_warm_up
    figures = processes.on_rank_zero(lambda: dict(method.end_epoch(epoch, is_warm_up=is_warm_up)))
    _share_estimates(training)
    return figures


def _share_estimates(training: Training) -> None:
    """Copy the state of the method from process 0 to all others."""
    method, processes = training.method, training.processes
    if not processes.is_single_process:
        method.load_state_dict(processes.on_rank_zero(lambda: _to_cpu(method.state_dict())))
        ensure_equal(training)


def ensure_equal(training: Training) -> None:
    """Raise a UsageError where processes have different images, weights or method states."""
    images = hashlib.sha256(training.loader.image_rows.tobytes()).hexdigest()
    facts = {
        "readable images": images,
        "weights": hash_state(training.detector.network.state_dict()),
        "the state of the method": hash_state(training.method.state_dict()),
    }
    training.processes.ensure_equal(facts, "all machines need the same data, weights and GPUs")


def _interrupt_if_asked(stop: threading.Event, training: Training) -> None:
    _interrupt_if(stop.is_set(), training)


def _interrupt_if(must_stop: bool, training: Training) -> None:
    if must_stop:
        raise Interrupted(f"stopped at step {training.step}; continue with --resume")


def _figures(training: Training, clock: _Clock) -> dict[str, Any]:
    """Return the means of the figures since the last call, with step, epoch and speed."""
    figures = training.recorder.flush()
    epoch = (training.step - 1) // training.loader.num_batches
    position = {"step": training.step, "epoch": epoch}
    done = training.step - clock.first_step
    if not done:  # resumed at the end of an epoch: the speed is not known yet
        return position | figures
    seconds = max(time.monotonic() - clock.started, 1e-9) / done
    return {
        **position,
        **figures,
        "images_per_second": training.settings.batch_size / seconds,
        "seconds_left": (training.num_steps - training.step) * seconds,
    }


def _save(training: Training) -> int:
    training.recorder.collect()
    training.processes.on_rank_zero(partial(_write, training))
    return training.step


def _write(training: Training) -> None:
    checkpoint.save(training.output.run, training.state())
    if training.output.best is not None:
        training.output.best.remove_old_weights()


def _to_cpu(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.cpu() if isinstance(value, Tensor) else value for key, value in state.items()
    }


def _with_tensors(state: Any) -> dict[str, Any]:
    """Return the state of a ledger with tensors in place of arrays, which a checkpoint can hold."""
    return {
        key: torch.from_numpy(value.copy()) if hasattr(value, "dtype") else value
        for key, value in state.items()
    }
