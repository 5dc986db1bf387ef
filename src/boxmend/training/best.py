"""The weights of the epoch with the best score, kept in the folder of a run until it ends.

The name of their file has the step, and the checkpoint says which step is the best. A kill between
writing the two therefore leaves the old checkpoint with its file.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import open_atomic
from boxmend.detector import Detector, save

CHOSEN_BY = "voc_ap50_area"


class BestEpoch:
    """The best epoch so far: its step, scores and weights."""

    def __init__(
        self,
        run: Path,
        score: Callable[[Detector, Callable[[], None]], Mapping[str, float]],
        metadata: Mapping[str, str] | None = None,
    ):
        """Keep the function that scores a detector, and the metadata of the file of weights."""
        self._run = run
        self._score = score
        self._metadata = metadata
        self.step: int | None = None
        self.scores: dict[str, float] = {}

    def consider(self, detector: Detector, step: int, check: Callable[[], None]) -> dict[str, Any]:
        """Score the detector after an epoch and keep it if it is the best; return log figures.

        `check` is called repeatedly during the scoring, and may raise to interrupt it.
        """
        scores = dict(self._score(detector, check))
        if _rank(scores) >= _rank(self.scores):  # of equal epochs, the later one
            save(detector, self._file(step), self._metadata)
            self.step, self.scores = step, scores
        return {f"val_{name}": value for name, value in scores.items()} | {"best_step": self.step}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"step": self.step, "scores": dict(self.scores)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the result of `state`."""
        self.step, self.scores = state["step"], dict(state["scores"])

    def remove_old_weights(self) -> None:
        """Remove the files of weights that no checkpoint needs."""
        kept = None if self.step is None else self._file(self.step)
        remove_candidates(self._run, kept)

    def write_weights(self, path: Path) -> None:
        """Write the best weights to a file; `consider` must have been called."""
        assert self.step is not None
        with open_atomic(path) as file:
            file.write(self._file(self.step).read_bytes())

    def _file(self, step: int) -> Path:
        return self._run / f"best-{step}.safetensors"


def _rank(scores: Mapping[str, float]) -> float:
    """Return the score that epochs are compared by; -inf if there is none."""
    value = scores.get(CHOSEN_BY, math.nan)
    return -math.inf if math.isnan(value) else value


def remove_candidates(run: Path, kept: Path | None = None) -> None:
    """Remove the weights of all candidates for the best epoch, except `kept`."""
    for path in run.glob("best-*.safetensors"):
        if path != kept:
            path.unlink()
