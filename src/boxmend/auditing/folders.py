"""Audit from addresses and files, and write the result to the folder of a run.

    RUN/fixes.parquet   the fixes
    RUN/audit.json      rates, counts, results of the probe, and notes

An audit of predictions makes its own folder; an audit of a training run adds both files to the
folder of that run.
"""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from boxmend import __version__
from boxmend.auditing.audit import Audit, AuditSettings
from boxmend.auditing.completed import CompletedAudit, complete_audit, summarise_audit
from boxmend.auditing.fixes.run_fixes import AUDIT_FILE
from boxmend.auditing.fixes.table import FIXES_FILE, write_fixes
from boxmend.auditing.ledgers import audit_ledger
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant, stage_folder
from boxmend.data.fingerprint import describe_data, ensure_unchanged
from boxmend.errors import DataError
from boxmend.runs.folder import Run, create, ensure_new, sole_writer
from boxmend.runs.opening import open_finished_run, open_run_with_history


@dataclass(frozen=True, eq=False, repr=False)
class AuditFolder:
    """An audit and the folder that it was written to."""

    run: Run
    dataset: Dataset
    audit: Audit
    source: str  # "predictions" or "training run"
    notes: tuple[str, ...]  # for the user; see `notes.warning`

    def __repr__(self) -> str:
        return f"AuditFolder({str(self.run.path)!r}): {len(self.audit.fixes):,} fixes"

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as in audit.json."""
        return summarise_audit(self.audit, len(self.dataset), self.source, self.notes)


def audit_predictions(
    dataset: Dataset,
    addresses: Sequence[str],
    predictions: Sequence[str | Path],
    out: str | Path,
    settings: AuditSettings | None = None,
    *,
    images: str | Path | None = None,
) -> AuditFolder:
    """Audit a dataset by prediction files, and write the result to `out`, a new or empty folder.

    `images` is the folder of images that the dataset was loaded with, if any. It is recorded, so
    that later commands can load the dataset again.
    """
    ensure_new(out)
    ensure_vacant(Path(out))
    completed = complete_audit(dataset, [str(path) for path in predictions], settings)
    return write_audit(completed, out, addresses, images=images)


def write_audit(
    completed: CompletedAudit,
    out: str | Path,
    addresses: Sequence[str],
    *,
    images: str | Path | None = None,
) -> AuditFolder:
    """Write an audit to `out`, a new or empty folder, with the addresses of its dataset."""
    ensure_new(out)
    ensure_vacant(Path(out))
    dataset, result = completed.dataset, completed.audit
    facts = {
        "kind": "audit",
        "versions": {
            "boxmend": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "scipy")},
        },
        "data": describe_data(dataset),
        "addresses": [str(Path(address).absolute()) for address in addresses],
        "images_folder": None if images is None else str(Path(images).absolute()),
        "predictions": [str(Path(path).absolute()) for path in completed.files],
    }
    with stage_folder(Path(out)) as folder:
        ensure_unchanged(dataset)
        completed.detections.ensure_unchanged()
        run = create(folder, asdict(completed.settings), facts)
        audited = AuditFolder(run, dataset, result, "predictions", completed.notes)
        _write(audited)
        run.finish({"fixes": len(result.fixes)})
    return replace(audited, run=Run(Path(out)))


def audit_run(run: str | Path, data: str | Sequence[str] | None = None) -> AuditFolder:
    """Audit the dataset of a finished training run by its ledger, and write to the run's folder.

    A ledger has evidence about labels and boxes of annotations, but not about objects without an
    annotation. There is a probe only if the training planted errors.
    """
    source = open_finished_run(run)
    if source.facts().get("kind") == "audit":
        raise DataError(
            f"{source.path}: is an audit, not a training run; to audit its dataset again, give "
            "--predictions and a new folder"
        )
    opened = open_run_with_history(run, data)
    result, notes = audit_ledger(opened)
    audited = AuditFolder(opened.run, opened.dataset, result, "training run", notes)
    with sole_writer(opened.run.path):
        ensure_unchanged(opened.dataset)
        _write(audited)
    return audited


def _write(audited: AuditFolder) -> None:
    path = audited.run.path
    data = audited.run.facts()["data"]  # its hash is that of the dataset
    write_fixes(path / FIXES_FILE, audited.dataset, audited.audit.fixes, data["sha256"])
    audited.run.write_json(AUDIT_FILE, audited.to_json())
