"""Measure the share of each stage in the time of a step.

The stages of a recorded step cannot be separated, so the same kernels are launched one by one. The
shares are those of the working time of the device (GPU) or of the elapsed time (CPU).
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from boxmend.bench.speed.timed_training import TrainingFactory, TrainingSteps
from boxmend.errors import BoxmendError
from boxmend.training.loop import Training

STEPS = 4  # that are looked at
CALLS = {  # what a training calls, in this order: the stage that it belongs to
    "detector.features": "features",
    "detector.rpn": "rpn and proposals",
    "detector.proposals": "rpn and proposals",
    "method.refine": "refine",
    "detector.rpn_losses": "losses of the rpn",
    "detector.sample_rois": "second stage and its losses",
    "detector.roi_outputs": "second stage and its losses",
    "method.class_targets": "second stage and its losses",
    "detector.roi_losses": "second stage and its losses",
    "optimizer.step": "optimizer",
    "recorder.add": "recording",
}
BETWEEN = {  # what happens before a stage, and is none of the calls
    "features": "loading",
    "optimizer": "backward",
    "recording": "average of the weights",
}
REST = "rest"
STAGES = (  # in the order of a step
    *("loading", "features", "rpn and proposals", "refine", "losses of the rpn"),
    *("second stage and its losses", "backward", "optimizer", "average of the weights"),
    *("recording", REST),
)
MARK = "boxmend: "  # of ranges in a profile
DRIVER = ("cuda", "cu", "hip")  # how calls begin that launch kernels and copy memory


class Span(NamedTuple):
    """The time span of a stage or of a kernel, in any unit."""

    name: str
    start: float
    end: float


def stage_shares(factory: TrainingFactory, row: str, size: str) -> dict[str, float]:
    """Return the share of each stage in a step of one of boxmend's rows; they add up to 1."""
    settings = replace(factory.choices.settings(row, size), cuda_graph=False)
    steps = TrainingSteps(factory.training(settings))
    steps.run(2)
    if factory.device.type == "cuda":
        spans, work = _profile_stages(steps)
    else:
        spans = _time_stages(steps)
        work = [*spans, *_gaps(spans)]
    found = sum_by_stage(spans, work)
    total = sum(found.values())
    return {name: found.get(name, 0.0) / total for name in STAGES}


def sum_by_stage(spans: Sequence[Span], work: Sequence[Span]) -> dict[str, float]:
    """Sum the durations of work by the stage within whose span it starts.

    Spans do not overlap and are sorted. What starts between two spans belongs to their stage where
    it is the same, else to what is known to happen before the second one.
    """
    starts = [span.start for span in spans]
    found: dict[str, float] = {}
    for one in work:
        place = bisect_right(starts, one.start) - 1
        name = _stage_at(spans, place, one.start)
        found[name] = found.get(name, 0.0) + one.end - one.start
    return found


def _stage_at(spans: Sequence[Span], place: int, moment: float) -> str:
    if place >= 0 and moment < spans[place].end:
        return spans[place].name
    following = spans[place + 1].name if place + 1 < len(spans) else None
    if place >= 0 and following == spans[place].name:
        return following
    return BETWEEN.get(following or "", REST)


def _time_stages(steps: TrainingSteps) -> list[Span]:
    """Measure spans by the clock, on a device that works synchronously."""
    spans: list[Span] = []

    @contextmanager
    def record_span(name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spans.append(Span(name, started, time.perf_counter()))

    with _mark_calls(steps.training, record_span):
        steps.run(STEPS)
    return spans


def _gaps(spans: Sequence[Span]) -> list[Span]:
    return [Span("", one.end, other.start) for one, other in pairwise(spans)]


def _profile_stages(steps: TrainingSteps) -> tuple[list[Span], list[Span]]:
    """Return the spans of the stages and of all kernels."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        # Adding up over profiles changes nothing for one, and without it PyTorch warns.
        torch.profiler.profile(activities=activities, acc_events=True) as profile,
        _mark_calls(steps.training, lambda name: torch.profiler.record_function(MARK + name)),
    ):
        steps.run(STEPS)
        torch.cuda.synchronize()
    return by_launch(profile.events() or ())


def by_launch(events: Sequence[Any]) -> tuple[list[Span], list[Span]]:
    """Return the spans of marks on the host, and the device work at the time of its launch.

    Takes the events of a profile. A kernel and the call that launched it have the same id. By the
    time of that call it does not matter on which stream a kernel ran, nor which thread launched it:
    the backward pass has a thread of its own, for which the one with the marks waits.
    """
    on_device = [event for event in events if event.device_type.name == "CUDA"]
    on_host = [event for event in events if event.device_type.name == "CPU"]
    marks = [_span(event) for event in on_host if event.name.startswith(MARK)]
    spans = [mark._replace(name=mark.name.removeprefix(MARK)) for mark in marks]
    launched = {
        event.id: event.time_range.start for event in on_host if event.name.startswith(DRIVER)
    }
    work = []
    for event in on_device:
        if event.id in launched and not event.is_user_annotation:
            took = event.time_range.end - event.time_range.start
            work.append(Span(event.name, launched[event.id], launched[event.id] + took))
    if not spans or not work:
        raise BoxmendError("the profiler saw no kernels; CUPTI may be missing or not allowed")
    return sorted(spans, key=lambda span: span.start), work


def _span(event: Any) -> Span:
    return Span(event.name, event.time_range.start, event.time_range.end)


@contextmanager
def _mark_calls(training: Training, mark: Callable[[str], Any]) -> Iterator[None]:
    """Wrap every call of CALLS in a mark; nested calls belong to the outermost one."""
    depth = 0

    def mark_call(call: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def within(*args: Any, **options: Any) -> Any:
            nonlocal depth
            if depth:
                return call(*args, **options)
            depth += 1
            try:
                with mark(stage):
                    return call(*args, **options)
            finally:
                depth -= 1

        return within

    places = [(getattr(training, part), name) for part, name in _split_calls()]
    for (owner, name), stage in zip(places, CALLS.values(), strict=True):
        setattr(owner, name, mark_call(getattr(owner, name), stage))
    try:
        yield
    finally:
        for owner, name in places:
            delattr(owner, name)  # the class's own shows again


def _split_calls() -> list[tuple[str, str]]:
    parted = [call.split(".") for call in CALLS]
    return [(part, name) for part, name in parted]
