"""The processes that train together: who takes which part, and how they stay one.

`torchrun` starts them and tells each its place by environment variables; without these there is
one process and nothing is exchanged. Each takes its slice of every batch. What goes over the
device (gradients, counts, the state of a method) waits for nothing but the others; what goes over
the host (figures, ledger columns, a request to stop) uses gloo. Process 0 alone writes.
"""

import atexit
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

from boxmend.data.files.atomic import open_atomic
from boxmend.errors import BoxmendError, OutputError, UsageError

TIMEOUT = timedelta(minutes=10)  # for what all do at the same time
PATIENCE = timedelta(days=1)  # while process 0 scores or writes; a process that ends is seen anyway
BUCKET = 2**23  # numbers of gradients that travel together: 32 MiB
CONTINUE = "Run the same command with --resume to continue from the last checkpoint."
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

Made = TypeVar("Made")


class OthersLostError(BoxmendError):
    """Another process ended or cannot be reached, so that this one cannot go on."""


@dataclass(frozen=True)
class Processes:
    """The place of this process among those that train together; by default it is alone."""

    device: torch.device
    rank: int = 0
    number: int = 1
    local_world_size: int = 1
    """Processes on this machine, which share its memory and cores."""
    patient: Any = None
    """The group for what may take its time; None where there is one process."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes, scores and speaks."""
        return self.rank == 0

    @property
    def is_single_process(self) -> bool:
        """Whether there is nobody to exchange anything with."""
        return self.number == 1

    def part(self, whole: Tensor) -> Tensor:
        """Take this process's slice of something [B, ...] that all have made alike."""
        size = len(whole) // self.number
        return whole[self.rank * size : (self.rank + 1) * size]

    def gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Join tensors [n, ...] of all processes, [number * n, ...], in the order of the batch.

        All have one n, the same in every process. Their bytes travel together and unchanged.
        """
        if self.is_single_process:
            return tensors
        n = len(tensors[0])
        packed = [one.contiguous().reshape(n, -1).view(torch.uint8) for one in tensors]
        mine = torch.cat(packed, dim=1)  # [n, bytes]
        joined = mine.new_empty(self.number * n, mine.shape[1])
        with _others_needed(self):
            dist.all_gather_into_tensor(joined, mine)
        pieces = torch.split(joined, [one.shape[1] for one in packed], dim=1)
        return tuple(
            piece.contiguous().view(one.dtype).reshape(len(joined), *one.shape[1:])
            for piece, one in zip(pieces, tensors, strict=True)
        )

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up a tensor over all processes."""
        if self.is_single_process:
            return tensor
        summed = tensor.clone()
        with _others_needed(self):
            dist.all_reduce(summed)
        return summed

    def add_up(self, gradients: Iterable[Tensor]) -> None:
        """Replace gradients by their sums over all processes; the same ones in each of them."""
        if self.is_single_process:
            return
        with _others_needed(self):
            under_way = []
            for bucket in _buckets(gradients):
                flat = torch.cat([one.reshape(-1) for one in bucket])
                under_way.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
            for bucket, flat, work in under_way:
                work.wait()
                pieces = torch.split(flat, [one.numel() for one in bucket])
                torch._foreach_copy_(
                    bucket,
                    [piece.view_as(one) for piece, one in zip(pieces, bucket, strict=True)],
                )

    def any(self, is_wanted: bool) -> bool:
        """Whether some process wants it; all have to ask at the same point."""
        if self.is_single_process:
            return is_wanted
        flag = torch.tensor(int(is_wanted))
        with _others_needed(self):
            dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def exchanged(self, mine: Made) -> list[Made]:
        """What each process has, in their order; for plain values and arrays on the host."""
        if self.is_single_process:
            return [mine]
        everyones: list[Any] = [None] * self.number
        with _others_needed(self):
            dist.all_gather_object(everyones, mine, group=self.patient)
        return everyones

    def on_rank_zero(self, make: Callable[[], Made]) -> Made:
        """Call `make` in process 0; all return what it made, or raise the BoxmendError it raised.

        What is made travels between machines: plain values, arrays, and tensors on the CPU.
        """
        if self.is_single_process:
            return make()
        answer: list[Any] = [None, None]
        trouble: BoxmendError | None = None
        if self.is_first:
            try:
                answer[0] = make()
            except BoxmendError as error:
                trouble, answer[1] = error, (type(error), str(error))
        with _others_needed(self):
            dist.broadcast_object_list(answer, src=0, group=self.patient)
        if trouble is not None:
            raise trouble
        if answer[1] is not None:
            kind, text = answer[1]
            raise (kind if kind.__init__ is BoxmendError.__init__ else BoxmendError)(text)
        made: Made = answer[0]
        return made

    def ensure_alike(self, facts: Mapping[str, str], remedy: str) -> None:
        """Raise a UsageError where a process has other facts than process 0."""
        first, *others = self.exchanged(dict(facts))
        for rank, theirs in enumerate(others, start=1):
            for name, value in first.items():
                if theirs[name] != value:
                    raise UsageError(f"process {rank} has {name} other than process 0; {remedy}")


