"""What a report is made of: an opened run, its metrics, and the truth and a baseline if known."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from boxmend.repair.changes import Changes
from boxmend.repair.from_visits import changes_from_visits
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run, ready to be drawn."""

    name: str  # of the run's folder
    opened: OpenRun
    metrics: list[dict[str, Any]]  # lines of metrics.jsonl
    truth: KnownTruth | None = None
    label_ap: dict[str, float] = field(default_factory=dict)  # AP50 by label name, where known
    baseline_ap: dict[str, float] = field(default_factory=dict)  # of the baseline run, likewise
    beside: "tuple[RunRecord, ...]" = ()  # further runs, for panels side by side

    @cached_property
    def changes(self) -> Changes:
        """The changes that `apply` writes without any option."""
        return changes_from_visits(self.opened.settlement)


@dataclass(frozen=True)
class Figure:
    """A drawing and the numbers behind it."""

    name: str  # of its files, like "losses"
    title: str
    caption: str  # one or two sentences: what is seen, and what to make of it
    svg: str  # for the page: classes instead of styles, so that the page's theme colours it
    columns: tuple[str, ...]  # of the CSV
    rows: list[tuple[str | int | float | None, ...]]
