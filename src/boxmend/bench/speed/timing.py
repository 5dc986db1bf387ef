"""Time blocks of steps in turns, so that drift affects all rows equally, and take the median."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch

WARM_UP = 4  # steps; with a CUDA graph the first is launched directly, the second is recorded

Note = Callable[[str], None]


class TimedTraining(Protocol):
    """A training whose steps can be timed."""

    batch_size: int
    """Number of images per step."""

    def settle(self) -> None:
        """Do the work that must not count in the next block."""

    def run(self, steps: int) -> None:
        """Run this number of whole training steps without waiting for the device."""


@dataclass
class Timed:
    """The times of a row, or the reason why it could not be measured."""

    batch_size: int = 0
    blocks: list[float] = field(default_factory=list)
    """Milliseconds per step, by block."""
    prepared: float | None = None
    """Seconds before the first block: setup and first steps."""
    peak_bytes: int | None = None
    """Peak of allocated device memory in the first steps; None on a CPU."""
    reserved_bytes: int | None = None
    """Peak of the memory that the allocator reserved."""
    error: str | None = None

    @property
    def milliseconds(self) -> float | None:
        """Return the median of the blocks."""
        return statistics.median(self.blocks) if self.blocks and self.error is None else None

    @property
    def images_per_second(self) -> float | None:
        """Return the images per second, by the median of the blocks."""
        milliseconds = self.milliseconds
        return None if not milliseconds else 1e3 * self.batch_size / milliseconds


def time_seconds(device: torch.device, work: Callable[[], None]) -> float:
    """Return the seconds of `work`: by events of the current stream on a GPU, else by the clock."""
    if device.type != "cuda":
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize(device)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """Use a new stream of a GPU, because CUDA graphs cannot record the default stream."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def time_in_turns(
    makers: Mapping[str, Callable[[], TimedTraining]],
    device: torch.device,
    blocks: int,
    steps: int,
    note: Note,
) -> dict[str, Timed]:
    """Make all rows, then time a block of steps of each, again and again.

    A row that fails has its error; the others continue.
    """
    timed = {name: Timed() for name in makers}
    ready: dict[str, TimedTraining] = {}
    for name, make in makers.items():
        note(f"preparing {name}")
        steps_of_row = _prepare_row(make, timed[name], device)
        if steps_of_row is not None:
            ready[name] = steps_of_row
    for block in range(blocks):
        note(f"block {block + 1} of {blocks}")
        for name in list(ready):
            if not _add_block(ready[name], timed[name], device, steps):
                del ready[name]
                _release(device)
    ready.clear()
    _release(device)
    return timed


def _prepare_row(
    make: Callable[[], TimedTraining], row: Timed, device: torch.device
) -> TimedTraining | None:
    """Build a row, take its first steps and note the device memory that it needs."""
    _release(device)
    before = _memory(device)
    started = time.perf_counter()
    try:
        steps = make()
        steps.run(WARM_UP)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except Exception as error:  # the other rows continue
        row.error = first_reason(error)
        return None
    row.batch_size, row.prepared = steps.batch_size, time.perf_counter() - started
    if before is not None:
        row.peak_bytes = torch.cuda.max_memory_allocated(device) - before[0]
        row.reserved_bytes = torch.cuda.max_memory_reserved(device) - before[1]
    return steps


def _add_block(steps: TimedTraining, row: Timed, device: torch.device, number: int) -> bool:
    """Time one block; return whether it succeeded."""
    try:
        steps.settle()
        row.blocks.append(1e3 * time_seconds(device, lambda: steps.run(number)) / number)
    except Exception as error:  # the other rows continue
        row.error = first_reason(error)
        return False
    return True


def _memory(device: torch.device) -> tuple[int, int] | None:
    """Reset the peaks; return the bytes that are allocated and reserved now."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def first_reason(error: Exception) -> str:
    """Return the type and the first line of an error, which may have many lines."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