@contextmanager
def joined() -> Iterator[Processes]:
    """Meet the other processes that torchrun started, if it did.

    They part when they end, so that one training may follow another.
    """
    place = rank_from_env()
    if place is None:
        yield Processes(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    rank, number = place
    device = _own_device()
    local_world_size = _number("LOCAL_WORLD_SIZE", default=1)
    if not dist.is_initialized():
        _meet(device, rank, number)
    here = Processes(device, rank, number, local_world_size)
    with _others_needed(here):
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
    try:
        with _termination_explained(here):
            yield replace(here, patient=patient)
    except BaseException as error:
        if device.type == "cuda":  # with nccl, parting would wait for those who wait for us
            atexit.unregister(_part)
        _leave_reason(error)
        raise
    dist.destroy_process_group(patient)


def rank_from_env() -> tuple[int, int] | None:
    """Read this process's rank and their number from the environment; None where it is alone."""
    if any(name not in os.environ for name in VARIABLES):
        return None
    rank, number = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < number:
        raise UsageError(f"RANK is {rank} and WORLD_SIZE {number}; torchrun sets both")
    return None if number == 1 else (rank, number)


def is_first() -> bool:
    """Whether this process is the one that writes and speaks; without torchrun it is."""
    place = rank_from_env()
    return place is None or place[0] == 0


def _meet(device: torch.device, rank: int, number: int) -> None:
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        store = _store(rank, number)
        dist.init_process_group(backend, timeout=TIMEOUT, store=store, rank=rank, world_size=number)
        atexit.register(_part)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise BoxmendError(
            f"process {rank} of {number} could not meet the others at {where}: {_first_line(error)}"
        ) from error


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _store(rank: int, number: int) -> Any:
    """Where the processes leave their addresses: torchrun's own store, or process 0's.

    Under a name of its own for each attempt: a torchrun that starts its processes again may keep
    its store, and with it the addresses of those that ended.
    """
    host, port = os.environ["MASTER_ADDR"], _number("MASTER_PORT")
    is_torchruns = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    is_ours = rank == 0 and not is_torchruns
    store = dist.TCPStore(  # type: ignore[attr-defined]  # not exported by name, but public
        host, port, number, is_ours, timeout=TIMEOUT
    )
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"boxmend-{attempt}", store)  # type: ignore[attr-defined]


def _own_device() -> torch.device:
    """The GPU of this process, one for each on a machine; the CPU where there are none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    place, count = _number("LOCAL_RANK", default=0), torch.cuda.device_count()
    if place >= count:
        raise UsageError(
            f"this machine has {count} GPUs and more processes than that; start torchrun with "
            f"--nproc-per-node {count}"
        )
    device = torch.device("cuda", place)
    torch.cuda.set_device(device)
    return device


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal():
        raise UsageError(f"the environment variable {name} is {text!r}; torchrun sets a number")
    return int(text)


@contextmanager
def _others_needed(here: Processes) -> Iterator[None]:
    """Turn a failed exchange into an error that says what happened and how to continue."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # the others are not to blame
    except RuntimeError as error:
        raise OthersLostError(
            f"process {here.rank} of {here.number} lost the others ({_reason(error)}): one of them "
            f"was killed, failed or cannot be reached, and its own output may say why. {CONTINUE}"
        ) from error


@contextmanager
def _termination_explained(here: Processes) -> Iterator[None]:
    """Let SIGTERM raise an error with a message: torchrun sends it when another process ends.

    The training loop has a handler of its own, which finishes the step first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise OthersLostError(
            f"process {here.rank} of {here.number} was asked to stop (SIGTERM), as torchrun does "
            f"when another process ends. {CONTINUE}"
        )

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _leave_reason(error: BaseException) -> None:
    """Write the message of an error to where torchrun looks for it, to be shown in its summary.

    A process that merely lost the others writes nothing: it is not the cause.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and isinstance(error, BoxmendError) and not isinstance(error, OthersLostError):
        text, seconds = f"boxmend: {error}", str(int(time.time()))
        details = {"py_callstack": text, "timestamp": seconds}  # torchrun shows the first of them
        message = {"message": {"message": text, "extraInfo": details}}
        with suppress(OutputError), open_atomic(Path(path)) as file:
            file.write(json.dumps(message).encode())


def _reason(error: Exception) -> str:
    """The reason in a message of gloo, without its place in gloo's sources and its advice."""
    line = re.sub(r"^\[[^]]*\.(cc|cpp|h):\d+\] *", "", _first_line(error))
    return line.split(". ", 1)[0].rstrip(".")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Part gradients into lists of about BUCKET numbers, each of one type."""
    bucket: list[Tensor] = []
    for one in gradients:
        is_full = sum(other.numel() for other in bucket) + one.numel() > BUCKET
        if bucket and (is_full or one.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(one)
    if bucket:
        yield bucket
