"""What a settlement changes in a dataset, as far as the user wants it changed, and why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.fixes.choosing import KIND_OF_WORD, check_precision
from boxmend.data.boxes import overlaps
from boxmend.data.dataset import Dataset, Note
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError
from boxmend.runs.settling import Settlement

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
class Changes:
    """The annotations that change, in the order of the dataset, one row each."""

    rows: Rows  # [c] of the dataset
    is_relabelled: Mask  # [c]
    is_moved: Mask  # [c]
    is_discarded: Mask  # [c] dropped or marked
    labels: Rows  # [c] new
    boxes: Floats  # [c, 4] new
    iou: Floats  # [c] of the old box with the new one
    confidences: Floats  # [c] NaN where the method has none
    reasons: list[str]  # [c]

    def __len__(self) -> int:
        return len(self.rows)


def decide(dataset: Dataset, settlement: Settlement, settings: ApplySettings) -> Changes:
    """Choose what changes: fields that are asked for, where the confidence suffices."""
    is_relabelled = (settlement.labels != dataset.labels) & settings.wants("labels")
    is_relabelled &= _suffices(settlement.label_confidences, settings.min_confidence)
    is_moved = (settlement.num_moved > 0) & settings.wants("boxes")
    is_moved &= _suffices(settlement.box_confidences, settings.min_confidence)
    is_discarded = settlement.is_unsure & (settings.discarded != "keep")
    if settings.discarded == "drop":
        is_moved &= ~is_discarded
    rows = np.flatnonzero(is_relabelled | is_moved | is_discarded)
    old = dataset.boxes[rows]
    labels = np.where(is_relabelled, settlement.labels, dataset.labels)[rows]
    boxes = np.where(is_moved[rows, None], settlement.boxes[rows], old)
    by_label = (is_relabelled | is_discarded)[rows]
    changes = Changes(
        rows=rows,
        is_relabelled=is_relabelled[rows],
        is_moved=is_moved[rows],
        is_discarded=is_discarded[rows],
        labels=labels,
        boxes=boxes,
        iou=overlaps(old, boxes),
        confidences=np.where(
            by_label, settlement.label_confidences[rows], settlement.box_confidences[rows]
        ),
        reasons=[],
    )
    changes.reasons.extend(_reasons(dataset, settlement, changes, settings.discarded))
    return changes


def default_changes(dataset: Dataset, settlement: Settlement) -> Changes:
    """Return the changes that `apply` writes without any option."""
    return decide(dataset, settlement, ApplySettings())


def mended(dataset: Dataset, changes: Changes, format: str, discarded: str) -> Dataset:
    """A copy of a dataset with the changes made and a note for every one of them."""
    labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
    labels[changes.rows], boxes[changes.rows] = changes.labels, changes.boxes
    flags: dict[str, Any] = {}
    if discarded == "mark":
        column = _marked_by(format)
        flags[column] = getattr(dataset, column).copy()
        flags[column][changes.rows[changes.is_discarded]] = True
    ids = dataset.annotation_ids[changes.rows].tolist()
    notes = {**dataset.notes, **dict(zip(ids, _notes(changes), strict=True))}
    copy = replace(dataset, labels=labels, boxes=boxes, notes=notes, **flags)
    if discarded != "drop":
        return copy
    is_left = np.ones(len(dataset), np.bool_)
    is_left[changes.rows[changes.is_discarded]] = False
    return copy.take(is_left)


def _marked_by(format: str) -> str:
    """The column by which a format marks an annotation; a UsageError where it cannot."""
    if format not in MARKS:
        raise UsageError(
            f"{format.upper()} has no flag to mark discarded annotations by; pass "
            "--discarded keep or drop, or write another format by --to"
        )
    return MARKS[format]


def _suffices(confidences: Floats, least: float) -> Mask:
    """Whether confidences reach a limit; one that is not known reaches none but zero."""
    suffices: Mask = confidences >= least  # not so for NaN
    return suffices if least > 0 else np.ones(len(confidences), np.bool_)


def _notes(changes: Changes) -> list[Note]:
    confidences = changes.confidences.tolist()
    return [
        {"confidence": None if math.isnan(number) else round(number, 4), "reason": reason}
        for number, reason in zip(confidences, changes.reasons, strict=True)
    ]


def _reasons(
    dataset: Dataset, settlement: Settlement, changes: Changes, discarded: str
) -> list[str]:
    names = dataset.label_names
    done = "dropped" if discarded == "drop" else "marked"
    reasons = []
    for k, row in enumerate(changes.rows.tolist()):
        old, new = names[dataset.labels[row]], names[changes.labels[k]]
        votes = settlement.votes(row)
        parts = []
        if changes.is_relabelled[k]:
            parts.append(f"label: {new} instead of {old} {votes}")
        if changes.is_discarded[k]:
            parts.append(f"{done}: unsure of {old} {votes}")
        if changes.is_moved[k]:
            number = settlement.num_moved[row]
            parts.append(f"box: mean of {number} visit{'s' if number > 1 else ''}")
        reasons.append("; ".join(parts))
    return reasons
