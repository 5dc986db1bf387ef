"""The folder of a run: settings, data, environment, metrics and results.

    RUN/run.json        facts: versions, seed, hardware, data; marks the folder as a run
    RUN/settings.json   the resolved settings; without a digest, as people may edit it
    RUN/metrics.jsonl   one JSON object per line, each with its "step"
    RUN/ledger/         every visit of every annotation (`boxmend.runs.ledger`)
    RUN/finished        written when the run is complete
    RUN/evaluation.json, mending.json   the results of `boxmend evaluate`
    RUN/.lock           held by the process that writes

JSON files are replaced atomically, so a killed process leaves the old or the new version. In
`metrics.jsonl` it can leave a torn last line, which a resumed run removes. NaN and infinities
become null in metrics and raise a ValueError in settings and facts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.files.atomic import open_atomic, wrap_os_errors
from boxmend.data.files.digests import add_json_digest, verify_json
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.locks import require_lock, try_lock
from boxmend.data.files.reading import read_record
from boxmend.data.files.temporary import is_temporary, remove_leftovers
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.runs import metrics as metric_lines
from boxmend.runs.settings.renamed import rename_settings

FORMAT_KEY = "boxmend_run"
FORMAT_VERSION = 1
LOCK_FILE = ".lock"
INITIAL_FILES = ("settings.json", "run.json", LOCK_FILE)
"""The files of a run before its first step, in an order that is safe for their removal."""
METRICS_FILE = "metrics.jsonl"
EVALUATION_FILE = "evaluation.json"
MENDING_FILE = "mending.json"
SETTINGS_FILE = "settings.json"  # without a digest, since people may edit it
REMEDY = "restore a copy of it, or run the command that wrote it again"
DATA_KEY = "data"  # of facts that must be equal on resuming: addresses and hashes

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The folder of a run, returned by `create` and `open_run`; all state is on disk."""

    path: Path

    @property
    def is_finished(self) -> bool:
        """Return whether the run is complete."""
        return os.path.exists(self.path / "finished")

    def settings(self) -> Record:
        """Return the resolved settings; renamed ones of earlier versions by their present names."""
        return rename_settings(_read_object(self.path / SETTINGS_FILE))

    def facts(self) -> Record:
        """Return the facts that were recorded when the run started."""
        facts: Record = _read_run_document(self.path)["facts"]
        return facts

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`; the record must have an integer "step"."""
        plain = _replace_nonfinite(_to_plain(record))
        if not metric_lines.is_step(plain.get("step")):
            raise ValueError(f"metrics need an integer 'step', got {record.get('step')!r}")
        metric_lines.append(self.path / METRICS_FILE, _encode(plain))

    def read_metrics(self) -> list[Record]:
        """Return all lines of `metrics.jsonl` without a torn last one."""
        return [record for _, record in metric_lines.read(self.path / METRICS_FILE)]

    def sync_metrics(self) -> int:
        """Sync `metrics.jsonl` to disk for a checkpoint, and return its size in bytes."""
        return metric_lines.sync(self.path / METRICS_FILE)

    def rewind_metrics(self, step: int | None, num_bytes: int | None = None) -> None:
        """Remove the lines after a checkpoint of `step`; see `metric_lines.rewind`."""
        metric_lines.rewind(self.path / METRICS_FILE, step, num_bytes)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a document about the run into its folder; replaces an earlier one."""
        _write_object(self.path / name, _replace_nonfinite(_to_plain(document)))

    def read_json(self, name: str) -> Record | None:
        """Return a document that `write_json` wrote, or None if there is none."""
        path = self.path / name
        return _read_object(path) if os.path.exists(path) else None

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """Mark the run as finished and store its summary."""
        _write_object(self.path / "finished", _replace_nonfinite(_to_plain(summary or {})))

    def summary(self) -> Record:
        """Return the summary of a finished run; raise a DataError for an unfinished one."""
        return _read_object(self.path / "finished")


def create(
    out: str | Path,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    *,
    resume: bool = False,
) -> Run:
    """Create the folder of a new run, or resume an unfinished one.

    Raises an OutputError if the folder holds a finished run or other files, or, without `resume`,
    an unfinished run. With `resume`, a folder without a run gets a new one. Resuming needs the same
    settings (UsageError) and the same `facts["data"]` (DataError); other facts that differ are
    added to run.json.
    """
    run = Run(Path(out))
    settings, facts = _as_json(settings), _as_json(facts)  # fails before anything is written
    _make_folder(run.path)
    if not os.path.exists(run.path / "run.json"):
        _ensure_vacant(run.path)
        _write_object(run.path / "run.json", _run_document(facts, []))  # first: it marks the run
        _write_object(run.path / SETTINGS_FILE, settings)
        return run
    document = _read_run_document(run.path)
    ensure_open(run.path, resume=resume)
    _resume(run, document, settings, facts)
    return run


def ensure_open(
    out: str | Path, *, resume: bool = False, remedy: str = "continue it with --resume"
) -> None:
    """Raise an OutputError for a folder that `create` would refuse because of its content.

    `remedy` says how to continue an unfinished run.
    """
    run = Run(Path(out))
    if not os.path.exists(run.path / "run.json"):
        ensure_new(run.path)
    elif run.is_finished:
        raise OutputError(
            f"{run.path}: has a finished run, which is never overwritten; name a new folder"
        )
    elif not resume:
        raise OutputError(f"{run.path}: has an unfinished run; {remedy}")


def ensure_new(out: str | Path) -> None:
    """Raise an OutputError if a folder for a new run holds a run or anything else."""
    path = Path(out)
    if os.path.exists(path / "run.json"):
        raise OutputError(
            f"{path}: has a run already, which is never overwritten; name a new folder"
        )
    if os.path.exists(path):
        _ensure_folder(path)
        _ensure_vacant(path)


@contextmanager
def sole_writer(out: str | Path) -> Iterator[None]:
    """Lock the folder of a run for writing while the block lasts; creates the folder.

    Raises an OutputError if another process holds the lock, or if the folder holds something else
    than a run. The lock ends with the process.
    """
    path = Path(out)
    _make_folder(path)
    if not os.path.exists(path / "run.json"):
        _ensure_vacant(path)  # so that no lock file is created in a foreign folder
    lock = path / LOCK_FILE
    with require_lock(
        _touch(lock), f"{path}: another process is writing into this run; try again later"
    ):
        remove_leftovers(path)
        try:
            yield
        finally:
            if Run(path).is_finished:  # it cannot be resumed
                lock.unlink(missing_ok=True)


def remove_lock(run: Run) -> None:
    """Remove the lock file that a killed process left in a finished run, unless it is held."""
    with suppress(OSError), try_lock(run.path / LOCK_FILE) as is_locked:
        if is_locked:
            (run.path / LOCK_FILE).unlink()


def remove_unstarted(run: Run) -> None:
    """Remove the folder of a run that failed before its first step.

    A folder that holds more than the initial files and an empty ledger stays.
    """
    ledger = run.path / "ledger"
    with suppress(OSError):
        if {entry.name for entry in run.path.iterdir()} <= {*INITIAL_FILES, ledger.name}:
            if ledger.exists():
                ledger.rmdir()  # fails if it is not empty
            for name in INITIAL_FILES:
                (run.path / name).unlink(missing_ok=True)
            run.path.rmdir()


def open_run(out: str | Path) -> Run:
    """Open the folder of a run, finished or not, for reading."""
    run = Run(Path(out))
    if not os.path.exists(run.path):
        raise UsageError(f"{run.path}: no such folder; check the path")
    if not os.path.exists(run.path / "run.json"):
        raise DataError(
            f"{run.path}: has no run.json, so it is not the folder of a run; check the path"
        )
    _read_run_document(run.path)
    return run


def _resume(run: Run, document: Record, settings: Record, facts: Record) -> None:
    """Check that settings and data are those of the unfinished run, and prepare its folder."""
    if os.path.exists(run.path / SETTINGS_FILE):
        _refuse_other_settings(run, settings)
    else:  # killed before it was written
        _write_object(run.path / SETTINGS_FILE, settings)
    first, resumed_on = document["facts"], document["resumed_on"]
    if first.get(DATA_KEY) != facts.get(DATA_KEY):
        raise DataError(
            f"{run.path}: the data differ from those that the run started with; restore them, or "
            "train into a new folder"
        )
    if facts != (resumed_on[-1] if resumed_on else first):
        _write_object(run.path / "run.json", _run_document(first, [*resumed_on, facts]))
    metric_lines.drop_torn_line(run.path / METRICS_FILE)


def _refuse_other_settings(run: Run, settings: Record) -> None:
    before, now = _flatten(run.settings()), _flatten(settings)
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if names:
        listing = "".join(
            f"\n  {name}: {before.get(name)!r}, now {now.get(name)!r}" for name in names
        )
        raise UsageError(
            f"{run.path}: the run started with other settings:{listing}\n"
            "Give the first ones to continue, or train into a new folder."
        )


def _flatten(tree: Record, prefix: str = "") -> Record:
    """Return nested settings by their dotted names."""
    leaves: Record = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            leaves |= _flatten(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def _ensure_folder(path: Path) -> None:
    if os.path.exists(path) and not os.path.isdir(path):
        raise OutputError(f"{path}: exists and is not a folder; name a new folder")


def _make_folder(path: Path) -> None:
    _ensure_folder(path)
    with wrap_os_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def _touch(path: Path) -> Path:
    """Create an empty file unless it exists."""
    with wrap_os_errors(path.parent):
        path.touch()
    return path


def _ensure_vacant(path: Path) -> None:
    """Raise an OutputError for a folder with files, except those of a run killed at its start."""
    with wrap_os_errors(path):
        names = sorted(entry.name for entry in path.iterdir())
        foreign = [name for name in names if name != LOCK_FILE and not is_temporary(name)]
    if foreign:
        raise OutputError(
            f"{path}: is not the folder of a run, and not empty ({foreign[0]}); name a new folder"
        )


def _run_document(facts: Record, resumed_on: list[Any]) -> Record:
    return {FORMAT_KEY: FORMAT_VERSION, "facts": facts, "resumed_on": resumed_on}


def _read_run_document(path: Path) -> Record:
    document = _read_object(path / "run.json")
    if document.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(
            f"{path / 'run.json'}: is not a run of format {FORMAT_VERSION}; use the version of "
            "boxmend that wrote it"
        )
    if not (
        isinstance(document.get("facts"), dict) and isinstance(document.get("resumed_on"), list)
    ):
        raise DataError(f"{path / 'run.json'}: has no facts; {REMEDY}")
    return document


def _write_object(path: Path, value: Record) -> None:
    content = _encode(value, indent=2)
    with open_atomic(path) as file:
        file.write(content if path.name == SETTINGS_FILE else add_json_digest(content))


def _read_object(path: Path) -> Record:
    try:
        content = read_record(path)
        if path.name != SETTINGS_FILE:
            content = verify_json(path, content, REMEDY)
        value = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise _make_read_error(path, error) from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: is not a JSON object; {REMEDY}")
    return value


def _as_json(value: Mapping[str, Any]) -> Record:
    """Return a value as JSON represents it."""
    decoded: Record = json.loads(_encode(_to_plain(value)))
    return decoded


def _encode(value: Any, indent: int | None = None) -> bytes:
    """Encode a value as strict JSON with a line end."""
    return encode_json(value, indent=indent) + b"\n"


def _to_plain(value: Any) -> Any:
    """Convert a value to JSON's types as far as possible."""
    if isinstance(value, Mapping):
        return {str(name): _to_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _replace_nonfinite(value: Any) -> Any:
    """Replace every NaN and infinity in a plain value by None."""
    if isinstance(value, dict):
        return {name: _replace_nonfinite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _make_read_error(path: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"{path}: cannot be read ({reason}); {REMEDY}")
