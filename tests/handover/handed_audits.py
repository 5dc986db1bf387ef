"""Audits made by hand on the COCO file of `handover_runs`, and what people did with them."""

import json
from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from handover_runs import Drawn, json_of

from boxmend import runs
from boxmend.fingerprint import fingerprint
from boxmend.fixes.table import FIXES_FILE, Fixes, Kind, write_fixes
from boxmend.formats import load
from boxmend.handover import ExportOptions, export

Box = tuple[float, float, float, float]
EMPTY: Box = (nan, nan, nan, nan)
# Annotations 10 van, 11 truck and 12, a crowd, on a.png; 13 van, 14 truck, 15 bus on b.png.
# id, kind, row, image, new label, new box, kept, p_wrong, p_fix
MADE: list[tuple[str, Kind, int, int, str, Box, int, float, float]] = [
    ("label 10", Kind.WRONG_LABEL, 0, 0, "bus", EMPTY, -1, 0.875, 0.75),
    ("box 10", Kind.BAD_BOX, 0, 0, "", (20, 10, 100, 50), -1, 0.75, 0.5),
    ("box 11", Kind.BAD_BOX, 1, 0, "", (100, 20, 150, 60), -1, 0.6, 0.5),
    ("missing a", Kind.MISSING, -1, 0, "van", (150, 60, 190, 90), -1, 0.7, 0.625),
    ("label 13", Kind.WRONG_LABEL, 3, 1, "truck", EMPTY, -1, 0.5, 0.5),
    ("spurious 13", Kind.SPURIOUS, 3, 1, "", EMPTY, -1, 0.25, 0.25),
    ("spurious 14", Kind.SPURIOUS, 4, 1, "", EMPTY, -1, 0.9, 0.9),
    ("double 15", Kind.DUPLICATE, 5, 1, "", EMPTY, 4, 0.95, 0.97),
]


def audit_run(folder: Path, drawn: Drawn | None = None) -> Path:
    """A finished audit in `folder`/run on a dataset in `folder`/data."""
    (folder / "data").mkdir(parents=True)
    address = (drawn or Drawn()).write(folder / "data")
    dataset = load(address)
    names = dict(zip(("van", "truck", "bus"), range(3), strict=True)) | {"": -1}
    rows = np.array([one[2] for one in MADE])
    old_labels = np.where(rows < 0, -1, dataset.labels[rows])
    old_boxes = np.where(rows[:, None] < 0, nan, dataset.boxes[rows])
    new_labels = np.array([names[one[4]] for one in MADE])
    new_boxes = np.array([one[5] for one in MADE])
    is_box = np.isin([one[1] for one in MADE], [Kind.BAD_BOX])
    is_label = np.isin([one[1] for one in MADE], [Kind.WRONG_LABEL])
    fixes = Fixes(
        ids=[one[0] for one in MADE],
        kinds=np.array([one[1] for one in MADE], np.int8),
        rows=rows,
        image_rows=np.array([one[3] for one in MADE]),
        old_labels=old_labels,
        new_labels=np.where(is_box, old_labels, new_labels),
        old_boxes=old_boxes,
        new_boxes=np.where(is_label[:, None], old_boxes, new_boxes),
        kept_rows=np.array([one[6] for one in MADE]),
        p_wrong=np.array([one[7] for one in MADE]),
        p_fix=np.array([one[8] for one in MADE]),
        iou_gain=np.zeros(len(MADE)),
        reasons=[f"why {one[0]}" for one in MADE],
    )
    facts = {"kind": "audit", "data": {"sha256": fingerprint(dataset)}, "addresses": [address]}
    run = runs.create(folder / "run", {}, facts)
    write_fixes(run.path / FIXES_FILE, dataset, fixes, fingerprint(dataset))
    run.finish({})
    return run.path


def handed_over(folder: Path, to: str, drawn: Drawn | None = None) -> tuple[Path, Path]:
    """An audit and what `export` writes of it: all fixes, the likeliest first."""
    run = audit_run(folder, drawn)
    return run, export(run, folder / "out", to, most=99, options=ExportOptions()).out


def regions(value: Any) -> dict[str, Any]:
    """The regions of one annotation in Label Studio by their ids."""
    return {one["id"]: one for one in value["result"]}


def submitted(
    out: Path,
    path: Path,
    edit: Callable[[str, dict[str, Any]], None] = lambda name, regions: None,
    **facts: Any,
) -> Path:
    """Write what Label Studio exports once somebody went through all tasks.

    `edit` is given the name of an image and its regions by id; it may change and remove them.
    """
    tasks = []
    for number, task in enumerate(json_of(out / "tasks.json"), 1):
        (prediction,) = task["predictions"]
        found = regions(json.loads(json.dumps(prediction)))
        edit(task["data"]["file_name"], found)
        annotation = {
            "id": 1000 + number,
            "completed_by": {
                "id": 7,
                "email": "kim@example.org",
                "first_name": "",
                "last_name": "",
            },
            "result": [one | {"origin": "prediction"} for one in found.values()],
            "was_cancelled": False,
            "ground_truth": False,
            "created_at": "2026-11-01T10:00:00.000000Z",
            "updated_at": "2026-11-01T10:05:00.000000Z",
            "lead_time": 4.25,
            "prediction": prediction,
            "result_count": len(found),
            "task": number,
            "project": 1,
        }
        whole = {
            "id": number,
            "annotations": [annotation | facts],
            "drafts": [],
            "predictions": [prediction | {"id": number}],
            "data": task["data"],
            "meta": {},
            "created_at": "2026-11-01T09:00:00.000000Z",
            "updated_at": "2026-11-01T10:05:00.000000Z",
            "inner_id": number,
            "total_annotations": 1,
            "cancelled_annotations": 0,
            "project": 1,
        }
        tasks.append(whole)
    path.write_text(json.dumps(tasks))
    return path
