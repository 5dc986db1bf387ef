"""A run's folder: what a training was told, what it ran on, and how it went.

    RUN/run.json        what it ran on: versions, seed, hardware, data; marks the folder as a run
    RUN/settings.json   the settings, resolved; without a digest, as people may edit it
    RUN/metrics.jsonl   one JSON object per line, each with its "step"
    RUN/ledger/         what happened to each annotation (`boxmend.runs.ledger`)
    RUN/finished        there when all is done
    RUN/evaluation.json, mending.json   what `boxmend evaluate` found, if it was asked
    RUN/.lock           held by the process that writes, if any

JSON files are written beside and renamed, so that a kill leaves the old one or the new one. Of
`metrics.jsonl` a kill can tear the last line, which a resumed run drops. In metrics, numbers that
JSON cannot express (NaN and infinities) become null; in settings and facts they are a ValueError.
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
UNBEGUN = ("settings.json", "run.json", LOCK_FILE)
"""What a run has before its first step; removed in this order, it is at any time a run or none."""
METRICS_FILE = "metrics.jsonl"
EVALUATION_FILE = "evaluation.json"
MENDING_FILE = "mending.json"
SETTINGS_FILE = "settings.json"  # without a digest: people may edit it
REMEDY = "put a copy of it back, or write it again with the command that wrote it"
DATA_KEY = "data"  # of the facts: addresses and hashes, which must not differ on resuming

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The folder of a run; `create` or `open_run` gives one. All state is on disk."""

    path: Path

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end."""
        return os.path.exists(self.path / "finished")

    def settings(self) -> Record:
        """Return the resolved settings, by their present names where the run is an earlier one."""
        return rename_settings(_read_object(self.path / SETTINGS_FILE))

    def facts(self) -> Record:
        """What the run was begun on."""
        facts: Record = _run_document(self.path)["facts"]
        return facts

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line to `metrics.jsonl`; the record must have an integer "step"."""
        plain = _finite(_plain(record))
        if not metric_lines.is_step(plain.get("step")):
            raise ValueError(f"metrics need an integer 'step', got {record.get('step')!r}")
        metric_lines.append(self.path / METRICS_FILE, _dumped(plain))

    def metrics(self) -> list[Record]:
        """All lines of `metrics.jsonl`; one that was torn off at the end is left out."""
        return [record for _, record in metric_lines.read(self.path / METRICS_FILE)]

    def sync_metrics(self) -> int:
        """Put `metrics.jsonl` on disk, as a checkpoint counts on it; returns its size in bytes."""
        return metric_lines.sync(self.path / METRICS_FILE)

    def rewind_metrics(self, step: int | None, num_bytes: int | None = None) -> None:
        """Remove the lines after a checkpoint of `step`; see `metric_lines.rewind`."""
        metric_lines.rewind(self.path / METRICS_FILE, step, num_bytes)

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Write a document about the run into its folder, in the place of one from before."""
        _write_object(self.path / name, _finite(_plain(document)))

    def read_json(self, name: str) -> Record | None:
        """A document of `write_json`; None where there is none, a DataError for anything else."""
        path = self.path / name
        return _read_object(path) if os.path.exists(path) else None

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """Mark the run as finished; the marker holds the summary."""
        _write_object(self.path / "finished", _finite(_plain(summary or {})))

    def summary(self) -> Record:
        """What `finish` was given; a DataError while the run is not finished."""
        return _read_object(self.path / "finished")


def create(
    out: str | Path,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    *,
    resume: bool = False,
) -> Run:
    """Make a folder for a new run, or take up an unfinished one.

    An OutputError protects everything that is there already: a finished run, files that are no
    run, and, without `resume`, an unfinished run. With `resume` a folder where nothing was begun
    is begun. An unfinished run is taken up only with the same settings (UsageError) and the same
    `facts["data"]` (DataError); other facts that differ are added to run.json.
    """
    run = Run(Path(out))
    told = _json_of(settings), _json_of(facts)  # what is no JSON fails before anything is there
    _make_folder(run.path)
    if not os.path.exists(run.path / "run.json"):
        _ensure_vacant(run.path)
        _write_object(run.path / "run.json", _document(told[1], []))  # first: it marks the run
        _write_object(run.path / SETTINGS_FILE, told[0])
        return run
    document = _run_document(run.path)
    ensure_open(run.path, resume=resume)
    _take_up(run, document, *told)
    return run


def ensure_open(out: str | Path, *, resume: bool = False) -> None:
    """Refuse a folder that `create` would refuse for what is in it, before anything is made."""
    run = Run(Path(out))
    if not os.path.exists(run.path / "run.json"):
        ensure_new(run.path)
    elif run.is_finished:
        raise OutputError(f"{run.path}: holds a finished run, which is never overwritten")
    elif not resume:
        raise OutputError(f"{run.path}: holds an unfinished run; go on with --resume")


def ensure_new(out: str | Path) -> None:
    """Refuse a folder for a new run that holds one already, or anything else."""
    path = Path(out)
    if os.path.exists(path / "run.json"):
        raise OutputError(
            f"{path}: holds a run already, which is never overwritten; name a new one"
        )
    if os.path.exists(path):
        if not os.path.isdir(path):
            raise OutputError(f"{path}: is there already and not a folder; name a new one")
        _ensure_vacant(path)


@contextmanager
def sole_writer(out: str | Path) -> Iterator[None]:
    """Keep other processes from writing into the folder of a run while the block lasts.

    Makes the folder. An OutputError says that another process holds it, or that it holds other
    things than a run. The lock goes with the process, however that ends.
    """
    path = Path(out)
    _make_folder(path)
    if not os.path.exists(path / "run.json"):
        _ensure_vacant(path)  # leave no lock in a folder that is none of ours
    lock = path / LOCK_FILE
    with require_lock(_touched(lock), f"{path}: another process is writing into this run"):
        remove_leftovers(path)
        try:
            yield
        finally:
            if Run(path).is_finished:  # a training will not go on in it
                lock.unlink(missing_ok=True)


def remove_lock(run: Run) -> None:
    """Remove the lock file of a finished run, which a kill left, unless a process holds it."""
    with suppress(OSError), try_lock(run.path / LOCK_FILE) as is_locked:
        if is_locked:
            (run.path / LOCK_FILE).unlink()


def withdraw(run: Run) -> None:
    """Remove the folder of a run that came to nothing before its first step.

    It stays where there is more in it than what `create` and an empty ledger put there.
    """
    ledger = run.path / "ledger"
    with suppress(OSError):
        if {entry.name for entry in run.path.iterdir()} <= {*UNBEGUN, ledger.name}:
            if ledger.exists():
                ledger.rmdir()  # fails where there is something in it
            for name in UNBEGUN:
                (run.path / name).unlink(missing_ok=True)
            run.path.rmdir()


def open_run(out: str | Path) -> Run:
    """Open the folder of a run, finished or not, to read it."""
    run = Run(Path(out))
    if not os.path.exists(run.path):
        raise UsageError(f"{run.path}: no such folder")
    if not os.path.exists(run.path / "run.json"):
        raise DataError(f"{run.path}: holds no run (there is no run.json)")
    _run_document(run.path)
    return run


def _take_up(run: Run, document: Record, settings: Record, facts: Record) -> None:
    """Check that an unfinished run is the same run, and make its folder ready to go on."""
    if os.path.exists(run.path / SETTINGS_FILE):
        _refuse_other_settings(run, settings)
    else:  # killed before it was written, so nothing has begun
        _write_object(run.path / SETTINGS_FILE, settings)
    first, history = document["facts"], document["resumed_on"]
    if first.get(DATA_KEY) != facts.get(DATA_KEY):
        raise DataError(f"{run.path}: the data differ from those the run was begun with")
    if facts != (history[-1] if history else first):
        _write_object(run.path / "run.json", _document(first, [*history, facts]))
    metric_lines.drop_torn_line(run.path / METRICS_FILE)


def _refuse_other_settings(run: Run, settings: Record) -> None:
    before, here = _flat(run.settings()), _flat(settings)
    names = [name for name in {**before, **here} if before.get(name) != here.get(name)]
    if names:
        listing = "".join(
            f"\n  {name}: {before.get(name)!r}, now {here.get(name)!r}" for name in names
        )
        raise UsageError(f"{run.path}: the run was begun with other settings:{listing}")


def _flat(tree: Record, prefix: str = "") -> Record:
    """Nested settings by their dotted names."""
    leaves: Record = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            leaves |= _flat(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves


def _make_folder(path: Path) -> None:
    if os.path.exists(path) and not os.path.isdir(path):
        raise OutputError(f"{path}: is there already and not a folder; name a new one")
    with wrap_os_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def _touched(path: Path) -> Path:
    """Make an empty file unless it exists."""
    with wrap_os_errors(path.parent):
        path.touch()
    return path


def _ensure_vacant(path: Path) -> None:
    """Refuse a folder with anything in it but the remains of a run killed as it began."""
    with wrap_os_errors(path):
        names = sorted(one.name for one in path.iterdir())
        found = [name for name in names if name != LOCK_FILE and not is_temporary(name)]
    if found:
        raise OutputError(
            f"{path}: the folder is not empty and holds no run ({found[0]}); name a new one"
        )


def _document(facts: Record, resumed_on: list[Any]) -> Record:
    return {FORMAT_KEY: FORMAT_VERSION, "facts": facts, "resumed_on": resumed_on}


def _run_document(path: Path) -> Record:
    document = _read_object(path / "run.json")
    if document.get(FORMAT_KEY) != FORMAT_VERSION:
        raise DataError(f"{path / 'run.json'}: is not of a run of version {FORMAT_VERSION}")
    if not (
        isinstance(document.get("facts"), dict) and isinstance(document.get("resumed_on"), list)
    ):
        raise DataError(f"{path / 'run.json'}: its facts are missing")
    return document


def _write_object(path: Path, value: Record) -> None:
    content = _dumped(value, indent=2)
    with open_atomic(path) as file:
        file.write(content if path.name == SETTINGS_FILE else add_json_digest(content))


def _read_object(path: Path) -> Record:
    try:
        content = read_record(path)
        if path.name != SETTINGS_FILE:
            content = verify_json(path, content, REMEDY)
        value = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise _not_read(path, error) from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: holds no JSON object")
    return value


def _json_of(value: Mapping[str, Any]) -> Record:
    """The value as it will be read back."""
    told: Record = json.loads(_dumped(_plain(value)))
    return told


def _dumped(value: Any, indent: int | None = None) -> bytes:
    """Encode a value as strict JSON with a line end."""
    return encode_json(value, indent=indent) + b"\n"


def _plain(value: Any) -> Any:
    """The value in JSON's own types where it can be told in them, else as it is."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _finite(value: Any) -> Any:
    """A plain value with None for every number that is not finite."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _not_read(path: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"{path}: cannot be read ({reason}); {REMEDY}")
