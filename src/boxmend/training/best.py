"""The weights of the pass that scored best, kept beside a run until it ends.

Their file carries the step in its name and the checkpoint says which one counts, so that a kill
between the two leaves the old file and the old checkpoint together.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import open_atomic
from boxmend.detector import Detector, save

CHOSEN_BY = "voc_ap50_area"


class BestEpoch:
    """What is known of the best pass so far."""

    def __init__(
        self,
        run: Path,
        score: Callable[[Detector, Callable[[], None]], Mapping[str, float]],
        metadata: Mapping[str, str] | None = None,
    ):
        """Take what scores a detector, and what the file of its weights is to say besides."""
        self._run = run
        self._score = score
        self._metadata = metadata
        self.step: int | None = None
        self.scores: dict[str, float] = {}

    def consider(self, detector: Detector, step: int, check: Callable[[], None]) -> dict[str, Any]:
        """Score the detector after a pass and keep it if none was better; returns log figures.

        `check` is called while it scores, and may raise to break it off.
        """
        scores = dict(self._score(detector, check))
        if _rank(scores) >= _rank(self.scores):  # of two equal ones, the one that trained longer
            save(detector, self._file(step), self._metadata)
            self.step, self.scores = step, scores
        return {f"val_{name}": value for name, value in scores.items()} | {"best_step": self.step}

    def state(self) -> dict[str, Any]:
        """What a checkpoint has to hold."""
        return {"step": self.step, "scores": dict(self.scores)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.step, self.scores = state["step"], dict(state["scores"])

    def tidy(self) -> None:
        """Remove the files that no checkpoint needs any more."""
        kept = None if self.step is None else self._file(self.step)
        remove_candidates(self._run, kept)

    def put(self, path: Path) -> None:
        """Write the best weights to a file; some pass must have been considered."""
        assert self.step is not None
        with open_atomic(path) as file:
            file.write(self._file(self.step).read_bytes())

    def _file(self, step: int) -> Path:
        return self._run / f"best-{step}.safetensors"


def _rank(scores: Mapping[str, float]) -> float:
    """The score to choose by; below all others where there is none."""
    value = scores.get(CHOSEN_BY, math.nan)
    return -math.inf if math.isnan(value) else value


def remove_candidates(run: Path, kept: Path | None = None) -> None:
    """Remove the weights of a run that were candidates for the best ones, but for `kept`."""
    for path in run.glob("best-*.safetensors"):
        if path != kept:
            path.unlink()
