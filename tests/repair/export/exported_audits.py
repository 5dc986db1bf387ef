"""Audits made by hand on the COCO file of `exported_runs`, and what people did with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from boxmend.auditing.fixes.table import Kind
from boxmend.repair.export import ExportOptions, export
from tests.fabricated_runs import Fix
from tests.fabricated_runs import audit_run as finished_audit
from tests.repair.export.exported_runs import Drawn, json_of

# Annotations 10 van, 11 truck and 12, a crowd, on a.png; 13 van, 14 truck, 15 bus on b.png.
LABEL, BOX, MISSING, SPURIOUS, DUPLICATE = Kind
VAN, TRUCK, BUS = range(3)  # tests call them otherwise, too
MADE = [
    Fix("label 10", LABEL, 0, 0.75, label=BUS, p_wrong=0.875, reason="why label 10"),
    Fix("box 10", BOX, 0, 0.5, box=(20, 10, 100, 50), p_wrong=0.75, reason="why box 10"),
    Fix("box 11", BOX, 1, 0.5, box=(100, 20, 150, 60), p_wrong=0.6, reason="why box 11"),
    Fix("missing a", MISSING, p_fix=0.625, label=VAN, box=(150, 60, 190, 90), p_wrong=0.7),
    Fix("label 13", LABEL, 3, 0.5, label=TRUCK, p_wrong=0.5),
    Fix("spurious 13", SPURIOUS, 3, 0.25, p_wrong=0.25),
    Fix("spurious 14", SPURIOUS, 4, 0.9, p_wrong=0.9, reason="why spurious 14"),
    Fix("double 15", DUPLICATE, 5, 0.97, kept=4, p_wrong=0.95),
]


def audit_run(folder: Path, drawn: Drawn | None = None) -> Path:
    """A finished audit in `folder`/run on a dataset in `folder`/data."""
    (folder / "data").mkdir(parents=True)
    return finished_audit(folder / "run", (drawn or Drawn()).write(folder / "data"), MADE)


def exported_audit(folder: Path, to: str, drawn: Drawn | None = None) -> tuple[Path, Path]:
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
        document = regions(json.loads(json.dumps(prediction)))
        edit(task["data"]["file_name"], document)
        annotation = {
            "id": 1000 + number,
            "completed_by": {
                "id": 7,
                "email": "kim@example.org",
                "first_name": "",
                "last_name": "",
            },
            "result": [one | {"origin": "prediction"} for one in document.values()],
            "was_cancelled": False,
            "ground_truth": False,
            "created_at": "2026-11-01T10:00:00.000000Z",
            "updated_at": "2026-11-01T10:05:00.000000Z",
            "lead_time": 4.25,
            "prediction": prediction,
            "result_count": len(document),
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
