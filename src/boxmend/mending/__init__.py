"""Mending: what a run found out, written into a copy of its dataset, and taken back again.

`apply` settles a run's ledger into at most one change per annotation and writes the dataset with
only those fields changed; `revert` restores the bytes from before, in place.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.dataset import Dataset
from boxmend.errors import OutputError, UsageError
from boxmend.formats import FORMATS
from boxmend.formats.writing import (
    Saved,
    WriteOptions,
    ensure_vacant,
    native_format,
    staged,
    write_into,
)
from boxmend.mending import inputs, patches
from boxmend.mending.changes import ApplySettings, Changes, decide, mended
from boxmend.mending.listing import changes_csv
from boxmend.mending.reverting import CHANGES_FILE, PATCH_FILE, revert
from boxmend.mending.settling import Floats, settle

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

    @property
    def is_doubtful(self) -> bool:
        """Whether more than half of the labels changed: a detector that learnt little does that."""
        return 2 * int(self.changes.is_relabelled.sum()) > self.num_judged

    def to_json(self) -> dict[str, Any]:
        """Give counts and mean confidences, as plain data; None where there is no mean."""
        changes = self.changes
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

    Only mended fields differ from the input, which is never modified; `changes.csv` lists them and
    `patch.json` is what `revert` needs. `data` says where the dataset is now, or is it, where the
    run's own addresses lead nowhere; it is checked. `format` converts, as in `Dataset.save`.
    """
    settings, options, target = settings or ApplySettings(), options or WriteOptions(), Path(out)
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    ensure_vacant(target)
    source = inputs.finished_run(run)
    dataset = inputs.dataset_of(source, data)
    name = format or native_format(dataset)
    settlement = settle(dataset, inputs.visits_of(source, dataset))
    changes = decide(dataset, settlement, settings)
    new = mended(dataset, changes, name, settings.discarded)
    listing = changes_csv(dataset, changes, is_dropped=settings.discarded == "drop")
    with staged(target) as folder:
        saved = write_into(folder, new, name, options, out=target)
        _ensure_unused(saved)
        way_back = _patches(folder, dataset, saved, options)
        for file, content in ((CHANGES_FILE, listing), (PATCH_FILE, patches.encoded(way_back))):
            with (folder / file).open("xb") as stream:
                stream.write(content)
    return Applied(
        saved,
        changes,
        len(dataset),
        int(settlement.is_unsure.sum()),
        settings.discarded,
        int((settlement.num_judged > 0).sum()),
    )


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
            name: patches.file_patch((plain / name).read_bytes(), (folder / name).read_bytes())
            for name, digest in saved.files.items()
            if files[name] != digest
        }
    finally:
        shutil.rmtree(plain)


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(known.mean()), 4) if len(known) else None
