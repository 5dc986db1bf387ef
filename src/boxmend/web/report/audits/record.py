"""The data of an audit's report: its fixes, the verdicts on them, and the numbers of audit.json."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from boxmend.auditing.fixes.choosing import (
    DEFAULT_PRECISION,
    KINDS_BY_OPTION,
    YIELD_PRECISIONS,
    ChosenFixes,
    choose_fixes,
)
from boxmend.auditing.fixes.run_fixes import AUDIT_FILE, read_run_fixes
from boxmend.auditing.fixes.table import Fixes
from boxmend.auditing.fixes.verdicts import Verdict, latest_verdicts, read_verdicts
from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask
from boxmend.errors import DataError, UsageError
from boxmend.runs.folder import Run
from boxmend.runs.opening import open_finished_run, read_dataset
from boxmend.scoring.fixes import mark_counted_fixes, mark_right_fixes
from boxmend.scoring.truth import KnownTruth, known_truth
from boxmend.web.report.gathering import ReportSettings

NEVER = len(YIELD_PRECISIONS)  # level of a fix that no precision applies

Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0, le=1e6)]


class RecordedShare(msgspec.Struct):
    """A share with its 95% interval."""

    value: Number
    low: Number
    high: Number


class RecordedProbe(msgspec.Struct):
    """Counts of the errors of one kind that the probe planted, and of each of their causes."""

    planted: Count
    found: Count
    right: Count
    found_share: RecordedShare | None
    right_share: RecordedShare | None
    causes: "dict[str, RecordedProbe]" = {}


class RecordedAudit(msgspec.Struct):
    """The numbers of audit.json; a part that the file lacks is empty."""

    evidence: str = "predictions"
    judged: Count = 0
    not_looked_at: Count = 0
    rates: dict[str, RecordedShare] = {}
    box_noise: RecordedShare | None = None
    probe: dict[str, RecordedProbe] | None = None
    notes: list[str] = []


@dataclass(frozen=True, eq=False)
class AuditRecord:
    """An audit with everything that its report needs."""

    name: str  # of the audit's folder
    run: Run
    dataset: Dataset
    fixes: Fixes
    verdicts: Sequence[Verdict]
    recorded: RecordedAudit
    truth: KnownTruth | None = None

    @cached_property
    def latest(self) -> dict[str, Verdict]:
        """The latest verdict on each fix."""
        return latest_verdicts(self.verdicts)

    @cached_property
    def chosen(self) -> ChosenFixes:
        """The fixes that `boxmend apply` applies by default."""
        return choose_fixes(self.fixes, self.latest, DEFAULT_PRECISION)

    @cached_property
    def is_applied(self) -> Mask:
        """A mask [f] of these fixes."""
        is_applied = np.zeros(len(self.fixes), np.bool_)
        is_applied[self.chosen.rows] = True
        return is_applied

    @cached_property
    def levels(self) -> NDArray[np.int8]:
        """The place [f] in YIELD_PRECISIONS of the highest precision that applies each fix.

        It is NEVER for fixes that none of them applies.
        """
        return self._levels(tuple(KINDS_BY_OPTION))

    @cached_property
    def own_levels(self) -> NDArray[np.int8]:
        """The same, if only fixes of the fix's own kind are wanted (`apply --only`)."""
        levels = np.full(len(self.fixes), NEVER, np.int8)
        for option, kind in KINDS_BY_OPTION.items():
            is_kind = self.fixes.kinds == kind
            if is_kind.any():
                levels[is_kind] = self._levels((option,))[is_kind]
        return levels

    def _levels(self, only: tuple[str, ...]) -> NDArray[np.int8]:
        levels = np.full(len(self.fixes), NEVER, np.int8)
        for level in reversed(range(NEVER)):  # a higher precision applies fewer of the same fixes
            chosen = choose_fixes(self.fixes, self.latest, YIELD_PRECISIONS[level], only)
            levels[chosen.rows] = level
        return levels

    @cached_property
    def is_right(self) -> Mask | None:
        """A mask [f] of the right fixes; None if the truth is unknown."""
        return (
            None if self.truth is None else mark_right_fixes(self.dataset, self.fixes, self.truth)
        )

    @cached_property
    def is_counted(self) -> Mask | None:
        """A mask [f] of the fixes that count as right or wrong; None if the truth is unknown."""
        if self.truth is None or self.is_right is None:
            return None
        return mark_counted_fixes(self.dataset, self.fixes, self.truth, self.is_right)


def gather_audit(run: Run, settings: ReportSettings) -> AuditRecord:
    """Read everything that the report of an audit shows."""
    if settings.baseline is not None or settings.beside:
        raise UsageError(
            f"{run.path}: is an audit, which trains no detector; --baseline and --beside are for "
            "training runs"
        )
    source = open_finished_run(run.path)
    dataset = read_dataset(source, settings.data)
    return AuditRecord(
        name=source.path.resolve().name,
        run=source,
        dataset=dataset,
        fixes=read_run_fixes(source, dataset),
        verdicts=read_verdicts(source.path),
        recorded=_read_recorded(source),
        truth=None if settings.truth is None else known_truth(settings.truth, dataset),
    )


def _read_recorded(run: Run) -> RecordedAudit:
    """Return the numbers of audit.json; raise a DataError if it has others than an audit writes."""
    data: Any = run.read_json(AUDIT_FILE) or {}
    try:
        return msgspec.convert(data, RecordedAudit)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise DataError(f"{run.path / AUDIT_FILE}: is damaged ({error}); audit again") from error
