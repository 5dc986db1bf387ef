"""An audit on disk: from addresses and files to a run's folder with its table of fixes.

    RUN/fixes.parquet   the fixes
    RUN/audit.json      rates, counts, the planted errors that were found, and notes

An audit of predictions makes its own folder; an audit of a training run adds both files to the
folder of that run.
"""

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from boxmend import __version__
from boxmend.auditing.audit import SEED, Audit, AuditSettings, DatasetPart, audit, join_parts
from boxmend.auditing.calibration import Share
from boxmend.auditing.evidence import objects_at
from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, Kind, write_fixes
from boxmend.auditing.judging import AuditInputs, judge
from boxmend.auditing.ordering import image_sizes
from boxmend.auditing.predictions import read_predictions
from boxmend.auditing.probing import PROBE
from boxmend.auditing.provenance import provenance_warnings
from boxmend.auditing.run_evidence import find_judged_rows, gather_run_evidence, judge_by_losses
from boxmend.auditing.tables import fixes_of
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import ensure_vacant, stage_folder
from boxmend.data.fingerprint import describe_data, ensure_unchanged
from boxmend.errors import DataError
from boxmend.runs.folder import Run, create, ensure_new, sole_writer
from boxmend.runs.opening import open_finished_run, open_run_with_history

AUDIT_FILE = "audit.json"


@dataclass(frozen=True, eq=False)
class AuditFolder:
    """An audit and where it was written."""

    run: Run
    dataset: Dataset
    audit: Audit
    source: str  # "predictions" or "training run"
    notes: tuple[str, ...]  # for the user; see `notes.warning`

    def to_json(self) -> dict[str, Any]:
        """Return plain data, as in audit.json."""
        found = self.audit
        return {
            "evidence": self.source,
            "annotations": len(self.dataset),
            "judged": found.num_judged,
            "not_looked_at": found.num_not_looked_at,
            "rates": {name: _round_share(share) for name, share in found.rates.items()},
            "box_noise": _round_share(found.box_noise),
            "fixes": {kind.words: _counts(found.fixes, kind) for kind in Kind},
            "probe": None
            if found.probe is None
            else {kind.words: one.to_json() for kind, one in found.probe.items()},
            "notes": list(self.notes),
        }


def audit_predictions(
    dataset: Dataset,
    addresses: Sequence[str],
    predictions: Sequence[str | Path],
    out: str | Path,
    settings: AuditSettings | None = None,
    *,
    images: str | Path | None = None,
) -> AuditFolder:
    """Audit a dataset by files of predictions, and write RUN, a folder that is new or empty.

    `images` is the folder that the dataset was loaded with, if any, for whoever loads it again.
    """
    settings = settings or AuditSettings()
    ensure_new(out)
    ensure_vacant(Path(out))
    found = read_predictions(predictions, dataset)
    result = audit(dataset, found, settings)
    notes = (*found.notes, *provenance_warnings(dataset, found, unseen=settings.unseen))
    facts = {
        "kind": "audit",
        "versions": {
            "boxmend": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "scipy")},
        },
        "data": describe_data(dataset),
        "addresses": [str(Path(one).absolute()) for one in addresses],
        "images_folder": None if images is None else str(Path(images).absolute()),
        "predictions": [str(Path(one).absolute()) for one in predictions],
    }
    with stage_folder(Path(out)) as folder:
        ensure_unchanged(dataset)
        found.ensure_unchanged()
        run = create(folder, asdict(settings), facts)
        audited = AuditFolder(run, dataset, result, "predictions", notes)
        _write(audited)
        run.finish({"fixes": len(result.fixes)})
    return replace(audited, run=Run(Path(out)))


def audit_run(run: str | Path, data: str | Sequence[str] | None = None) -> AuditFolder:
    """Audit the dataset of a finished training run by its ledger; write into the run's folder.

    A ledger has evidence about labels and boxes of annotations, but not about objects without an
    annotation. There is no probe, since the detector has learnt from the annotations it judges.
    """
    source = open_finished_run(run)
    if source.facts().get("kind") == "audit":
        raise DataError(
            f"{source.path}: is an audit itself, not a training run; audit its dataset again by "
            "--predictions into a new folder"
        )
    opened = open_run_with_history(run, data)
    dataset, rows = opened.dataset, find_judged_rows(opened)
    if not len(rows):
        raise DataError(
            f"{opened.run.path}: the run judged no label, so there is nothing to conclude; train "
            "with --method mend, or give --predictions of a detector"
        )
    evidence = gather_run_evidence(opened, rows)
    none = np.zeros(0, np.int64)
    scene = AuditInputs(
        objects_at(dataset, rows), objects_at(dataset, none), image_sizes(dataset), detected=None
    )
    labels = judge_by_losses(opened, rows, evidence)
    opinion = judge(scene, evidence, np.random.default_rng(SEED), labels)
    fixes = fixes_of(dataset, rows, opinion, evidence)
    part = DatasetPart(rows, opinion, fixes, fixes[0].take(none), 0)
    result = join_parts(dataset, [part])
    notes = (
        "a training run shows wrong labels, bad boxes and duplicates; missing and spurious "
        "annotations need --predictions",
    )
    known = {name: one for name, one in result.rates.items() if name not in ("missing", "spurious")}
    audited = AuditFolder(opened.run, dataset, replace(result, rates=known), "training run", notes)
    with sole_writer(opened.run.path):
        ensure_unchanged(dataset)
        _write(audited)
    return audited


def _write(audited: AuditFolder) -> None:
    path = audited.run.path
    data = audited.run.facts()["data"]  # whose hash was held against the dataset, or made of it
    write_fixes(path / FIXES_FILE, audited.dataset, audited.audit.fixes, data["sha256"])
    audited.run.write_json(AUDIT_FILE, audited.to_json())


def _counts(fixes: Fixes, kind: Kind) -> dict[str, int]:
    is_kind = fixes.kinds == kind
    return {
        "listed": int(is_kind.sum()),
        "called_wrong": int((is_kind & (fixes.p_wrong >= PROBE.called_min_probability)).sum()),
    }


def _round_share(share: Share) -> dict[str, float]:
    return {name: round(value, 6) for name, value in asdict(share).items()}
