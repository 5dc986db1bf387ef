"""Record a training step as a CUDA graph and replay it for the following batches.

A step launches thousands of small kernels, and on a fast GPU launching them takes longer than
running them. Shapes never change and nothing waits for the device, so one recording of the launches
serves all steps of an epoch. The next epoch has other estimates and is recorded again.
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from boxmend.training.loader import Batch
from boxmend.training.processes import Processes


class RandomNumbers:
    """The random numbers of a step, which depend on its seed only."""

    def __init__(self, processes: Processes):
        self._processes = processes
        self._generator = torch.Generator(processes.device)
        self._shapes: list[tuple[int, ...]] = []
        self._fixed: list[Tensor] | None = None
        self._place = 0

    def start(self, seed: int) -> None:
        """Start a step with its seed."""
        self._generator.manual_seed(seed)
        self._place = 0
        if self._fixed is None:
            self._shapes.clear()
            return
        for tensor in self._fixed:
            tensor.copy_(self._draw_local(tuple(tensor.shape)))

    def draw(self, shape: torch.Size) -> Tensor:
        """Return the next numbers [B, ...] of this step, uniform in [0, 1)."""
        if self._fixed is not None:
            self._place += 1
            return self._fixed[self._place - 1]
        self._shapes.append(tuple(shape))
        return self._draw_local(tuple(shape))

    def fix(self) -> None:
        """Use the same memory for all later steps, with the shapes of the last step."""
        self._fixed = [self._draw_local(shape) for shape in self._shapes]

    def release(self) -> None:
        """Use new memory for each step again."""
        self._fixed = None

    def _draw_local(self, shape: tuple[int, ...]) -> Tensor:
        """Draw numbers for the whole batch; return those of this process's part."""
        whole = (shape[0] * self._processes.world_size, *shape[1:])
        numbers = torch.rand(whole, generator=self._generator, device=self._processes.device)
        return self._processes.local_part(numbers)


class Replay:
    """A computation on batches that is recorded and replayed within a phase.

    `compute` may read and change tensors in fixed memory of the device. Everything else that it
    does happens during the recording only. The next call overwrites its result.
    """

    def __init__(
        self, compute: Callable[[Batch], Any], keys: RandomNumbers, note: Callable[[str], None]
    ):
        self._compute = compute
        self._keys = keys
        self._note = note
        self._phase: Hashable = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: Batch | None = None
        self._result: Any = None
        self._is_possible = True

    def __call__(self, batch: Batch, phase: Hashable, seed: int) -> Any:
        """Compute on a batch: directly for the first one of a phase, else by replaying.

        A batch with other shapes starts a new phase, since a recording needs the same shapes.
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
        torch.cuda.empty_cache()  # frees the memory of unrecorded steps for the recording
        self._keys.fix()
        self._batch = _clone(batch)
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
            self._note(f"steps are slower: they cannot be recorded as a CUDA graph ({reason})")
            return
        self._graph = graph

    def _forget(self) -> None:
        self._graph = self._batch = self._result = None
        self._keys.release()


def _clone(batch: Batch) -> Batch:
    """Copy the tensors of a batch into new memory; rows on the host are not copied."""
    frame = type(batch.frame)(*(tensor.clone() for tensor in batch.frame))
    tensors: dict[str, Any] = {
        name: value.clone() for name, value in batch._asdict().items() if isinstance(value, Tensor)
    }
    return batch._replace(frame=frame, **tensors)


def _shapes(batch: Batch) -> tuple[torch.Size, ...]:
    return tuple(value.shape for value in (*batch, *batch.frame) if isinstance(value, Tensor))


def _copy(to: Batch, batch: Batch) -> None:
    for target, source in zip((*to, *to.frame), (*batch, *batch.frame), strict=True):
        if isinstance(target, Tensor) and isinstance(source, Tensor):
            target.copy_(source)
