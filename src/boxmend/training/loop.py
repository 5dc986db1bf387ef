"""The training loop: the losses of a method, and one step of the optimiser.

It never asks which method runs. Every random number follows from the seed and the step, every
rate from the step, so that a resumed run goes the way the uninterrupted one would have gone.
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
from boxmend.training.facts import digest
from boxmend.training.loader import Batch, Loader
from boxmend.training.optimisation import (
    average_of,
    build_optimizer,
    clipped,
    decay_at,
    follow,
    rate_at,
)
from boxmend.training.prescreen import describe
from boxmend.training.processes import Processes
from boxmend.training.recording import Listener, Recorder
from boxmend.training.replay import Keys, Replay
from boxmend.training.stopping import stop_requests
from boxmend.training.validation import finds_nothing

SIGHTED_BY, STEPS_TO_SEE = 0.25, 200
"""Share of the passes, and steps, after which a detector finds something, if it ever will."""


class Interrupted(BoxmendError):
    """The run was told to stop; it has saved its state and can be resumed."""


class Computed(NamedTuple):
    """What a step leaves behind besides the gradients."""

    outcome: Outcome
    sums: dict[str, Tensor]  # scalars that add up over processes: the loss and its parts
    means: dict[str, Tensor]  # scalars that are averaged over processes


@dataclass(frozen=True)
class TrainingOutput:
    """Where a training writes to and reports to."""

    run: Path
    note: Callable[[str], None] = lambda text: None
    """Takes messages for the user."""
    best: BestEpoch | None = None
    """Scores every epoch and keeps the best one, where that is wanted."""


@dataclass
class Training:
    """A run in progress: what changes from step to step."""

    settings: TrainSettings
    detector: Detector
    method: Method
    dataset: Dataset
    loader: Loader
    ledger: Ledger | None
    """None in all processes but the first, which writes."""
    processes: Processes
    precision: torch.dtype
    output: TrainingOutput
    step: int = 0
    passes: int = 0
    """Passes that came to their end, with the estimates and scores that belong to it."""

    def __post_init__(self) -> None:
        network = self.detector.network
        self.device = self.processes.device
        self.num_steps = self.settings.epochs * self.loader.num_batches
        self.optimizer = build_optimizer(
            network.parameters(), self.settings.optimisation, self.settings.learning_rate
        )
        self.trained = [one for group in self.optimizer.param_groups for one in group["params"]]
        self.teacher = self.detector
        if self.settings.optimisation.average_decay:
            self.teacher = replace(self.detector, network=average_of(network))
        self.recorder = Recorder(self.dataset, self.ledger, self.processes)
        self.keys = Keys(self.processes)
        self.replay: Replay | None = None
        if (
            self.settings.cuda_graph
            and self.device.type == "cuda"
            and self.processes.is_single_process
        ):
            self.replay = Replay(self._compute, self.keys, self.output.note)

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here; nothing may be pending in the recorder.

        Of the process that has the ledger.
        """
        assert self.ledger is not None
        return {
            "step": self.step,
            "passes": self.passes,
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
        """Go on from what `state` gave; the ledger has been resumed by the caller."""
        self.step, self.passes = state["step"], state["passes"]
        if self.output.best is not None and state["best"] is not None:
            self.output.best.load_state(state["best"])
        self.detector.network.load_state_dict(state["network"])
        self.teacher.network.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.method.load_state_dict(state["method"])
        self.recorder.window = dict(state.get("figures", {}))  # older versions saved none

    def moment(self, step: int | None = None) -> TrainingProgress:
        """Return the progress at a step; without one, at the next step to be taken."""
        step = self.step if step is None else step
        epoch = step // self.loader.num_batches
        warm_up, num_epochs = self.settings.warm_up, self.settings.epochs
        return TrainingProgress.at(epoch, step, self.num_steps, warm_up, num_epochs)

    def train_on(self, batch: Batch) -> None:
        """One step: refine the annotations of a batch, and learn from them."""
        moment = self.moment()
        settings = self.settings.optimisation
        rate = rate_at(*self.method.clock(moment), self.settings.learning_rate, settings)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        seed = (self.settings.seed << 32) + moment.step
        if self.replay is None:
            self.keys.start(seed)
            computed = self._compute(batch)
        else:
            computed = self.replay(batch, (moment.epoch, self.method.phase(moment)), seed)
        self.optimizer.step()
        if self.teacher is not self.detector:
            decay = decay_at(moment.step, settings.average_decay or 0.0)
            follow(self.teacher.network, self.detector.network, decay)
        self.recorder.add(batch, computed.outcome, moment, computed.sums, computed.means)
        self.step += 1

    def _compute(self, batch: Batch) -> Computed:
        """Refine a batch and leave the gradients of its losses; nothing waits for the device."""
        self.detector.network.train()
        enabled = self.precision != torch.float32
        with torch.autocast(self.device.type, self.precision, enabled=enabled):
            outcome, losses = self.method.losses(self._work(batch))
        total = sum(losses.values(), torch.zeros((), device=self.device))
        self.optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        self.processes.sum_gradients(one.grad for one in self.trained if one.grad is not None)
        norm = clipped(self.trained, self.settings.optimisation.max_norm or 0.0)
        parts = {name: value.detach() for name, value in losses.items()}
        sums = {"loss": total.detach(), **parts}
        return Computed(outcome, sums, {"norm": norm, **outcome.metrics})

    def _work(self, batch: Batch) -> StepContext:
        return StepContext(
            detector=self.detector,
            images=batch.images,
            annotations=BatchAnnotations(
                batch.boxes, batch.labels, batch.is_box, batch.is_ignored, batch.rows, batch.sizes
            ),
            progress=self.moment(),
            draw=self.keys.draw,
            scorer_on=partial(self._scorer, batch),
        )

    def _scorer(self, batch: Batch, features: Features) -> BoxScorer:
        """The second stage whose opinion of annotations counts, on the features it is to see."""
        which = self.settings.judging_weights
        judge = self.detector if which == "network" else self.teacher
        if which == "average" and judge is not self.detector:
            features = judge.features(batch.images, batch.sizes)
        return lambda boxes: judge.score(features, boxes, batch.sizes)


def train(training: Training, log: Listener) -> None:
    """Run a training to its end, from wherever it stands."""
    clock = _Clock(time.monotonic(), training.step)
    with stop_requests() as stop, _stream_of(training):
        log({"plan": {"first_step": training.step, "steps": training.num_steps}})
        if training.step == 0 and training.method.wants_prescreen:
            _prescreen(training, log, stop)
        while training.passes < training.settings.epochs:
            last = _finish_steps(training, log, clock, stop)
            _end_pass(training, log, clock, stop)
            _tell_of_blindness(training, last, log)
            _save(training)
            _leave_if(training.processes.any(stop.is_set()), training)
    if training.ledger is not None:
        training.ledger.flush()


def _stream_of(training: Training) -> AbstractContextManager[Any]:
    """A stream besides the default one, which cannot be recorded."""
    if training.replay is None:
        return nullcontext()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(stream)


class _Clock(NamedTuple):
    """When this process began, and with which step."""

    started: float
    first: int


def _prescreen(training: Training, log: Listener, stop: threading.Event) -> None:
    """Let the method judge all annotations before the first step."""

    def note(text: str) -> None:
        log({"note": text})

    def prescreened() -> dict[str, Any]:
        note("a first look at the annotations, before training")
        described = describe(
            *(training.detector, training.loader, training.dataset, training.settings.seed, note),
            partial(_leave_if_asked, stop, training),
        )
        return dict(training.method.prescreen(described))

    figures = training.processes.on_rank_zero(prescreened)
    _share_estimates(training)
    if not figures:
        note("the first look says little about these labels; they are judged in training alone")
    elif "label_noise_low" in figures:  # the rate was not told
        rate, low, high = (figures[f"label_noise{end}"] for end in ("", "_low", "_high"))
        note(f"first look: {rate:.1%} of the labels seem wrong ({low:.1%} to {high:.1%})")


def _finish_steps(
    training: Training, log: Listener, clock: _Clock, stop: threading.Event
) -> Batch | None:
    """Train on what is left of the pass; returns the last batch of that."""
    settings, saved = training.settings, training.step
    done = training.step - training.passes * training.loader.num_batches
    if not done:
        training.method.begin_epoch(training.passes, training.detector)
    batch = None
    for batch in training.loader.epoch(training.passes, done):
        training.train_on(batch)
        if training.step % settings.log_every == 0:
            log(_figures(training, clock))
        is_over = training.processes.any(stop.is_set())
        if training.step - saved >= settings.checkpoint_every or is_over:
            saved = _save(training)
        _leave_if(is_over, training)
    return batch


def _tell_of_blindness(training: Training, batch: Batch | None, log: Listener) -> None:
    """Say so where a detector that should have learnt something finds nothing at all."""
    due = max(SIGHTED_BY * training.num_steps, STEPS_TO_SEE)
    if batch is None or training.step < due:
        return
    teacher, precision = training.teacher, training.precision
    if training.processes.on_rank_zero(lambda: finds_nothing(teacher, batch, precision)):
        note = (
            f"after pass {training.passes} the detector finds nothing in the images that it "
            "was trained on last; if that stays so it has collapsed, and a new run needs a lower "
            f"--optimisation.lr than {training.settings.learning_rate:g}"
        )
        log({"note": note})


def _end_pass(training: Training, log: Listener, clock: _Clock, stop: threading.Event) -> None:
    """Estimate, score and log what belongs to the end of a pass."""
    if training.output.best is not None:
        _save(training)  # scoring takes its time, and a request to stop breaks it off
    epoch = training.passes
    here = {"step": training.step, "epoch": epoch}
    log(_figures(training, clock) | {"epoch_ends": epoch})
    log(_estimated(training, epoch) | here)
    best = training.output.best
    if best is not None:
        check = partial(_leave_if_asked, stop, training)
        scored = training.processes.on_rank_zero(
            lambda: best.consider(training.teacher, training.step, check)
        )
        log(scored | here)
    training.passes += 1


def _estimated(training: Training, epoch: int) -> dict[str, Any]:
    """Estimate once for all processes, which take up the state that comes of it."""
    method, processes = training.method, training.processes
    is_warm_up = training.moment(training.step - 1).is_warm_up
    figures = processes.on_rank_zero(lambda: dict(method.end_epoch(epoch, is_warm_up=is_warm_up)))
    _share_estimates(training)
    return figures


def _share_estimates(training: Training) -> None:
    """Give the state of the method in process 0 to all others."""
    method, processes = training.method, training.processes
    if not processes.is_single_process:
        method.load_state_dict(processes.on_rank_zero(lambda: _on_cpu(method.state_dict())))
        ensure_equal(training)


def ensure_equal(training: Training) -> None:
    """Raise where processes do not see the same images or have come to different weights."""
    images = hashlib.sha256(training.loader.image_rows.tobytes()).hexdigest()
    facts = {
        "readable images": images,
        "weights": digest(training.detector.network.state_dict()),
        "a memory": digest(training.method.state_dict()),
    }
    training.processes.ensure_equal(facts, "all machines need the same data, weights and GPUs")


def _leave_if_asked(stop: threading.Event, training: Training) -> None:
    _leave_if(stop.is_set(), training)


def _leave_if(is_over: bool, training: Training) -> None:
    if is_over:
        raise Interrupted(f"stopped at step {training.step}; go on with --resume")


def _figures(training: Training, clock: _Clock) -> dict[str, Any]:
    """The means of the figures since the last call, with where and how fast the training is."""
    figures = training.recorder.flush()
    here = {"step": training.step, "epoch": (training.step - 1) // training.loader.num_batches}
    done = training.step - clock.first
    if not done:  # resumed at the end of a pass: there is no speed yet
        return here | figures
    seconds = max(time.monotonic() - clock.started, 1e-9) / done
    return {
        **here,
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
        training.output.best.tidy()


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value.cpu() if isinstance(value, Tensor) else value for key, value in state.items()
    }


def _with_tensors(state: Any) -> dict[str, Any]:
    """A ledger's state with its array as a tensor, which a checkpoint can hold."""
    return {
        key: torch.from_numpy(value.copy()) if hasattr(value, "dtype") else value
        for key, value in state.items()
    }
