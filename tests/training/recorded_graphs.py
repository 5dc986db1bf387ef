"""A stand-in for CUDA graphs on the CPU: it records the operations of a step and repeats them.

Like a real capture it changes nothing: afterwards all memory that was there before is as it was,
and what the step made holds NaN until the first replay. A replay repeats the recorded operations,
with the recorded numbers, on the same memory; no Python code of the step runs again. What would
wait for the device cannot be recorded, and neither can a generator of random numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::unique2")


class Graph:
    """Takes the place of `torch.cuda.CUDAGraph`."""

    made: "list[Graph]" = []  # noqa: RUF012  # emptied by `patch_cuda`

    def __init__(self) -> None:
        self.steps: list[Callable[[], None]] = []
        self.num_replays = 0
        Graph.made.append(self)

    @torch.no_grad()
    def replay(self) -> None:
        for step in self.steps:
            step()
        self.num_replays += 1


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Executes operations and notes how to repeat each of them on the same memory."""

    def __init__(self, graph: Graph):
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph = graph
        self.made: dict[int, Tensor] = {}  # by storage
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # by storage: the memory and a copy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        if name in WAITS or kwargs.get("generator") is not None:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        if name == "aten::equal":  # how the CPU alone stops early; a device runs all rounds
            return False
        for written in _list_written(func, args, kwargs):
            self._keep(written)
        result = func(*args, **kwargs)
        args, kwargs = tree_map(_detach, (args, kwargs))
        known = {_storage(tensor) for tensor in _tensors((args, kwargs))}
        outputs: list[Any] = [_detach(one) for one in tree_flatten(result)[0]]
        is_new = [
            isinstance(output, Tensor) and _storage(output) not in known for output in outputs
        ]
        self.made |= {_storage(one): one for one, new in zip(outputs, is_new, strict=True) if new}

        def repeat() -> None:
            again = tree_flatten(func(*args, **kwargs))[0]
            for into, value, new in zip(outputs, again, is_new, strict=True):
                if new:
                    into.copy_(value)

        self.graph.steps.append(repeat)
        return result

    def _keep(self, written: Tensor) -> None:
        place = _storage(written)
        if place not in self.made and place not in self.before:
            whole = torch.empty(0, dtype=torch.uint8).set_(written.untyped_storage())
            self.before[place] = whole, whole.clone()

    def undo(self) -> None:
        """Bring memory back that was there before, and spoil what was made."""
        for memory, copy in self.before.values():
            memory.copy_(copy)
        for tensor in self.made.values():
            tensor.fill_(torch.nan if tensor.is_floating_point() else 0)


@contextmanager
def record(graph: Graph, stream: object, capture_error_mode: str) -> Iterator[None]:
    """Takes the place of `torch.cuda.graph`."""
    recording = Recording(graph)
    try:
        with recording:
            yield
    finally:
        with torch.no_grad():
            recording.undo()


def patch_cuda(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Put the stand-in into `torch.cuda`. Returns the graphs that are made from now on."""
    Graph.made = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", _Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    return Graph.made


class _Stream:
    def wait_stream(self, other: object) -> None:
        """Everything is in order on the CPU."""


def _list_written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """The arguments that an operation changes."""
    argument_pairs = zip(func._schema.arguments, args, strict=False)
    named = [
        (argument, kwargs[argument.name])
        for argument in func._schema.arguments
        if argument.name in kwargs
    ]
    pairs = [*argument_pairs, *named]
    changed = [value for one, value in pairs if one.alias_info and one.alias_info.is_write]
    return _tensors(changed)


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_flatten(tree)[0] if isinstance(one, Tensor)]


def _detach(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _storage(tensor: Tensor) -> int:
    """What tells memory apart; the recording keeps it alive."""
    return int(tensor.untyped_storage()._cdata)
