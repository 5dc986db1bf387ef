"""Audit a dataset in Python: the fixes and rates as tables, and the repaired dataset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmend.auditing.audit import Audit, AuditSettings
from boxmend.auditing.calibration import Share
from boxmend.auditing.completed import (
    AnyPredictions,
    CompletedAudit,
    complete_audit,
    summarise_audit,
)
from boxmend.auditing.fixes.choosing import DEFAULT_PRECISION
from boxmend.auditing.fixes.table import Kind, to_shown_table
from boxmend.auditing.folders import AuditFolder, write_audit
from boxmend.data.dataset import Dataset
from boxmend.data.formats.writing import native_format
from boxmend.data.table import Table, make_table
from boxmend.errors import UsageError
from boxmend.repair.changes import ApplySettings
from boxmend.repair.from_fixes import changes_from_table
from boxmend.repair.mended import MendedDataset, make_mended
from boxmend.repair.showing import draw_fix

if TYPE_CHECKING:
    from PIL.Image import Image

KIND_OF_RATE = {
    "wrong_labels": Kind.WRONG_LABEL,
    "bad_boxes": Kind.BAD_BOX,
    "missing": Kind.MISSING,
    "spurious": Kind.SPURIOUS,
    "duplicates": Kind.DUPLICATE,
}
KINDS = tuple(kind.words for kind in Kind)
MAX_NOTES = 2  # in `repr`, which has at most ten lines
MAX_NOTE_CHARACTERS = 100


def audit(
    dataset: Dataset, predictions: AnyPredictions, settings: AuditSettings | None = None
) -> AuditResult:
    """Audit the annotations of a dataset with the predictions of a detector, and propose fixes.

    `predictions` are `Predictions`, or the path of a file or folder of predictions, or several
    paths. The detector should not have been trained on these annotations.
    """
    return AuditResult(complete_audit(dataset, predictions, settings))


class AuditResult:
    """The result of an audit in memory: proposed fixes, estimated rates, and the repaired dataset.

    `columns` has the same result as NumPy columns by rows of the dataset, with the probability of
    each kind of error for every annotation.
    """

    def __init__(self, completed: CompletedAudit) -> None:
        self._completed = completed

    @property
    def dataset(self) -> Dataset:
        """The audited dataset."""
        return self._completed.dataset

    @property
    def columns(self) -> Audit:
        """The result as NumPy columns by rows of the dataset."""
        return self._completed.audit

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the predictions, and warnings."""
        return self._completed.notes

    @cached_property
    def fixes(self) -> Table:
        """The proposed fixes, the most probable ones first; select some by `filter(kind=...)`."""
        table = to_shown_table(self.dataset, self.columns.fixes)
        return Table(table, "fixes", {"kind": KINDS})

    @cached_property
    def rates(self) -> Table:
        """The estimated rate of each kind of error, with a 95% interval."""
        rates = {KIND_OF_RATE[name].words: share for name, share in self.columns.rates.items()}
        shares = list(rates.values())
        columns = {
            "kind": list(rates),
            "rate": [share.value for share in shares],
            "low": [share.low for share in shares],
            "high": [share.high for share in shares],
        }
        return make_table(columns, "rates", {"kind": KINDS})

    def show(self, fix: int | str, *, side: int = 480) -> Image:
        """Return a picture of a fix, before and after, for notebooks.

        `fix` is a row of `fixes`, or the id of a fix. Each half has a long side of `side` pixels.
        """
        return draw_fix(self.dataset, self.columns.fixes, self._find_row(fix), side)

    def mended(
        self, precision: float = DEFAULT_PRECISION, *, only: str | Sequence[str] | None = None
    ) -> MendedDataset:
        """Return the dataset with the largest set of fixes that has this expected precision.

        `only` names kinds: "labels", "boxes", "missing", "spurious", "duplicates", or several.
        """
        settings = ApplySettings(only=only, precision=precision)
        changes = changes_from_table(
            self.columns.fixes, {}, self.dataset, settings, Path("the audit")
        )
        return make_mended(self.dataset, changes, native_format(self.dataset))

    def save(self, out: str | Path) -> AuditFolder:
        """Write the audit to a new or empty folder, for `boxmend review`, `apply` and `export`.

        These commands need `--data` if the dataset was not loaded from files as it is.
        """
        sources = {source.group: source for source in self.dataset.sources}
        addresses = [source.address or str(source.path) for source in sources.values()]
        images = next((source.images_folder for source in sources.values()), None)
        return write_audit(self._completed, out, addresses, images=images)

    def to_json(self) -> dict[str, Any]:
        """Return counts, rates, results of the probe and notes as plain data."""
        return summarise_audit(self.columns, len(self.dataset), "predictions", self.notes)

    def __repr__(self) -> str:
        counts = np.bincount(self.columns.fixes.kinds, minlength=len(Kind)).tolist()
        lines = [
            f"  {KIND_OF_RATE[name].words}: {_percent(share)}, "
            f"{counts[KIND_OF_RATE[name]]:,} proposed fixes"
            for name, share in self.columns.rates.items()
        ]
        num_images = len(self.dataset.images)
        head = f"AuditResult: {self.columns.num_judged:,} annotations in {num_images:,} images"
        notes = [f"  {_shorten(note)}" for note in self.notes[:MAX_NOTES]]
        hidden = len(self.notes) - MAX_NOTES
        more = [f"  {hidden} more in `notes`"] if hidden > 0 else []
        return "\n".join([head, *lines, *notes, *more])

    def _repr_html_(self) -> str:
        """Return the notes, the rates and the first fixes as HTML, for notebooks."""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return notes + self.rates._repr_html_() + self.fixes._repr_html_()

    def _find_row(self, fix: Any) -> int:
        """Return the row of a fix; raise a UsageError if there is no such fix."""
        ids = self.columns.fixes.ids
        if not ids:
            raise UsageError(f"fix is {fix!r}, but the audit proposes no fix")
        if isinstance(fix, str):
            if fix in ids:
                return ids.index(fix)
            raise UsageError(f"fix is {fix!r}, which is not an id; see fixes['fix']")
        is_row = isinstance(fix, int | np.integer) and not isinstance(fix, bool)
        if not is_row or not -len(ids) <= fix < len(ids):
            raise UsageError(f"fix is {fix!r}; expected a row from 0 to {len(ids) - 1}, or an id")
        return int(fix) % len(ids)


def _shorten(note: str) -> str:
    line = " ".join(note.split())
    return line if len(line) <= MAX_NOTE_CHARACTERS else f"{line[: MAX_NOTE_CHARACTERS - 1]}…"


def _percent(share: Share) -> str:
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"
