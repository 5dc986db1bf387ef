"""The processes of one training: how they start, share batches and exchange values.

`torchrun` starts the processes and gives each its rank by environment variables. Without these
variables there is one process, which exchanges nothing. Each process takes its slice of every
batch. Gradients, counts and the state of a method go over the device; figures, ledger columns and
requests to stop go over the host by gloo. Only process 0 writes.
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

TIMEOUT = timedelta(minutes=10)  # for exchanges that all processes reach at the same time
SLOW_TIMEOUT = timedelta(days=1)  # while process 0 scores or writes; an exit is seen at once anyway
BUCKET_NUMBERS = 2**23  # gradients exchanged together: 32 MiB in float32
CONTINUE = "Run the same command with --resume to continue from the last checkpoint."
VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

Value = TypeVar("Value")


class OthersLostError(BoxmendError):
    """Another process ended or cannot be reached, so this one cannot continue."""


@dataclass(frozen=True)
class Processes:
    """The rank of this process and its exchanges with the others; by default it is the only one."""

    device: torch.device
    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    """Number of processes on this machine, which share its memory and cores."""
    slow_group: Any = None
    """The group for exchanges that may take long; None for a single process."""

    @property
    def is_rank_zero(self) -> bool:
        """Whether this process writes, scores and prints."""
        return self.rank == 0

    @property
    def is_single_process(self) -> bool:
        """Whether there is no other process."""
        return self.world_size == 1

    def local_part(self, whole: Tensor) -> Tensor:
        """Return this process's slice of a tensor [B, ...] that is equal in all processes."""
        size = len(whole) // self.world_size
        return whole[self.rank * size : (self.rank + 1) * size]

    def all_gather(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Join tensors [n, ...] of all processes, [world_size * n, ...], in the order of the batch.

        n must be the same for all tensors and processes. Their bytes travel together, unchanged.
        """
        if self.is_single_process:
            return tensors
        n = len(tensors[0])
        packed = [tensor.contiguous().reshape(n, -1).view(torch.uint8) for tensor in tensors]
        own = torch.cat(packed, dim=1)  # [n, bytes]
        joined = own.new_empty(self.world_size * n, own.shape[1])
        with _explain_failed_exchange(self):
            dist.all_gather_into_tensor(joined, own)
        pieces = torch.split(joined, [part.shape[1] for part in packed], dim=1)
        return tuple(
            piece.contiguous().view(tensor.dtype).reshape(len(joined), *tensor.shape[1:])
            for piece, tensor in zip(pieces, tensors, strict=True)
        )

    def all_sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes."""
        if self.is_single_process:
            return tensor
        total = tensor.clone()
        with _explain_failed_exchange(self):
            dist.all_reduce(total)
        return total

    def sum_gradients(self, gradients: Iterable[Tensor]) -> None:
        """Replace gradients by their sums over all processes, equal in each of them."""
        if self.is_single_process:
            return
        with _explain_failed_exchange(self):
            pending = []
            for bucket in _fill_buckets(gradients):
                flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
                pending.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
            for bucket, flat, work in pending:
                work.wait()
                pieces = torch.split(flat, [gradient.numel() for gradient in bucket])
                torch._foreach_copy_(
                    bucket,
                    [
                        piece.view_as(gradient)
                        for piece, gradient in zip(pieces, bucket, strict=True)
                    ],
                )

    def any(self, is_wanted: bool) -> bool:
        """Return whether some process passes True; all must call this at the same point."""
        if self.is_single_process:
            return is_wanted
        flag = torch.tensor(int(is_wanted))
        with _explain_failed_exchange(self):
            dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag)

    def gather_objects(self, own: Value) -> list[Value]:
        """Return the value of each process by rank; for plain values and arrays on the host."""
        if self.is_single_process:
            return [own]
        values: list[Any] = [None] * self.world_size
        with _explain_failed_exchange(self):
            dist.all_gather_object(values, own, group=self.slow_group)
        return values

    def on_rank_zero(self, make: Callable[[], Value]) -> Value:
        """Call `make` in process 0; return its value, or raise its BoxmendError, in all processes.

        The value travels between machines: plain values, arrays, and tensors on the CPU.
        """
        if self.is_single_process:
            return make()
        answer: list[Any] = [None, None]
        failure: BoxmendError | None = None
        if self.is_rank_zero:
            try:
                answer[0] = make()
            except BoxmendError as error:
                failure, answer[1] = error, (type(error), str(error))
        with _explain_failed_exchange(self):
            dist.broadcast_object_list(answer, src=0, group=self.slow_group)
        if failure is not None:
            raise failure
        if answer[1] is not None:
            kind, text = answer[1]
            raise (kind if kind.__init__ is BoxmendError.__init__ else BoxmendError)(text)
        value: Value = answer[0]
        return value

    def ensure_equal(self, facts: Mapping[str, str], remedy: str) -> None:
        """Raise a UsageError where a process has other facts than process 0."""
        first, *others = self.gather_objects(dict(facts))
        for rank, theirs in enumerate(others, start=1):
            for name, value in first.items():
                if theirs[name] != value:
                    raise UsageError(f"process {rank} and process 0 differ in {name}; {remedy}")


