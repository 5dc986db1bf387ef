"""Write a repaired copy of a run's dataset, or restore the original annotations.

`apply` settles the ledger of a training into at most one change per annotation, or takes the fixes
of an audit, and writes the dataset with these changes only. `revert` restores the original bytes in
place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes.run_fixes import ensure_fixes, has_verdicts
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant
from boxmend.data.formats import FORMATS
from boxmend.data.formats.writing import SaveResult, WriteOptions, native_format
from boxmend.data.types import Floats
from boxmend.errors import UsageError
from boxmend.repair.changes import ApplySettings, Changes, TakenFixes
from boxmend.repair.from_fixes import changes_from_fixes
from boxmend.repair.from_visits import changes_from_ledger
from boxmend.repair.mended import make_mended, write_mended
from boxmend.repair.reverting import CHANGES_FILE, PATCH_FILE, revert
from boxmend.runs.folder import Run
from boxmend.runs.opening import is_audit, open_finished_run, read_dataset

__all__ = ["CHANGES_FILE", "PATCH_FILE", "Applied", "ApplySettings", "apply", "revert"]


@dataclass(frozen=True, eq=False, repr=False)
class Applied:
    """The result of `apply`."""

    saved: SaveResult
    changes: Changes
    num_annotations: int

    def __repr__(self) -> str:
        return f"Applied({str(self.saved.out)!r}): {self.to_json()}"

    @property
    def taken(self) -> TakenFixes | None:
        """Return the fixes that were taken, or None if the changes come from a training."""
        return self.changes.taken

    @property
    def is_doubtful(self) -> bool:
        """Return whether more than half of the labels changed, as after a failed training."""
        return 2 * int(self.changes.is_relabelled.sum()) > self.changes.num_judged

    def to_json(self) -> dict[str, Any]:
        """Return counts and mean confidences as plain data; an undefined mean is None."""
        changes, taken = self.changes, self.changes.taken
        counts = {
            "labels_changed": int(changes.is_relabelled.sum()),
            "boxes_moved": int(changes.is_moved.sum()),
        }
        if taken is not None:
            precision = taken.expected_precision
            return {
                "annotations": self.num_annotations,
                "fixes_taken": len(taken.fixes),
                "expected_precision": None if precision is None else round(precision, 4),
                "left_for_review": taken.num_left,
                "left_likely_wrong": taken.num_likely,
                "accepted_by_people": int(taken.is_accepted.sum()),
                "added": int((changes.rows >= self.num_annotations).sum()),
                "removed": int(changes.is_discarded.sum()),
                **counts,
            }
        return {
            "annotations": self.num_annotations,
            "changed": len(changes),
            **counts,
            "unsure": changes.num_unsure,
            **({"planted": changes.num_planted} if changes.num_planted else {}),
            "discarded": changes.discarded,
            "mean_label_confidence": _mean(changes.confidences[changes.is_relabelled]),
            "mean_iou_of_moved": _mean(changes.iou[changes.is_moved]),
        }


def apply(
    run: str | Path,
    out: str | Path,
    settings: ApplySettings | None = None,
    *,
    data: Dataset | str | Sequence[str] | None = None,
    format: str | None = None,
    options: WriteOptions | None = None,
) -> Applied:
    """Write a repaired copy of the dataset of a finished run into `out`, a new or empty folder.

    The changes are the fixes of an audit. Those of a training are its fixes if `settings` have a
    precision or people gave verdicts, and otherwise its settled ledger. The input is not modified.
    The copy differs from it only in the changes, which `changes.csv` lists; `revert` needs
    `patch.json`. `data` is the dataset, or its present address if it was moved; it is checked.
    `format` converts, as in `Dataset.save`.
    """
    settings, options, target = settings or ApplySettings(), options or WriteOptions(), Path(out)
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    ensure_vacant(target)
    source = open_finished_run(run)
    uses_fixes = _uses_fixes(source, settings)
    if uses_fixes:
        settings.check_for_fixes()
        ensure_fixes(source)
    else:
        settings.check_for_settling()
    dataset = read_dataset(source, data)
    name = format or native_format(dataset)
    if uses_fixes:
        changes = changes_from_fixes(source, dataset, settings)
    else:
        changes = changes_from_ledger(source, dataset, settings)
    saved = write_mended(make_mended(dataset, changes, name), target, name, options)
    return Applied(saved, changes, len(dataset))


def _uses_fixes(run: Run, settings: ApplySettings) -> bool:
    """Return whether to apply fixes: of an audit, with a precision, or if people gave verdicts."""
    if settings.precision is not None or is_audit(run):
        return True
    return not settings.needs_visits and has_verdicts(run)


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 4) if len(known) else None
