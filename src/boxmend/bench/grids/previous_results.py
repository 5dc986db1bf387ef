"""Results from elsewhere: cells that have a line in another file are not run again.

A line counts as a cell if it is of the same scale and name, came to its end, and agrees in all
that a result depends on: noise, method, variant, seed, hashes of the data and of the weights, and
every setting that its method goes by. Where data and weights lay, versions and hardware do not
count here; `boxmend bench table` tells of those. Of several lines of a cell the last that counts
does.

The second stage is trained on what the first one's run mended, and a line holds no run: where only
the first stage has a line, it is trained again. A second stage counts if a line of the first one
that counts was begun before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.comparability import IDLE, section_of
from boxmend.bench.grids.jobs import Job, flat, own_settings
from boxmend.bench.grids.outcomes import named_weights
from boxmend.bench.grids.results import RESULTS_FILE, Result, read
from boxmend.errors import UsageError
from boxmend.runs.settings import TrainSettings, resolved
from boxmend.web.text import display_text

HASH = "sha256:"  # before that of weights
LEFT_TO_DETECTOR = ("proposals", "pre_nms", "rois")
"""Settings that a run writes down as its detector has them, where nothing else is said."""
LISTED_CELLS, LISTED_DIFFERENCES = 8, 5  # in a message


@dataclass(frozen=True)
class PreviousResult:
    """A finished result, and where it stands."""

    path: Path
    number: int
    result: Result

    @property
    def place(self) -> str:
        """FILE:LINE, as editors take it."""
        return f"{self.path}:{self.number}"


@dataclass(frozen=True)
class PreviousCells:
    """What lines say about cells, by their names."""

    taken: dict[str, PreviousResult] = field(default_factory=dict)
    """The lines that count."""
    differing: dict[str, tuple[PreviousResult, list[str]]] = field(default_factory=dict)
    """Cells whose lines are all of other settings or data: the last one, and what differs."""


def read_previous(
    paths: Sequence[Path], scale: str
) -> tuple[dict[str, list[PreviousResult]], list[str]]:
    """Read the finished results of a scale by cell, in the order of the lines; also warnings.

    A folder stands for the files of results in it. A DataError names a file or line that is none.
    """
    lines: dict[str, list[PreviousResult]] = {}
    warnings: list[str] = []
    for path in result_files(paths):
        found = read(path)
        warnings += found.warnings
        for number, one in zip(found.numbers, found.results, strict=True):
            if one.scale == scale and one.error is None:
                lines.setdefault(one.cell, []).append(PreviousResult(path, number, one))
    return lines, warnings


def result_files(paths: Iterable[Path]) -> list[Path]:
    """Give files of results as they are named, and those that lie in folders, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = dict.fromkeys(path.glob(RESULTS_FILE))
            inside |= dict.fromkeys(sorted(path.glob(f"*/{RESULTS_FILE}")))
            found |= inside
        else:
            found[path] = None  # what is not there is told when it is read
    return list(found)


def match_previous(
    jobs: Mapping[Cell, Job], lines: Mapping[str, Sequence[PreviousResult]]
) -> PreviousCells:
    """Find the line that counts for each cell; hashes that a job lacks are not compared."""
    found, fitting = PreviousCells(), dict[str, list[PreviousResult]]()
    for cell, job in jobs.items():  # what a cell needs stands before it
        here = lines.get(cell.name, ())
        if not here:
            continue
        first = None if cell.needs is None else fitting.get(cell.needs.name)
        told = [(one, [*differences(one.result, job), *_stale(job, one, first)]) for one in here]
        fitting[cell.name] = [one for one, differing in told if not differing]
        if fitting[cell.name]:
            found.taken[cell.name] = fitting[cell.name][-1]
        else:
            found.differing[cell.name] = told[-1]
    return found


def refuse_differing(found: PreviousCells) -> None:
    """Raise a UsageError that says which lines are of other settings or data, if any are."""
    if not found.differing:
        return
    listing = ""
    for cell, (line, differing) in list(found.differing.items())[:LISTED_CELLS]:
        more = len(differing) - LISTED_DIFFERENCES
        listing += f"\n  {cell} ({line.place})"
        listing += "".join(
            f"\n    {display_text(one, 160)}" for one in differing[:LISTED_DIFFERENCES]
        )
        listing += f"\n    and {more} more" if more > 0 else ""
    more = len(found.differing) - LISTED_CELLS
    listing += f"\n  and {more} more cells" if more > 0 else ""
    raise UsageError(
        "--done has results of these cells, but of other settings or data, and what differs is "
        f"never mixed:{listing}\nGive what they were run with, or --ignore-differing to run them "
        "anew."
    )


def differences(line: Result, job: Job) -> list[str]:
    """List what differs between a line and a job, of what a result depends on."""
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
    pairs += _settings_pairs(line, job)
    return [f"{name}: {was!r}, now {now!r}" for name, was, now in pairs if was != now]


def _settings_pairs(line: Result, job: Job) -> list[tuple[str, Any, Any]]:
    """Settings that the method goes by, as they were and as they are now.

    One that was not written down in its day was what it is by default.
    """
    method = str(job.settings["method"])
    usual = flat(to_builtins(asdict(resolved(TrainSettings()))))
    was = flat(line.settings)
    now = flat(to_builtins(named_weights(own_settings(job.settings, method), job)))
    pairs = []
    for name in {**now, **was}:
        section, dot, _ = name.partition(".")
        is_own = section in ("optimisation", section_of(method)) if dot else name not in IDLE
        is_open = name in LEFT_TO_DETECTOR and now.get(name) is None
        if is_own and not is_open:
            values = [one.get(name, usual.get(name)) for one in (was, now)]
            if name == "weights":
                values = [_hash_of(one) for one in values]
            pairs.append((f"settings.{name}", values[0], values[1]))
    return pairs


def _hash_of(weights: Any) -> Any:
    """The hash of weights where it is told, whatever their file is called."""
    text = str(weights)
    return text[text.index(HASH) :] if HASH in text else weights


def _stale(job: Job, line: PreviousResult, first: Sequence[PreviousResult] | None) -> list[str]:
    """Why a second stage is not one of the first stage that is asked for, if so.

    `first` are the lines of the first stage that count; None where it has no lines at all.
    """
    if first is None or any(_begun(one) <= _begun(line) for one in first):
        return []
    reason = "was run anew since" if first else "has lines of other settings or data alone"
    return [f"needs {job.needs}, which {reason}"]


def _begun(line: PreviousResult) -> datetime:
    try:
        told = datetime.fromisoformat(line.result.started)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return told if told.tzinfo is not None else told.replace(tzinfo=UTC)