@contextmanager
def join_processes() -> Iterator[Processes]:
    """Connect to the other processes if torchrun started this one.

    The connection stays open until the process exits, so one training may follow another.
    """
    ranks = rank_from_env()
    if ranks is None:
        yield Processes(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
        return
    rank, world_size = ranks
    device = _select_device()
    local_world_size = _read_number("LOCAL_WORLD_SIZE", default=1)
    if not dist.is_initialized():
        _connect(device, rank, world_size)
    processes = Processes(device, rank, world_size, local_world_size)
    with _explain_failed_exchange(processes):
        slow_group = dist.new_group(backend="gloo", timeout=SLOW_TIMEOUT)
    try:
        with _explain_termination(processes):
            yield replace(processes, slow_group=slow_group)
    except BaseException as error:
        if device.type == "cuda":  # nccl would wait for processes that wait for this one
            atexit.unregister(_disconnect)
        _write_reason(error)
        raise
    dist.destroy_process_group(slow_group)


def rank_from_env() -> tuple[int, int] | None:
    """Return rank and world size from the environment; None for a single process."""
    if any(name not in os.environ for name in VARIABLES):
        return None
    rank, world_size = _read_number("RANK"), _read_number("WORLD_SIZE")
    if not 0 <= rank < world_size:
        raise UsageError(f"RANK is {rank} and WORLD_SIZE {world_size}; torchrun sets both")
    return None if world_size == 1 else (rank, world_size)


def is_rank_zero() -> bool:
    """Return whether this process writes and prints; without torchrun it does."""
    ranks = rank_from_env()
    return ranks is None or ranks[0] == 0


def _connect(device: torch.device, rank: int, world_size: int) -> None:
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    try:
        store = _open_store(rank, world_size)
        dist.init_process_group(
            backend, timeout=TIMEOUT, store=store, rank=rank, world_size=world_size
        )
        atexit.register(_disconnect)
    except (RuntimeError, ValueError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise BoxmendError(
            f"process {rank} of {world_size} could not connect to the others at {address}: "
            f"{_first_line(error)}"
        ) from error


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _open_store(rank: int, world_size: int) -> Any:
    """Open the store of the processes' addresses: torchrun's own, or that of process 0.

    Each attempt uses its own prefix: a torchrun that restarts its processes may keep its store,
    with the addresses of the processes that ended.
    """
    host, port = os.environ["MASTER_ADDR"], _read_number("MASTER_PORT")
    is_torchrun_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    is_server = rank == 0 and not is_torchrun_store
    store = dist.TCPStore(  # type: ignore[attr-defined]  # not exported by name, but public
        host, port, world_size, is_server, timeout=TIMEOUT
    )
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"boxmend-{attempt}", store)  # type: ignore[attr-defined]


def _select_device() -> torch.device:
    """Return the GPU of this process, one for each process on a machine; the CPU without GPUs."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    local_rank, count = _read_number("LOCAL_RANK", default=0), torch.cuda.device_count()
    if local_rank >= count:
        raise UsageError(
            f"this machine has more processes than GPUs ({count}); start torchrun with "
            f"--nproc-per-node {count}"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _read_number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal():
        raise UsageError(f"the environment variable {name} is {text!r}; torchrun sets a number")
    return int(text)


@contextmanager
def _explain_failed_exchange(processes: Processes) -> Iterator[None]:
    """Turn a failed exchange into an error that says what happened and how to continue."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise  # a failure of this process, not of the others
    except RuntimeError as error:
        raise OthersLostError(
            f"process {processes.rank} of {processes.world_size} lost the others "
            f"({_reason(error)}): one of them was killed, failed or cannot be reached; see its "
            f"output for the reason. {CONTINUE}"
        ) from error


@contextmanager
def _explain_termination(processes: Processes) -> Iterator[None]:
    """Let SIGTERM raise an error with a message: torchrun sends it when another process ends.

    The training loop has its own handler, which finishes the step first.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise OthersLostError(
            f"process {processes.rank} of {processes.world_size} received SIGTERM, which torchrun "
            f"sends when another process ends. {CONTINUE}"
        )

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _write_reason(error: BaseException) -> None:
    """Write the message of an error to the file from which torchrun takes its summary.

    A process that only lost the others writes nothing, since it is not the cause.
    """
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and isinstance(error, BoxmendError) and not isinstance(error, OthersLostError):
        text, seconds = f"boxmend: {error}", str(int(time.time()))
        details = {"py_callstack": text, "timestamp": seconds}  # torchrun shows the first
        message = {"message": {"message": text, "extraInfo": details}}
        with suppress(OutputError), open_atomic(Path(path)) as file:
            file.write(json.dumps(message).encode())


def _reason(error: Exception) -> str:
    """Return the reason in a message of gloo, without source position and advice."""
    line = re.sub(r"^\[[^]]*\.(cc|cpp|h):\d+\] *", "", _first_line(error))
    return line.split(". ", 1)[0].rstrip(".")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _fill_buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield lists of gradients of one type, each of about BUCKET_NUMBERS numbers."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        is_full = sum(other.numel() for other in bucket) + gradient.numel() > BUCKET_NUMBERS
        if bucket and (is_full or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket
