"""The session: the fixes of a run, the verdicts on them, and the figures about both.

Verdicts are written to the file of the run before the page gets them. The session also reads
verdicts that other processes write to this file.
"""

import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from boxmend.auditing.fixes.choosing import (
    DEFAULT_PRECISION,
    ChosenFixes,
    choose_fixes,
    measure_precision,
)
from boxmend.auditing.fixes.table import BOX_DECIMALS, Fixes, Kind
from boxmend.auditing.fixes.verdicts import (
    SKIP,
    VERDICTS_FILE,
    Verdict,
    append_verdicts,
    latest_verdicts,
    read_verdicts,
)
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Floats
from boxmend.errors import UsageError

NUM_DOUBTFUL = 200  # fixes per request; the page requests new ones as verdicts come in
FULL_GAIN_IOU = 0.5  # a box that gains so much counts as much as a right label
MIN_GAIN = 0.2  # of a verdict that is worth the effort: it corrects one fix in five
SAME_BOX_PIXELS = 0.001
MAX_OUTSIDE_PIXELS = 1.0  # a box may exceed its image by rounding


class Answer(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An answer of the page about one fix; it has only numbers and fixed words."""

    row: int
    answer: Literal["accept", "reject", "skip", "undo"]
    label: int | None = None
    box: tuple[float, float, float, float] | None = None
    mode: Literal["queue", "sample", "doubtful", "pattern"] = "queue"


class Posted(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A request of the page: the number of verdicts that it knows, and new answers."""

    seen: int
    verdicts: list[Answer]


class ReviewSession:
    """The fixes of a run under review; safe to use from several threads."""

    def __init__(
        self, run_path: Path, dataset: Dataset, fixes: Fixes, who: str | None = None
    ) -> None:
        self.run_path, self.dataset, self.fixes = run_path, dataset, fixes
        self._who = who
        self._row_of = {fix: row for row, fix in enumerate(fixes.ids)}
        self._label_of = {name: label for label, name in enumerate(dataset.label_names)}
        self._lock = threading.RLock()
        self._size = 0
        self._verdicts: list[Verdict] = []
        self._of_fix: dict[str, list[Verdict]] = {}
        self._latest: dict[str, Verdict] = {}
        self._chosen: ChosenFixes | None = None
        self._figures: dict[str, Any] | None = None
        self.num_given = 0  # verdicts of this session, including undone ones
        self._catch_up()

    def decide(self, answers: Sequence[Answer]) -> None:
        """Write the answers in one write; raise a UsageError for an invalid answer."""
        verdicts = [self._verdict(answer) for answer in answers]
        with self._lock:
            self._catch_up()
            # If others write in between, the file is longer, and the next call reads it again.
            self._size += append_verdicts(self.run_path, verdicts)
            self._add(verdicts)
            self.num_given += len(verdicts)

    def news(self, seen: int) -> dict[str, Any]:
        """Return the state of the fixes with verdicts after the first `seen`, and the figures."""
        with self._lock:
            self._catch_up()
            is_reset = not 0 < seen <= len(self._verdicts)
            since = self._verdicts[0 if is_reset else seen :]
            fixes = dict.fromkeys(verdict.fix for verdict in since)
            states = [self._state_of(fix) for fix in fixes if fix in self._row_of]
            return {
                "seen": len(self._verdicts),
                "is_reset": is_reset,
                "verdicts": states,
                "figures": self.figures(),
            }

    def figures(self) -> dict[str, Any]:
        """Return the progress, the fixes that `apply` would make, and the measured precision."""
        with self._lock:
            if self._figures is None:
                self._figures = self._compute_figures()
            return self._figures

    def _compute_figures(self) -> dict[str, Any]:
        chosen = self._choose()
        verdicts = [verdict for fix, verdict in self._latest.items() if fix in self._row_of]
        measured = measure_precision(self.fixes, self._verdicts)
        return {
            "number": len(self.fixes),
            "decided": len(verdicts),
            "accepted": sum(
                verdict.answer == "accept" and verdict.is_plain for verdict in verdicts
            ),
            "changed": sum(not verdict.is_plain for verdict in verdicts),
            "rejected": sum(verdict.answer == "reject" for verdict in verdicts),
            "precision": DEFAULT_PRECISION,
            "taken": len(chosen.rows),
            "expected": chosen.expected_precision,
            "left": chosen.num_left,
            "likely": chosen.num_likely,
            "remaining": self._expect_errors(chosen),
            "min_gain": MIN_GAIN,
            "worthwhile": int((self._expect_gains(chosen) >= MIN_GAIN).sum()),
            "measured": {name: list(interval) for name, interval in measured.items()},
        }

    def doubtful(self) -> list[int]:
        """Return the open fixes that are most useful to decide on, the best first.

        A verdict on a fix that `apply` would not make adds a repair if the fix is right; a verdict
        on one that it would make prevents harm if the fix is wrong. Both are most probable next to
        the threshold. Box fixes count by their gain.
        """
        with self._lock:
            gains = self._expect_gains(self._choose())
        order = np.argsort(-gains, kind="stable")
        rows: list[int] = order[gains[order] >= 0][:NUM_DOUBTFUL].tolist()
        return rows

    def probabilities(self) -> list[float]:
        """Return the probability that each fix is right, adjusted to the verdicts."""
        with self._lock:
            chosen = self._choose()
        rounded: list[float] = np.round(chosen.p_fix, 4).tolist()
        return rounded

    def _expect_gains(self, chosen: ChosenFixes) -> Floats:
        """Return the expected benefit of a verdict on each fix; -1 for decided ones. [f]"""
        is_open = np.array([fix not in self._latest for fix in self.fixes.ids], np.bool_)
        is_taken = np.zeros(len(self.fixes), np.bool_)
        is_taken[chosen.rows] = True
        p_corrects = np.where(is_taken, 1 - chosen.p_fix, chosen.p_fix)
        gains: Floats = np.where(is_open, p_corrects * effects(self.fixes), -1.0)
        return gains

    def _expect_errors(self, chosen: ChosenFixes) -> dict[str, float]:
        """Return how many errors of the table `apply` is expected to leave, and to make."""
        taken = chosen.p_fix[chosen.rows]
        return {
            "left": float(chosen.p_wrong[chosen.is_left].sum()),
            "made": float((1 - taken).sum()),
        }

    def _choose(self) -> ChosenFixes:
        if self._chosen is None:
            self._chosen = choose_fixes(self.fixes, self._latest, DEFAULT_PRECISION)
        return self._chosen

    def _verdict(self, answer: Answer) -> Verdict:
        if not 0 <= answer.row < len(self.fixes):
            raise UsageError(f"there is no fix {answer.row}; reload the page")
        label = answer.label
        if label is not None and not 0 <= label < len(self.dataset.label_names):
            raise UsageError(f"there is no class {label}; reload the page")
        if answer.box is not None:
            self._check_box(answer.row, answer.box)
        if label == self.fixes.new_labels[answer.row]:
            label = None  # the proposed class
        try:
            return Verdict(
                fix=self.fixes.ids[answer.row],
                answer=answer.answer,
                label=None if label is None else self.dataset.label_names[label],
                box=None if self._is_proposed(answer.row, answer.box) else answer.box,
                who=self._who,
                when=datetime.now(UTC).isoformat(timespec="seconds") if self._who else None,
                mode=answer.mode,
            )
        except ValueError as error:
            raise UsageError(str(error)) from error

    def _is_proposed(self, row: int, box: Sequence[float] | None) -> bool:
        """Return whether a box is the proposed one, such as after an edge was moved back."""
        proposed = self.fixes.new_boxes[row].round(BOX_DECIMALS)  # as the page has it
        return box is not None and bool(np.abs(proposed - box).max() < SAME_BOX_PIXELS)

    def _check_box(self, row: int, box: Sequence[float]) -> None:
        image = int(self.fixes.image_rows[row])
        width, height = self.dataset.images.widths[image], self.dataset.images.heights[image]
        limits = (width or np.inf, height or np.inf) * 2
        is_inside = all(
            -MAX_OUTSIDE_PIXELS <= side <= limit + MAX_OUTSIDE_PIXELS
            for side, limit in zip(box, limits, strict=True)
        )
        x1, y1, x2, y2 = np.clip(box, 0, limits).round(BOX_DECIMALS).tolist()  # as it is written
        if not (is_inside and x1 < x2 and y1 < y2):
            raise UsageError(f"the box {list(box)} is outside the image, or has no area")

    def _state_of(self, fix: str) -> dict[str, Any]:
        """Return the latest verdict on a fix; without one, whether it was skipped."""
        verdict = self._latest.get(fix)
        lines = self._of_fix[fix]
        row = self._row_of[fix]
        if verdict is None:
            is_skipped = lines[-1].answer == SKIP
            return {"row": row, "answer": SKIP if is_skipped else None, "mode": lines[-1].mode}
        label = verdict.label
        return {
            "row": row,
            "answer": verdict.answer,
            "label": None if label is None else self._label_of.get(label, UNKNOWN),
            "box": verdict.box,
            "mode": verdict.mode,
        }

    def _catch_up(self) -> None:
        """Read the file again if others have changed it."""
        size = self._size_now()
        if size == self._size:
            return
        verdicts = read_verdicts(self.run_path)
        self._verdicts, self._of_fix, self._latest = [], {}, {}
        self._add(verdicts)
        self._size = size

    def _add(self, verdicts: Iterable[Verdict]) -> None:
        self._chosen = self._figures = None
        changed = dict[str, None]()  # fixes in the order of the verdicts
        for verdict in verdicts:
            self._verdicts.append(verdict)
            self._of_fix.setdefault(verdict.fix, []).append(verdict)
            changed[verdict.fix] = None
        for fix in changed:
            self._latest.pop(fix, None)
            self._latest |= latest_verdicts(self._of_fix[fix])

    def _size_now(self) -> int:
        try:
            return (self.run_path / VERDICTS_FILE).stat().st_size
        except OSError:
            return 0


def effects(fixes: Fixes) -> Floats:
    """Return the benefit [f] of each fix if it is right: 1, or for a box its gain, 0 to 1."""
    gains = np.clip(np.nan_to_num(fixes.iou_gain) / FULL_GAIN_IOU, 0, 1)
    worth: Floats = np.where(fixes.kinds == Kind.BAD_BOX, gains, 1.0)
    return worth
