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

NUM_STEPS = 4  # to measure
STAGE_OF_CALL = {  # the calls of a step in their order
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
STAGE_BEFORE = {  # work between the calls, by the following stage
    "features": "loading",
    "optimizer": "backward",
    "recording": "average of the weights",
}
OTHER_STAGE = "rest"
STAGES = (  # in the order of a step
    *("loading", "features", "rpn and proposals", "refine", "losses of the rpn"),
    *("second stage and its losses", "backward", "optimizer", "average of the weights"),
    *("recording", OTHER_STAGE),
)
MARK_PREFIX = "boxmend: "  # of the names of ranges in a profile
LAUNCH_PREFIXES = ("cuda", "cu", "hip")  # of calls that launch kernels or copy memory


class Span(NamedTuple):
    """The time span of a stage or of a kernel, in any unit."""

    name: str
    start: float
    end: float


def measure_stage_shares(factory: TrainingFactory, row: str, size: str) -> dict[str, float]:
    """Return the share of each stage in a step of one of boxmend's rows; they add up to 1."""
    settings = replace(factory.choices.settings(row, size), cuda_graph=False)
    steps = TrainingSteps(factory.training(settings))
    steps.run(2)
    if factory.device.type == "cuda":
        spans, work = _profile_stages(steps)
    else:
        spans = _time_stages(steps)
        work = [*spans, *_list_gaps(spans)]
    durations = sum_by_stage(spans, work)
    total = sum(durations.values())
    return {name: durations.get(name, 0.0) / total for name in STAGES}


def sum_by_stage(spans: Sequence[Span], work: Sequence[Span]) -> dict[str, float]:
    """Sum the durations of work by the stage within whose span it starts.

    Spans do not overlap and are sorted. Work between two spans of the same stage belongs to that
    stage, other work to the stage in STAGE_BEFORE of the second span.
    """
    starts = [span.start for span in spans]
    durations: dict[str, float] = {}
    for span_of_work in work:
        place = bisect_right(starts, span_of_work.start) - 1
        name = _find_stage(spans, place, span_of_work.start)
        durations[name] = durations.get(name, 0.0) + span_of_work.end - span_of_work.start
    return durations


def _find_stage(spans: Sequence[Span], place: int, moment: float) -> str:
    if place >= 0 and moment < spans[place].end:
        return spans[place].name
    following = spans[place + 1].name if place + 1 < len(spans) else None
    if place >= 0 and following == spans[place].name:
        return following
    return STAGE_BEFORE.get(following or "", OTHER_STAGE)


def _time_stages(steps: TrainingSteps) -> list[Span]:
    """Measure spans by the clock, on a device that works synchronously."""
    spans: list[Span] = []

    @contextmanager
    def record_span(name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spans.append(Span(name, started, time.perf_counter()))

    with _mark_calls(steps.training, record_span):
        steps.run(NUM_STEPS)
    return spans


def _list_gaps(spans: Sequence[Span]) -> list[Span]:
    return [Span("", span.end, following.start) for span, following in pairwise(spans)]


def _profile_stages(steps: TrainingSteps) -> tuple[list[Span], list[Span]]:
    """Return the spans of the stages and of all kernels."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        # Adding up over profiles changes nothing for one, and without it PyTorch warns.
        torch.profiler.profile(activities=activities, acc_events=True) as profile,
        _mark_calls(
            steps.training, lambda name: torch.profiler.record_function(MARK_PREFIX + name)
        ),
    ):
        steps.run(NUM_STEPS)
        torch.cuda.synchronize()
    return assign_work_to_launches(profile.events() or ())


def assign_work_to_launches(events: Sequence[Any]) -> tuple[list[Span], list[Span]]:
    """Return the spans of marks on the host, and the device work at the time of its launch.

    Takes the events of a profile. A kernel and the call that launched it have the same id. The time
    of that call is independent of the stream of the kernel and of the thread that launched it: the
    backward pass has its own thread, for which the thread with the marks waits.
    """
    on_device = [event for event in events if event.device_type.name == "CUDA"]
    on_host = [event for event in events if event.device_type.name == "CPU"]
    marks = [_make_span(event) for event in on_host if event.name.startswith(MARK_PREFIX)]
    spans = [mark._replace(name=mark.name.removeprefix(MARK_PREFIX)) for mark in marks]
    launched = {
        event.id: event.time_range.start
        for event in on_host
        if event.name.startswith(LAUNCH_PREFIXES)
    }
    work = []
    for event in on_device:
        if event.id in launched and not event.is_user_annotation:
            duration = event.time_range.end - event.time_range.start
            work.append(Span(event.name, launched[event.id], launched[event.id] + duration))
    if not spans or not work:
        raise BoxmendError("the profiler recorded no kernels; CUPTI may be missing or not allowed")
    return sorted(spans, key=lambda span: span.start), work


def _make_span(event: Any) -> Span:
    return Span(event.name, event.time_range.start, event.time_range.end)


@contextmanager
def _mark_calls(training: Training, mark: Callable[[str], Any]) -> Iterator[None]:
    """Wrap every call of STAGE_OF_CALL in a mark; nested calls belong to the outermost one."""
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
    for (owner, name), stage in zip(places, STAGE_OF_CALL.values(), strict=True):
        setattr(owner, name, mark_call(getattr(owner, name), stage))
    try:
        yield
    finally:
        for owner, name in places:
            delattr(owner, name)  # the method of the class applies again


def _split_calls() -> list[tuple[str, str]]:
    parted = [call.split(".") for call in STAGE_OF_CALL]
    return [(part, name) for part, name in parted]
