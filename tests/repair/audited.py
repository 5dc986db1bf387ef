"""Audits made by hand: a finished folder with a table of fixes, without predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, Kind, write_fixes
from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.runs import folder as runs
from tests.runs.fabricated import facts_of

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Fix:
    """One row of a table; what is not given is as annotated, or empty."""

    id: str
    kind: Kind
    row: int = -1
    p_fix: float = 1.0
    label: str | int | None = None
    box: Box | None = None
    image: int = 0
    kept: int = -1
    reason: str = "why"
    p_wrong: float = 0.875


def table_of(dataset: Dataset, made: Sequence[Fix]) -> Fixes:
    n = len(made)
    rows = np.array([one.row for one in made], np.int64)
    old_labels, images = np.full(n, -1, np.int64), np.array([one.image for one in made], np.int64)
    old_boxes = np.full((n, 4), nan)
    is_known = rows >= 0
    old_labels[is_known] = dataset.labels[rows[is_known]]
    old_boxes[is_known] = dataset.boxes[rows[is_known]]
    images[is_known] = dataset.image_rows[rows[is_known]]
    labels, boxes = old_labels.copy(), old_boxes.copy()
    for k, one in enumerate(made):
        if one.kind in (Kind.SPURIOUS, Kind.DUPLICATE):
            labels[k], boxes[k] = -1, nan
        if one.label is not None:
            is_name = isinstance(one.label, str)
            labels[k] = dataset.label_names.index(one.label) if is_name else one.label
        boxes[k] = boxes[k] if one.box is None else one.box
    return Fixes(
        ids=[one.id for one in made],
        kinds=np.array([one.kind for one in made], np.int8),
        rows=rows,
        image_rows=images,
        old_labels=old_labels,
        new_labels=labels,
        old_boxes=old_boxes,
        new_boxes=boxes,
        kept_rows=np.array([one.kept for one in made], np.int64),
        p_wrong=np.array([one.p_wrong for one in made], np.float64),
        p_fix=np.array([one.p_fix for one in made], np.float64),
        iou_gain=np.zeros(n),
        reasons=[one.reason for one in made],
    )


def audit_run(
    out: Path,
    addresses: str | Sequence[str],
    made: Sequence[Fix],
    verdicts: Sequence[Verdict] = (),
    **reading: Any,
) -> Path:
    """The folder of a finished audit with these fixes, of data that were read in this way."""
    addresses = [addresses] if isinstance(addresses, str) else addresses
    dataset = load(*addresses, **reading)
    facts = facts_of(dataset, addresses) | {"kind": "audit", "images_folder": reading.get("images")}
    run = runs.create(out, {}, facts)
    write_fixes(out / FIXES_FILE, dataset, table_of(dataset, made), fingerprint(dataset))
    append_verdicts(out, verdicts)
    run.finish({})
    return out
