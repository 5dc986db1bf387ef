"""Audits on disk made by hand: eight fixes whose every number is known, and their audit.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boxmend.runs.folder import Run, open_run
from boxmend.web.report.audits.record import AuditRecord, gather_audit
from boxmend.web.report.gathering import ReportSettings
from tests.fabricated_runs import Fix
from tests.web.review.reviewed_runs import FIXES, plain_run

NOTE = "WARNING: the detector <b>may</b> have been trained on these images"


def share(value: float, low: float, high: float) -> dict[str, float]:
    """A share with its interval."""
    return {"value": value, "low": low, "high": high}


RECORDED: dict[str, Any] = {
    "evidence": "predictions",
    "annotations": 16,
    "judged": 15,
    "not_looked_at": 1,
    "rates": {
        "wrong_labels": share(0.25, 0.125, 0.375),
        "bad_boxes": share(0.0625, 0.0, 0.125),
        "missing": share(0.05, 0.01, 0.1),
        "spurious": share(0.02, 0.0, 0.04),
        "duplicates": share(0.01, 0.0, 0.02),
    },
    "box_noise": share(0.1, 0.05, 0.15),
    "fixes": {"wrong label": {"listed": 4, "called_wrong": 3}},
    "probe": {
        "wrong label": {
            "planted": 40,
            "found": 30,
            "right": 15,
            "found_share": share(0.75, 0.6, 0.85),
            "right_share": share(0.5, 0.33, 0.67),
            "causes": {
                "any other class": {
                    "planted": 25,
                    "found": 25,
                    "right": 10,
                    "found_share": share(1.0, 0.87, 1.0),
                    "right_share": share(0.4, 0.23, 0.59),
                },
                "a class that <b>looks alike": {
                    "planted": 15,
                    "found": 5,
                    "right": 5,
                    "found_share": share(0.333, 0.15, 0.58),
                    "right_share": share(1.0, 0.57, 1.0),
                },
            },
        },
        "missing": {
            "planted": 40,
            "found": 0,
            "right": 0,
            "found_share": share(0.0, 0.0, 0.09),
            "right_share": None,
        },
    },
    "notes": [NOTE],
}


def made_audit(
    folder: Path, found: Sequence[Fix] = FIXES, recorded: dict[str, Any] | None = None
) -> Path:
    """The folder of an audit with these fixes; the eight of FIXES by default."""
    run = plain_run(folder, found)
    Run(run).write_json("audit.json", RECORDED if recorded is None else recorded)
    return run


def record_of(run: Path, **settings: Any) -> AuditRecord:
    """What a report reads of an audit."""
    return gather_audit(open_run(run), ReportSettings(**settings))
