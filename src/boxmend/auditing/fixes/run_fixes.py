"""Read the table of fixes of an audit, or of a training run that was audited."""

import os
from shlex import quote

from boxmend.auditing.fixes.table import FIXES_FILE, Fixes, read_fixes
from boxmend.auditing.fixes.verdicts import VERDICTS_FILE
from boxmend.data.dataset import Dataset
from boxmend.errors import UsageError
from boxmend.runs.folder import Run
from boxmend.runs.opening import is_audit

AUDIT_FILE = "audit.json"  # rates, counts, results of the probe, and notes


def has_fixes(run: Run) -> bool:
    """Return whether a run is an audit, or a training run that was audited."""
    return is_audit(run) or os.path.exists(run.path / FIXES_FILE)


def has_verdicts(run: Run) -> bool:
    """Return whether there are verdicts on the fixes of a run."""
    return has_fixes(run) and os.path.exists(run.path / VERDICTS_FILE)


def ensure_fixes(run: Run) -> None:
    """Raise a UsageError if a run was not audited."""
    if not has_fixes(run):
        raise UsageError(
            f"{run.path}: there is no table of fixes here, which --precision needs; "
            f"`boxmend audit {quote(str(run.path))}` makes one"
        )


def read_run_fixes(run: Run, dataset: Dataset) -> Fixes:
    """Read the table of fixes of a run; `dataset` is the one it audited."""
    ensure_fixes(run)
    return read_fixes(run.path / FIXES_FILE, dataset, str(run.facts()["data"]["sha256"]))
