"""The data of a report: an opened run, its metrics, and the truth and a baseline if known."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from boxmend.repair.changes import Changes
from boxmend.repair.from_visits import changes_from_visits
from boxmend.runs.opening import OpenRun
from boxmend.scoring.truth import KnownTruth


@dataclass(frozen=True, eq=False)
class RunRecord:
    """One run with everything that its figures need."""

    name: str  # of the run's folder
    opened: OpenRun
    metrics: list[dict[str, Any]]  # lines of metrics.jsonl
    truth: KnownTruth | None = None
    label_ap: dict[str, float] = field(default_factory=dict)  # AP50 by label name, if known
    baseline_ap: dict[str, float] = field(default_factory=dict)  # the same of the baseline run
    beside: "tuple[RunRecord, ...]" = ()  # further runs to show in the same figures

    @cached_property
    def changes(self) -> Changes:
        """The changes that `boxmend apply` makes by default."""
        return changes_from_visits(self.opened.settlement)


@dataclass(frozen=True)
class Figure:
    """A drawing and the numbers behind it."""

    name: str  # of its files, like "losses"
    title: str
    caption: str  # one or two sentences about what the figure shows
    svg: str  # with classes instead of styles, so that the page's theme sets the colours
    columns: tuple[str, ...]  # of the CSV
    rows: list[tuple[str | int | float | None, ...]]
