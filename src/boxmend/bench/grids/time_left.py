"""Estimate how long a grid will take, from finished cells and the epochs of running cells.

Methods differ in speed. A running cell with finished epochs therefore keeps its own speed; any
other cell takes the mean time per epoch.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """The progress and the speed of a running cell."""

    epochs: int
    seconds: float
    """Running time so far, over all tries."""
    epochs_done: int = 0
    seconds_at_epoch: float = 0.0
    """The value of `seconds` when the last finished epoch was first seen."""

    @property
    def seconds_per_epoch(self) -> float | None:
        """Return the seconds per epoch; None before the first epoch is done."""
        if self.epochs_done <= 0 or self.seconds_at_epoch <= 0:
            return None
        return self.seconds_at_epoch / self.epochs_done

    def seconds_left(self, mean: float) -> float:
        """Return the seconds to the end, at `mean` seconds per epoch if its own are unknown.

        At least the epochs after the current one are left, however long this one takes.
        """
        own = self.seconds_per_epoch or mean
        following = self.epochs - self.epochs_done - 1
        return max(own * self.epochs - self.seconds, own * following, 0.0)


def seconds_left(
    done: Sequence[float], running: Sequence[Pace], waiting: Sequence[int], slots: int
) -> float | None:
    """Return the seconds until all cells are over; None while no speed is known.

    `done` has the seconds per epoch of finished cells, `waiting` the epochs of cells that have not
    started. Each of these takes the slot that becomes free first.
    """
    own = (pace.seconds_per_epoch for pace in running)
    known = [*done, *(seconds for seconds in own if seconds is not None)]
    if not known:
        return None
    mean = sum(known) / len(known)
    ends = [pace.seconds_left(mean) for pace in running]
    ends += [0.0] * max(slots - len(ends), 0)
    heapq.heapify(ends)
    for epochs in waiting:
        heapq.heapreplace(ends, ends[0] + mean * epochs)
    return max(ends) or None
