"""The inputs of a report: a finished run, and optionally the truth, a baseline and other runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boxmend.data.dataset import Dataset
from boxmend.runs.folder import EVALUATION_FILE, Run, open_run
from boxmend.runs.opening import OpenRun, open_run_with_history
from boxmend.scoring.truth import known_truth
from boxmend.web.report.record import RunRecord

AP50 = "voc_ap50_area"
TRUTH_FILE = "truth.parquet"  # of `boxmend noise`, next to the data


@dataclass(frozen=True)
class ReportSettings:
    """What a report compares its run with, and where its pictures go."""

    truth: str | Path | None = None
    """A truth.parquet, or the clean dataset; the report compares changes with it."""
    baseline: str | Path | None = None
    """A run whose detector to compare with."""
    beside: Sequence[str | Path] = ()
    """Further runs to show in the same figures."""
    data: Dataset | str | Sequence[str] | None = None
    """The new address of the run's dataset if it was moved, or the dataset itself."""
    embed: bool | None = None
    """Whether pictures go into the page; by default they do if they are not too large."""


@dataclass(frozen=True)
class DetectorScores:
    """The scores of a run's detector, as shares; None if not measured."""

    ap50: float | None = None
    by_label: dict[str, float] = field(default_factory=dict)


def gather(run: str | Path, settings: ReportSettings) -> RunRecord:
    """Read everything that a report shows; raise a DataError or UsageError for unreadable files."""
    opened = open_run_with_history(run, settings.data)
    truth = None if settings.truth is None else known_truth(settings.truth, opened.dataset)
    baseline = (
        DetectorScores() if settings.baseline is None else scores_of(open_run(settings.baseline))
    )
    return RunRecord(
        name=_name(opened.run),
        opened=opened,
        metrics=opened.run.read_metrics(),
        truth=truth,
        label_ap=scores_of(opened.run).by_label,
        baseline_ap=baseline.by_label,
        beside=tuple(_other_record(other, opened, settings) for other in settings.beside),
    )


def scores_of(run: Run) -> DetectorScores:
    """Return AP50 of a run: by `boxmend evaluate` if it was called, else of its validation."""
    evaluation = run.read_json(EVALUATION_FILE) or {}
    figures: Any = evaluation
    by_label = evaluation.get("by_label")
    if not evaluation:
        summary = run.summary() if run.is_finished else {}
        figures, by_label = summary.get("val"), summary.get("val_by_label")
    return DetectorScores(_share(_ap50(figures)), _by_label(by_label))


def _other_record(run: str | Path, main: OpenRun, settings: ReportSettings) -> RunRecord:
    """Read another run, with its own truth if the main run has one."""
    is_same_data = open_run(run).facts().get("data") == main.run.facts().get("data")
    opened = open_run_with_history(run, main.dataset if is_same_data else None)
    source = settings.truth
    if source is not None and not is_same_data:
        source = _truth_file(opened.dataset)
    return RunRecord(
        name=_name(opened.run),
        opened=opened,
        metrics=opened.run.read_metrics(),
        truth=None if source is None else known_truth(source, opened.dataset),
        label_ap=scores_of(opened.run).by_label,
    )


def _truth_file(dataset: Dataset) -> Path | None:
    """Return the truth that `boxmend noise` wrote next to a dataset, if there is exactly one."""
    paths = (source.path for source in dataset.sources)
    folders = {path if path.is_dir() else path.parent for path in paths}
    files = [folder / TRUTH_FILE for folder in folders if (folder / TRUTH_FILE).is_file()]
    return files[0] if len(files) == 1 else None


def _by_label(scores: Any) -> dict[str, float]:
    if not isinstance(scores, dict):
        return {}
    shares = {str(name): _share(_ap50(value)) for name, value in scores.items()}
    return {name: value for name, value in shares.items() if value is not None}


def _ap50(value: Any) -> Any:
    """Return AP50 of a label's scores, or of all; a bare number is AP50 itself."""
    return value.get(AP50) if isinstance(value, dict) else value


def _share(value: Any) -> float | None:
    """Return a number from 0 to 1, or None for anything else that a file may hold."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= 1 else None


def _name(run: Run) -> str:
    return run.path.resolve().name
