"""Previous results: cells that have a result in another file do not run again.

A line matches a cell if it has the same scale and name, finished, and agrees in everything that a
result depends on: noise, method, variant, seed, the hashes of data and weights, and every setting
that the method uses. Paths of data and weights, versions and hardware are not compared here;
`boxmend bench table` reports them. Of several matching lines the last one counts.

A second stage is trained on the annotations that the run of the first stage mended, and a line
holds no run: if only the first stage has a line, it is trained again. The line of a second stage
matches only if a matching line of the first stage was started before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.comparability import NEUTRAL_SETTINGS, section_of
from boxmend.bench.grids.jobs import Job, flatten, own_settings
from boxmend.bench.grids.outcomes import hash_weights
from boxmend.bench.grids.results import RESULTS_FILE, Result, read_results
from boxmend.errors import UsageError
from boxmend.runs.settings import TrainSettings, resolve_settings
from boxmend.web.text import display_text

HASH_PREFIX = "sha256:"  # of the hash of weights
DETECTOR_DEFAULTS = ("proposals", "pre_nms", "rois")
"""Settings whose default a run takes from its detector."""
MAX_LISTED_CELLS, MAX_LISTED_DIFFERENCES = 8, 5  # in a message


@dataclass(frozen=True)
class PreviousResult:
    """A finished result, and its file and line."""

    path: Path
    number: int
    """The number of the line, from 1."""
    result: Result

    @property
    def place(self) -> str:
        """Return FILE:LINE, which editors can open."""
        return f"{self.path}:{self.number}"


@dataclass(frozen=True)
class PreviousCells:
    """Previous results by cell name."""

    matching: dict[str, PreviousResult] = field(default_factory=dict)
    """The result of each cell that does not run again."""
    differing: dict[str, tuple[PreviousResult, list[str]]] = field(default_factory=dict)
    """Cells whose results all have other settings or data: the last one, and the differences."""


def read_previous(
    paths: Sequence[Path], scale: str
) -> tuple[dict[str, list[PreviousResult]], list[str]]:
    """Read the finished results of a scale by cell, in the order of the lines; also warnings.

    A folder stands for the files of results in it. Raises a DataError for an unreadable file or
    line.
    """
    lines: dict[str, list[PreviousResult]] = {}
    warnings: list[str] = []
    for path in result_files(paths):
        content = read_results(path)
        warnings += content.warnings
        for number, result in zip(content.numbers, content.results, strict=True):
            if result.scale == scale and result.error is None:
                lines.setdefault(result.cell, []).append(PreviousResult(path, number, result))
    return lines, warnings


def result_files(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, and the files of results in the given folders, each once."""
    files: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files |= dict.fromkeys(path.glob(RESULTS_FILE))
            files |= dict.fromkeys(sorted(path.glob(f"*/{RESULTS_FILE}")))
        else:
            files[path] = None  # the reader reports a missing file
    return list(files)


def match_previous(
    jobs: Mapping[Cell, Job], lines: Mapping[str, Sequence[PreviousResult]]
) -> PreviousCells:
    """Find the matching line of each cell; hashes that a job lacks are not compared."""
    cells, matching = PreviousCells(), dict[str, list[PreviousResult]]()
    for cell, job in jobs.items():  # a cell comes after the one it needs
        candidates = lines.get(cell.name, ())
        if not candidates:
            continue
        first = None if cell.needs is None else matching.get(cell.needs.name)
        compared = [
            (line, [*result_differences(line.result, job), *_list_stale_reasons(job, line, first)])
            for line in candidates
        ]
        matching[cell.name] = [line for line, differing in compared if not differing]
        if matching[cell.name]:
            cells.matching[cell.name] = matching[cell.name][-1]
        else:
            cells.differing[cell.name] = compared[-1]
    return cells


def refuse_differing(cells: PreviousCells) -> None:
    """Raise a UsageError that lists the results with other settings or data, if there are any."""
    if not cells.differing:
        return
    listing = ""
    for cell, (line, differing) in list(cells.differing.items())[:MAX_LISTED_CELLS]:
        more = len(differing) - MAX_LISTED_DIFFERENCES
        listing += f"\n  {cell} ({line.place})"
        listing += "".join(
            f"\n    {display_text(text, 160)}" for text in differing[:MAX_LISTED_DIFFERENCES]
        )
        listing += f"\n    and {more} more" if more > 0 else ""
    more = len(cells.differing) - MAX_LISTED_CELLS
    listing += f"\n  and {more} more cells" if more > 0 else ""
    raise UsageError(
        f"--done has results of these cells with other settings or data:{listing}\n"
        "Use the settings and data of these results, or --ignore-differing to run the cells again."
    )


def result_differences(line: Result, job: Job) -> list[str]:
    """List the differences between a result and a job on which a result depends."""
    pairs = [
        ("noise.labels", line.noise.labels, job.labels),
        ("noise.boxes", line.noise.boxes, job.boxes),
        ("noise.presence", line.noise.presence, job.presence),
        ("noise.seed", line.noise.seed, job.noise_seed),
        ("method", line.method, job.method),
        ("variant", line.variant, job.variant),
        ("seed", line.seed, job.seed),
    ]
    if job.train_sha256:
        pairs.append(("data.train_sha256", line.data.train_sha256, job.train_sha256))
        pairs.append(("data.val_sha256", line.data.val_sha256, job.val_sha256))
    pairs += _pair_settings(line, job)
    return [f"{name}: {before!r}, now {now!r}" for name, before, now in pairs if before != now]


def _pair_settings(line: Result, job: Job) -> list[tuple[str, Any, Any]]:
    """Return the settings that the method uses: name, value in the line, value in the job.

    A setting that the line lacks had its default.
    """
    method = str(job.settings["method"])
    defaults = flatten(to_builtins(asdict(resolve_settings(TrainSettings()))))
    old = flatten(line.settings)
    new = flatten(to_builtins(hash_weights(own_settings(job.settings, method), job)))
    pairs = []
    for name in {**new, **old}:
        section, dot, _ = name.partition(".")
        is_used = (
            section in ("optimisation", section_of(method)) if dot else name not in NEUTRAL_SETTINGS
        )
        is_open = name in DETECTOR_DEFAULTS and new.get(name) is None
        if is_used and not is_open:
            values = [settings.get(name, defaults.get(name)) for settings in (old, new)]
            if name == "weights":
                values = [_get_weights_hash(value) for value in values]
            pairs.append((f"settings.{name}", values[0], values[1]))
    return pairs


def _get_weights_hash(weights: Any) -> Any:
    """Return the hash in the value of `weights`, without the file name; other values unchanged."""
    text = str(weights)
    return text[text.index(HASH_PREFIX) :] if HASH_PREFIX in text else weights


def _list_stale_reasons(
    job: Job, line: PreviousResult, first: Sequence[PreviousResult] | None
) -> list[str]:
    """Return why the line of a second stage does not belong to the first stage; [] if it does.

    `first` holds the matching lines of the first stage; None if it has no lines at all.
    """
    if first is None or any(_get_start_time(earlier) <= _get_start_time(line) for earlier in first):
        return []
    reason = "was run again since" if first else "has only lines with other settings or data"
    return [f"needs {job.needs}, which {reason}"]


def _get_start_time(line: PreviousResult) -> datetime:
    try:
        time = datetime.fromisoformat(line.result.started)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
