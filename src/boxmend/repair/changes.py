"""What changes in a dataset and why, whatever it comes from, and the dataset with it changed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import KIND_OF_WORD, check_precision
from boxmend.auditing.fixes.table import Fixes
from boxmend.data.dataset import Dataset, Note
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError

FIELDS = ("labels", "boxes")  # that a settlement knows of; fixes know more
DISCARDED = ("keep", "drop", "mark")
MARKS = {"coco": "is_crowd", "voc": "is_difficult"}  # the column that says: do not learn from this


@dataclass(frozen=True)
class ApplySettings:
    """What to write: of a settlement, or, where a precision is wanted, of the fixes of an audit."""

    only: str | Sequence[str] | None = None
    """What is mended: "labels", "boxes", of fixes also "missing", "spurious", "duplicates", or
    several, also as "labels,boxes". All by default."""
    min_confidence: float = 0.0
    """Least mean confidence in the label: of a new label, or of the object whose box moves."""
    discarded: str = "keep"
    """Annotations whose label is doubted while no other was found: "keep", "drop" or "mark"."""
    precision: float | None = None
    """Take the largest set of fixes that are right so often, by expectation; 0.95 for audits."""

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
        unknown = [word for word in self.only or () if word not in KIND_OF_WORD]
        if unknown or not self.only:
            said = repr(unknown[0]) if unknown else "empty"
            raise UsageError(
                f"only is {said}; expected labels, boxes, or labels,boxes; of audits also "
                "missing, spurious, duplicates"
            )

    def wants(self, word: str) -> bool:
        """Whether this is to be mended."""
        return self.only is None or word in self.only

    @property
    def is_about_visits(self) -> bool:
        """Whether something is asked for that only settled visits have."""
        return self.min_confidence > 0 or self.discarded != "keep"

    def check_for_fixes(self) -> None:
        """Raise a UsageError for what does not apply to fixes."""
        if self.is_about_visits:
            raise UsageError(
                "--min-confidence and --discarded are about settled visits and do not apply to "
                "the fixes of an audit; --precision and --only say which of them to take"
            )

    def check_for_settling(self) -> None:
        """Raise a UsageError for what visits alone do not tell."""
        beyond = [word for word in self.only or () if word not in FIELDS]
        if beyond:
            raise UsageError(
                f"only is {beyond[0]!r}, which the visits of a training do not tell; "
                "`boxmend audit RUN` finds it out, then apply with --precision"
            )


@dataclass(frozen=True, eq=False)
class TakenFixes:
    """The fixes of an audit that are made, as people answered them."""

    fixes: Fixes  # [t] with people's labels and boxes, and probabilities after the verdicts
    is_accepted: Mask  # [t] by people
    is_removal: Mask  # [t] the annotation goes; not so where people gave it a label or a box
    expected_precision: float | None
    num_left: int  # for review
    num_stale: int  # verdicts on fixes that the table does not have


@dataclass(frozen=True, eq=False)
class Changes:
    """The annotations that change, one row each: those of the dataset in order, then added ones."""

    rows: Rows  # [c] of the dataset; from its length on, of annotations that are added
    image_rows: Rows  # [c] of the dataset's images
    is_relabelled: Mask  # [c]
    is_moved: Mask  # [c]
    is_discarded: Mask  # [c] dropped or marked
    labels: Rows  # [c] new
    boxes: Floats  # [c, 4] new
    iou: Floats  # [c] of the old box with the new one
    confidences: Floats  # [c] NaN where the method has none
    reasons: list[str]  # [c]
    discarded: str  # what is done with discarded ones: "drop", "mark", or "keep" if there are none
    num_judged: int  # annotations of the dataset whose label was judged
    num_unsure: int = 0  # of these discarded by a training, whatever is done with them
    taken: TakenFixes | None = None  # where the changes come from an audit

    def __len__(self) -> int:
        return len(self.rows)


def mend(dataset: Dataset, changes: Changes, format: str) -> Dataset:
    """Return a copy of a dataset with the changes made and a note for every one of them."""
    is_new = changes.rows >= len(dataset)
    # Added before any is dropped, so that the id of a dropped one is not given anew.
    larger = dataset.add(changes.image_rows[is_new], changes.labels[is_new], changes.boxes[is_new])
    labels, boxes = larger.labels.copy(), larger.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    flags: dict[str, Any] = {}
    if changes.discarded == "mark":
        column = _marked_by(format)
        flags[column] = getattr(larger, column).copy()
        flags[column][changes.rows[changes.is_discarded]] = True
    ids = larger.annotation_ids[changes.rows].tolist()
    notes = {**dataset.notes, **dict(zip(ids, _notes(changes), strict=True))}
    copy = replace(larger, labels=labels, boxes=boxes, notes=notes, **flags)
    if changes.discarded != "drop":
        return copy
    is_left = np.ones(len(larger), np.bool_)
    is_left[changes.rows[changes.is_discarded]] = False
    return copy.take(is_left)


def _marked_by(format: str) -> str:
    """Return the column by which a format marks an annotation; a UsageError where it cannot."""
    if format not in MARKS:
        raise UsageError(
            f"{format.upper()} has no flag to mark discarded annotations by; pass "
            "--discarded keep or drop, or write another format by --to"
        )
    return MARKS[format]


def _notes(changes: Changes) -> list[Note]:
    confidences = changes.confidences.tolist()
    return [
        {"confidence": None if math.isnan(number) else round(number, 4), "reason": reason}
        for number, reason in zip(confidences, changes.reasons, strict=True)
    ]
