"""The changes of a dataset with their reasons, and a function that makes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import KINDS_BY_OPTION, check_precision
from boxmend.auditing.fixes.table import Fixes
from boxmend.data.dataset import Dataset, Note
from boxmend.data.describing import describe
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError

SETTLED_FIELDS = ("labels", "boxes")  # fixes have more kinds
DISCARDED = ("keep", "drop", "mark")
MARK_COLUMNS = {"coco": "is_crowd", "voc": "is_difficult"}  # exclude from training


@dataclass(frozen=True)
class ApplySettings:
    """The choice of changes: of a training's visits or, with a precision, of fixes."""

    only: str | Sequence[str] | None = None
    """Kinds of changes: "labels", "boxes", for fixes also "missing", "spurious", "duplicates", or
    several, like "labels,boxes". By default all."""
    min_confidence: float = 0.0
    """Minimum mean confidence in the label: the new one, or that of the object whose box moves."""
    discarded: str = "keep"
    """What to do with annotations whose label is doubtful: "keep", "drop" or "mark"."""
    precision: float | None = None
    """Take the largest set of fixes with this expected precision; 0.95 for audits."""

    def __post_init__(self) -> None:
        if self.only is not None:
            words = self.only.split(",") if isinstance(self.only, str) else self.only
            object.__setattr__(self, "only", tuple(word.strip() for word in words))
            self._check_only()
        number = self.min_confidence
        if not isinstance(number, int | float) or not 0 <= number <= 1:
            raise UsageError(
                f"min_confidence is {number!r}; expected a number from 0 to 1, like 0.9"
            )
        if self.discarded not in DISCARDED:
            raise UsageError(f"discarded is {self.discarded!r}; expected {' or '.join(DISCARDED)}")
        check_precision(self.precision)
        if self.precision is not None:
            self.check_for_fixes()

    def _check_only(self) -> None:
        unknown = [word for word in self.only or () if word not in KINDS_BY_OPTION]
        if unknown or not self.only:
            value = repr(unknown[0]) if unknown else "empty"
            raise UsageError(
                f"only is {value}; expected labels, boxes, or labels,boxes; of audits also "
                "missing, spurious, duplicates"
            )

    def wants(self, word: str) -> bool:
        """Return whether changes of this kind are made."""
        return self.only is None or word in self.only

    @property
    def needs_visits(self) -> bool:
        """Return whether an option is set that applies to visits of a training only."""
        return self.min_confidence > 0 or self.discarded != "keep"

    def check_for_fixes(self) -> None:
        """Raise a UsageError for options that do not apply to fixes."""
        if self.needs_visits:
            raise UsageError(
                "--min-confidence and --discarded apply to the visits of a training, not to fixes; "
                "choose fixes by --precision and --only"
            )

    def check_for_settling(self) -> None:
        """Raise a UsageError for kinds of changes that a ledger does not have."""
        beyond = [word for word in self.only or () if word not in SETTLED_FIELDS]
        if beyond:
            raise UsageError(
                f"only is {beyond[0]!r}, which the ledger of a training does not have; run "
                "`boxmend audit RUN`, then apply with --precision"
            )


@dataclass(frozen=True, eq=False, repr=False)
class TakenFixes:
    """The fixes that `apply` writes, with the answers of people."""

    __repr__ = describe

    fixes: Fixes  # [t] with people's labels and boxes, and updated probabilities
    is_accepted: Mask  # [t] whether people accepted the fix
    is_removal: Mask  # [t] unless a person gave the annotation a label or a box
    expected_precision: float | None
    num_left: int  # left for review
    num_likely: int  # of those, with an annotation that is more likely wrong than not
    yields: dict[float, dict[str, int]]  # fixes that several precisions take, by kind as text
    num_stale: int  # verdicts on fixes that no longer exist


@dataclass(frozen=True, eq=False, repr=False)
class Changes:
    """The annotations that change, one row each: first those of the dataset, then added ones."""

    __repr__ = describe

    rows: Rows  # [c] of the dataset; added annotations have rows from its length on
    image_rows: Rows  # [c] of the dataset's images
    is_relabelled: Mask  # [c]
    is_moved: Mask  # [c]
    is_discarded: Mask  # [c] dropped or marked
    labels: Rows  # [c] new
    boxes: Floats  # [c, 4] new
    iou: Floats  # [c] of the old box with the new one
    confidences: Floats  # [c] NaN if the method has none
    reasons: list[str]  # [c]
    discarded: str  # what is done with discarded ones: "drop", "mark" or "keep"
    num_judged: int  # annotations whose label was judged
    num_unsure: int = 0  # of these, with a doubtful label
    taken: TakenFixes | None = None  # if the changes come from fixes
    num_planted: int = 0  # annotations that stay since the training saw a planted error there

    def __len__(self) -> int:
        return len(self.rows)


def mend(dataset: Dataset, changes: Changes, format: str) -> Dataset:
    """Return a copy of a dataset with the changes and a note for each of them."""
    is_new = changes.rows >= len(dataset)
    # Add annotations before dropping any, so that the id of a dropped one is not reused.
    larger = dataset.add(changes.image_rows[is_new], changes.labels[is_new], changes.boxes[is_new])
    labels, boxes = larger.labels.copy(), larger.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    flags: dict[str, Any] = {}
    if changes.discarded == "mark":
        column = _mark_column(format)
        flags[column] = getattr(larger, column).copy()
        flags[column][changes.rows[changes.is_discarded]] = True
    ids = larger.annotation_ids[changes.rows].tolist()
    notes = {**dataset.notes, **dict(zip(ids, _notes(changes), strict=True))}
    copy = replace(larger, labels=labels, boxes=boxes, notes=notes, **flags)
    if changes.discarded != "drop":
        return copy
    is_kept = np.ones(len(larger), np.bool_)
    is_kept[changes.rows[changes.is_discarded]] = False
    return copy.take(is_kept)


def _mark_column(format: str) -> str:
    """Return the column that marks an annotation; raise a UsageError if the format has none."""
    if format not in MARK_COLUMNS:
        raise UsageError(
            f"{format.upper()} has no flag for discarded annotations; use --discarded keep or "
            "drop, or write another format by --to"
        )
    return MARK_COLUMNS[format]


def _notes(changes: Changes) -> list[Note]:
    confidences = changes.confidences.tolist()
    return [
        {"confidence": None if math.isnan(number) else round(number, 4), "reason": reason}
        for number, reason in zip(confidences, changes.reasons, strict=True)
    ]
