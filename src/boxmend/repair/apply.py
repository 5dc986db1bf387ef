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

from boxmend.auditing.fixes.of_runs import ensure_fixes, has_verdicts
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant, staged
from boxmend.data.fingerprint import ensure_unchanged
from boxmend.data.formats import FORMATS
from boxmend.data.formats.writing import Saved, WriteOptions, native_format, write_into
from boxmend.data.types import Floats
from boxmend.errors import OutputError, UsageError
from boxmend.repair import patches
from boxmend.repair.changes import ApplySettings, Changes, decide, mended
from boxmend.repair.fixing import Taken, changes_of, fixed, taken_of
from boxmend.repair.listing import changes_csv, fixes_csv
from boxmend.repair.reverting import CHANGES_FILE, PATCH_FILE, revert
from boxmend.runs import opening as inputs
from boxmend.runs.folder import Run
from boxmend.runs.history import SETTLING_COLUMNS, history_of
from boxmend.runs.settling import settle

__all__ = ["CHANGES_FILE", "PATCH_FILE", "Applied", "ApplySettings", "apply", "revert"]


@dataclass(frozen=True, eq=False)
class Applied:
    """What was changed and written."""

    saved: Saved
    changes: Changes
    num_annotations: int
    num_unsure: int  # discarded, whatever was done with them
    discarded: str  # what was done with them
    num_judged: int  # annotations whose label was judged
    taken: Taken | None = None  # the fixes, where it was an audit's

    @property
    def is_doubtful(self) -> bool:
        """Whether more than half of the labels changed: a detector that learnt little does that."""
        return 2 * int(self.changes.is_relabelled.sum()) > self.num_judged

    def to_json(self) -> dict[str, Any]:
        """Give counts and mean confidences, as plain data; None where there is no mean."""
        changes = self.changes
        if self.taken is not None:
            return {
                "annotations": self.num_annotations,
                **self.taken.to_json(),
                "labels_changed": int(changes.is_relabelled.sum()),
                "boxes_moved": int(changes.is_moved.sum()),
            }
        return {
            "annotations": self.num_annotations,
            "changed": len(changes),
            "labels_changed": int(changes.is_relabelled.sum()),
            "boxes_moved": int(changes.is_moved.sum()),
            "unsure": self.num_unsure,
            "discarded": self.discarded,
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
    source = inputs.finished_run(run)
    prepare = _fixes if _is_of_fixes(source, settings) else _settled
    work = prepare(source, data, settings, format)
    with staged(target, sync=options.sync) as folder:
        saved = write_into(folder, work.new, work.format, options, out=target)
        _ensure_unused(saved)
        way_back = _patches(folder, work.old, saved, options)
        for file, content in (
            (CHANGES_FILE, work.listing),
            (PATCH_FILE, patches.encoded(way_back)),
        ):
            with (folder / file).open("xb") as stream:
                stream.write(content)
        ensure_unchanged(work.old)
    return Applied(
        saved,
        work.changes,
        len(work.old),
        work.num_unsure,
        work.discarded,
        work.num_judged,
        work.taken,
    )


@dataclass(frozen=True, eq=False)
class _Work:
    """A dataset before and after, and what `Applied` tells of it."""

    old: Dataset
    new: Dataset
    format: str
    listing: bytes
    changes: Changes
    num_judged: int
    num_unsure: int = 0
    discarded: str = "drop"
    taken: Taken | None = None


def _is_of_fixes(run: Run, settings: ApplySettings) -> bool:
    """Whether fixes are meant; people's verdicts on a training's are never passed over unsaid."""
    if settings.precision is not None or inputs.is_audit(run):
        return True
    return not settings.is_about_visits and has_verdicts(run)


def _settled(
    run: Run, data: Dataset | str | Sequence[str] | None, settings: ApplySettings, to: str | None
) -> _Work:
    """Settle the ledger of a training."""
    settings.check_for_settling()
    dataset = inputs.dataset_of(run, data)
    name = to or native_format(dataset)
    settlement = settle(dataset, history_of(run, dataset, SETTLING_COLUMNS))
    changes = decide(dataset, settlement, settings)
    new = mended(dataset, changes, name, settings.discarded)
    listing = changes_csv(dataset, changes, is_dropped=settings.discarded == "drop")
    num_unsure = int(settlement.is_unsure.sum())
    num_judged = int((settlement.num_judged > 0).sum())
    return _Work(dataset, new, name, listing, changes, num_judged, num_unsure, settings.discarded)


def _fixes(
    run: Run, data: Dataset | str | Sequence[str] | None, settings: ApplySettings, to: str | None
) -> _Work:
    """Take the fixes of an audit."""
    settings.check_for_fixes()
    ensure_fixes(run)
    dataset = inputs.dataset_of(run, data)
    name = to or native_format(dataset)
    taken = taken_of(run, dataset, settings)
    changes = changes_of(dataset, taken)
    new = fixed(dataset, taken, changes, name)
    listing, num_judged = fixes_csv(dataset, taken), int((~dataset.is_ignored).sum())
    return _Work(dataset, new, name, listing, changes, num_judged, taken=taken)


def _ensure_unused(saved: Saved) -> None:
    for name in (CHANGES_FILE, PATCH_FILE):
        if name in saved.files:
            raise OutputError(
                f"{saved.out}: {name} would be both an annotation file of the dataset and a file "
                "about the changes; rename the annotation file"
            )


def _patches(
    folder: Path, dataset: Dataset, saved: Saved, options: WriteOptions
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
