"""How long a grid will take, by cells that are done and by the passes of those that run.

Methods take their time differently, so a cell that has done passes is judged by its own pace. One
that has not, or waits, takes as long for a pass as the others do on average.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """How fast a cell in progress is."""

    epochs: int
    seconds: float
    """So far, over all tries."""
    passes: int = 0
    """That are done."""
    at: float = 0.0
    """What `seconds` was when the last of these passes was first known to be done."""

    @property
    def a_pass(self) -> float | None:
        """Seconds that a pass takes; None before the first one is done."""
        return self.at / self.passes if self.passes > 0 and self.at > 0 else None

    def rest(self, usual: float) -> float:
        """Seconds to its end, where a pass of others takes `usual`; what is left to do counts."""
        own = self.a_pass or usual
        return max(own * self.epochs - self.seconds, own * (self.epochs - self.passes - 1), 0.0)


def seconds_left(
    done: Sequence[float], running: Sequence[Pace], waiting: Sequence[int], slots: int
) -> float | None:
    """Give the seconds until all cells are over; None while nothing tells.

    `done` are seconds of a pass of cells that are done, `waiting` the passes of those not begun,
    which take the first of the slots that is free.
    """
    told = [*done, *(pace.a_pass for pace in running if pace.a_pass is not None)]
    if not told:
        return None
    usual = sum(told) / len(told)
    ends = [pace.rest(usual) for pace in running]
    ends += [0.0] * max(slots - len(ends), 0)
    heapq.heapify(ends)
    for epochs in waiting:
        heapq.heapreplace(ends, ends[0] + usual * epochs)
    return max(ends) or None
