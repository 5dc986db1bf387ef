"""A training step as one CUDA graph: recorded once, then replayed for every batch that follows.

A step launches thousands of small kernels, and on a fast GPU launching them takes longer than
running them. Shapes never change and nothing waits for the device, so a recording of the launches
serves for all steps of a pass; the next pass, whose estimates differ, is recorded anew.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from boxmend.training.loader import Batch
from boxmend.training.processes import Processes


class Keys:
    """The random numbers of a step, which follow from its seed alone."""

    def __init__(self, processes: Processes):
        self._processes = processes
        self._generator = torch.Generator(processes.device)
        self._shapes: list[tuple[int, ...]] = []
        self._fixed: list[Tensor] | None = None
        self._place = 0

    def start(self, seed: int) -> None:
        """Begin a step."""
        self._generator.manual_seed(seed)
        self._place = 0
        if self._fixed is None:
            self._shapes.clear()
            return
        for tensor in self._fixed:
            tensor.copy_(self._drawn(tuple(tensor.shape)))

    def draw(self, shape: torch.Size) -> Tensor:
        """Give numbers [B, ...], uniform in [0, 1), the next ones of this step."""
        if self._fixed is not None:
            self._place += 1
            return self._fixed[self._place - 1]
        self._shapes.append(tuple(shape))
        return self._drawn(tuple(shape))

    def fix(self) -> None:
        """Draw the numbers of later steps into the same memory, in the shapes of the last one."""
        self._fixed = [self._drawn(shape) for shape in self._shapes]

    def release(self) -> None:
        """Draw them into new memory again."""
        self._fixed = None

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        """Draw for the whole batch, of which this process has a part."""
        whole = (shape[0] * self._processes.world_size, *shape[1:])
        numbers = torch.rand(whole, generator=self._generator, device=self._processes.device)
        return self._processes.local_part(numbers)


class Replay:
    """A computation on batches, replayed from a recording as long as its phase lasts.

    `compute` may read and change what lies in fixed places on the device; whatever else it does is
    done when it is recorded and never again. What it returns is overwritten by the next call.
    """

    def __init__(self, compute: Callable[[Batch], Any], keys: Keys, note: Callable[[str], None]):
        self._compute = compute
        self._keys = keys
        self._note = note
        self._phase: Hashable = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch | None = None
        self._result: Any = None
        self._is_possible = True

    def __call__(self, batch: Batch, phase: Hashable, seed: int) -> Any:
        """Compute on a batch; the first one of a phase as it is, the others by replaying.

        A batch of other shapes begins a phase, too: a recording serves for its own shapes alone.
        """
        phase = (phase, _shapes(batch))
        if phase != self._phase:
            self._forget()
            self._phase = phase
        elif self._graph is None and self._is_possible:
            self._record(batch)
        self._keys.start(seed)
        if self._graph is None or self._batch is None:
            return self._compute(batch)
        _copy(self._batch, batch)
        self._graph.replay()
        return self._result

    def _record(self, batch: Batch) -> None:
        torch.cuda.empty_cache()  # what steps without a recording needed, the recording will need
        self._keys.fix()
        self._batch = _cloned(batch)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(
                graph,
                stream=torch.cuda.current_stream(),
                capture_error_mode="thread_local",  # threads that decode may allocate
            ):
                self._result = self._compute(self._batch)
        except RuntimeError as error:
            self._forget()
            self._is_possible = False
            reason = str(error).strip().split("\n")[0]
            self._note(f"steps cannot be recorded as a CUDA graph, so they are slower ({reason})")
            return
        self._graph = graph

    def _forget(self) -> None:
        self._graph = self._batch = self._result = None
        self._keys.release()


def _cloned(batch: Batch) -> Batch:
    """A batch in memory of its own; rows on the host are left as they are."""
    frame = type(batch.frame)(*(one.clone() for one in batch.frame))
    tensors: dict[str, Any] = {
        name: value.clone() for name, value in batch._asdict().items() if isinstance(value, Tensor)
    }
    return batch._replace(frame=frame, **tensors)


def _shapes(batch: Batch) -> tuple[torch.Size, ...]:
    return tuple(one.shape for one in (*batch, *batch.frame) if isinstance(one, Tensor))


def _copy(into: Batch, batch: Batch) -> None:
    for target, source in zip((*into, *into.frame), (*batch, *batch.frame), strict=True):
        if isinstance(target, Tensor) and isinstance(source, Tensor):
            target.copy_(source)
