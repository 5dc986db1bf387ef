"""Mending: what a run found out, written into a copy of its dataset, and taken back again.

`apply` settles a run's ledger into at most one change per annotation, or takes the fixes of an
audit, and writes the dataset with only that changed; `revert` restores the bytes from before, in
place.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes.run_fixes import ensure_fixes, has_verdicts
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant, stage_folder
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats import FORMATS
from boxmend.data.formats.writing import SaveResult, WriteOptions, native_format, write_into
from boxmend.data.types import Floats
from boxmend.errors import OutputError, UsageError
from boxmend.repair import patches
from boxmend.repair.changes import ApplySettings, Changes, TakenFixes, mend
from boxmend.repair.from_fixes import changes_from_fixes
from boxmend.repair.from_visits import changes_from_visits
from boxmend.repair.listing import changes_csv
from boxmend.repair.reverting import CHANGES_FILE, PATCH_FILE, revert
from boxmend.runs.folder import Run
from boxmend.runs.history import SETTLING_COLUMNS, read_history
from boxmend.runs.opening import is_audit, open_finished_run, read_dataset
from boxmend.runs.settling import settle

__all__ = ["CHANGES_FILE", "PATCH_FILE", "Applied", "ApplySettings", "apply", "revert"]


@dataclass(frozen=True, eq=False)
class Applied:
    """What was changed and written."""

    saved: SaveResult
    changes: Changes
    num_annotations: int

    @property
    def taken(self) -> TakenFixes | None:
        """The fixes that were taken, if the changes come from an audit."""
        return self.changes.taken

    @property
    def is_doubtful(self) -> bool:
        """Whether more than half of the labels changed: a detector that learnt little does that."""
        return 2 * int(self.changes.is_relabelled.sum()) > self.changes.num_judged

    def to_json(self) -> dict[str, Any]:
        """Give counts and mean confidences, as plain data; None where there is no mean."""
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
    """Write the dataset of a finished run into `out`, a folder that is new or empty, mended.

    Of an audit, with a precision, or where people gave verdicts on fixes, these are taken; else
    the ledger is settled.
    Only what is mended differs from the input, which is never modified; `changes.csv` lists it and
    `patch.json` is what `revert` needs. `data` says where the dataset is now, or is it, where the
    run's own addresses lead nowhere; it is checked. `format` converts, as in `Dataset.save`.
    """
    settings, options, target = settings or ApplySettings(), options or WriteOptions(), Path(out)
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    ensure_vacant(target)
    source = open_finished_run(run)
    is_of_fixes = _is_of_fixes(source, settings)
    if is_of_fixes:
        settings.check_for_fixes()
        ensure_fixes(source)
    else:
        settings.check_for_settling()
    dataset = read_dataset(source, data)
    name = format or native_format(dataset)
    if is_of_fixes:
        changes = changes_from_fixes(source, dataset, settings)
    else:
        settlement = settle(dataset, read_history(source, dataset, SETTLING_COLUMNS))
        changes = changes_from_visits(settlement, settings)
        del settlement  # and with it all visits
    return Applied(_write(target, dataset, changes, name, options), changes, len(dataset))


def _write(
    out: Path, dataset: Dataset, changes: Changes, format: str, options: WriteOptions
) -> SaveResult:
    """Write the dataset with the changes made, a list of them and the way back."""
    new, listing = mend(dataset, changes, format), changes_csv(dataset, changes)
    with stage_folder(out, sync=options.sync) as folder:
        saved = write_into(folder, new, format, options, out=out)
        _ensure_unused(saved)
        way_back = patches.encoded(_patches(folder, dataset, saved, options))
        for file, content in ((CHANGES_FILE, listing), (PATCH_FILE, way_back)):
            with (folder / file).open("xb") as stream:
                stream.write(content)
        ensure_unchanged(dataset)
    return saved


def _is_of_fixes(run: Run, settings: ApplySettings) -> bool:
    """Return whether fixes are meant, as always where people gave verdicts on a training's."""
    if settings.precision is not None or is_audit(run):
        return True
    return not settings.is_about_visits and has_verdicts(run)


def _ensure_unused(saved: SaveResult) -> None:
    for name in (CHANGES_FILE, PATCH_FILE):
        if name in saved.files:
            raise OutputError(
                f"{saved.out}: {name} would be both an annotation file of the dataset and a file "
                "about the changes; rename the annotation file"
            )


def _patches(
    folder: Path, dataset: Dataset, saved: SaveResult, options: WriteOptions
) -> dict[str, patches.FilePatch]:
    """How to get from the files in `folder` to those that the dataset gives without mending.

    They are written there, too, for a moment, and compared.
    """
    plain = folder / f".{PATCH_FILE}.unmended"
    plain.mkdir()
    try:
        files = write_into(
            plain, dataset, saved.format, replace(options, images_as="none"), out=saved.out
        ).files
        return {
            name: patches.file_patch(
                (plain / name).read_bytes() if name in files else None,
                (folder / name).read_bytes() if name in saved.files else None,
            )
            for name in {**saved.files, **files}
            if files.get(name) != saved.files.get(name)
        }
    finally:
        shutil.rmtree(plain)


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 4) if len(known) else None
