"""The job of a cell, saved in the folder of the cell, and the state of the cell.

OUT/SCALE/cells/CELL/cell.json    the job: resolved settings, hashes and addresses of the data
OUT/SCALE/cells/CELL/run/         the run of the training
OUT/SCALE/cells/CELL/log.txt      the output of all tries
OUT/SCALE/cells/CELL/tries.json   the number of tries, and their seconds
OUT/SCALE/cells/CELL/artifacts/   figures and a picture, small enough to copy elsewhere
OUT/SCALE/cells/CELL/result.json  its line of OUT/SCALE/results.jsonl, once it is over
OUT/SCALE/cells/CELL/.lock        held by the process that runs it
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from boxmend.bench.grids.results import Result, Setting, decode_result
from boxmend.bench.grids.table_spec import GIVEN_TRUE_RATES
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import add_json_digest, verify_json
from boxmend.data.files.locks import is_held
from boxmend.data.files.reading import read_record
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings import TrainSettings
from boxmend.runs.settings.renamed import rename_dotted, rename_settings
from boxmend.runs.settings.training import METHOD_SECTIONS, PUBLISHED

JOB_FILE, RESULT_FILE, TRIES_FILE, LOG_FILE = "cell.json", "result.json", "tries.json", "log.txt"
LOCK_FILE = ".lock"
RUN_FOLDER = "run"
SHARED_SECTIONS = {"optimisation"}  # sections of the settings that apply to all methods
RENAMED_KEYS = {"told": "known_rates"}
"""Keys of cell.json by their names in format 1."""

T = TypeVar("T")


class State(Enum):
    """The state of a cell."""

    OPEN = "open"
    """Not started."""
    RUNNING = "running"
    """A process runs it, here or elsewhere."""
    STOPPED = "stopped"
    """Interrupted or killed; it continues from its checkpoint."""
    DONE = "done"
    FAILED = "failed"
    """Ended by an error, which is in its result."""


class Job(Struct, frozen=True, kw_only=True):
    """The inputs of the process of a cell."""

    cell: str
    scale: str
    labels: str | None
    boxes: str | None
    noise_seed: int
    noise_folder: str
    method: str
    variant: dict[str, Setting]
    seed: int
    settings: dict[str, Any]
    """Resolved settings, nested as in `settings.json` of a run."""
    known_rates: str
    """The noise rates that the method knows, as text."""
    train: list[str]
    """Addresses of the clean data."""
    val: list[str]
    train_sha256: str
    val_sha256: str
    weights_sha256: str | None = None
    """Hash of the file of weights, if there is one."""
    presence: str | None = None
    """missing:RATE, spurious:RATE or una:RATE."""
    needs: str | None = None
    """The cell on whose mended annotations this one is trained."""
    keep_weights: bool = False
    keep_figures: bool = False
    """Whether the cell writes figures and a picture into `artifacts/`."""
    format: Literal[2] = 2
    """The format of the file. Format 1 is read through RENAMED_KEYS; other formats are refused."""


class Tries(Struct, frozen=True):
    """The number of starts of a cell, and their duration."""

    number: int = 0
    seconds: float = 0.0
    """Duration of all tries; a few seconds too low after a kill."""


def describe_rates(method: str, settings: TrainSettings) -> str:
    """Return a text about the noise rates that a method knows."""
    rates = (settings.label_noise, settings.box_noise)
    if all(rate == "auto" for rate in rates):
        return "none"
    true = " (the true ones)" if method in GIVEN_TRUE_RATES else ""
    return f"labels {rates[0]}, boxes {rates[1]}{true}"


def save_job(folder: Path, job: Job) -> None:
    """Write or update cell.json; raise a UsageError if the cell was started with another job.

    A cell that was not started takes any job. A started cell keeps its settings; the addresses of
    the same data may change.
    """
    if (folder / JOB_FILE).exists():
        before = read_job(folder)
        if before == job:
            return
        if is_started(folder):
            _refuse_other(folder, before, job)
            # It keeps all settings of its start, even those that its method does not use.
            job = msgspec.structs.replace(job, settings=before.settings)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JOB_FILE, job)


def read_job(folder: Path) -> Job:
    """Read cell.json, also in format 1; raise a DataError if it is not a job."""
    path = folder / JOB_FILE
    keys = read_json(path, dict[str, Any])
    if "format" not in keys:
        keys = {RENAMED_KEYS.get(name, name): value for name, value in keys.items()}
    try:
        job = msgspec.convert(keys, Job)
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: cannot be read ({error}); {_remedy(path)}") from error
    return msgspec.structs.replace(
        job, settings=rename_settings(job.settings), variant=rename_dotted(job.variant)
    )


def is_started(folder: Path) -> bool:
    """Return whether a cell has a run or a result."""
    return (folder / RUN_FOLDER).exists() or (folder / RESULT_FILE).exists()


def state_of(folder: Path) -> State:
    """Return the state of the cell in a folder."""
    if is_held(folder / LOCK_FILE):
        return State.RUNNING
    result = read_result(folder)
    if result is not None:
        return State.DONE if result.error is None else State.FAILED
    return State.STOPPED if (folder / RUN_FOLDER).exists() else State.OPEN


def read_result(folder: Path) -> Result | None:
    """Read the result of a cell; None if the cell is not over."""
    path = folder / RESULT_FILE
    return _read_document(path, decode_result) if path.exists() else None


def read_tries(folder: Path) -> Tries:
    """Read how often a cell was started."""
    path = folder / TRIES_FILE
    return read_json(path, Tries) if path.exists() else Tries()


def write_json(path: Path, value: Struct) -> None:
    """Write a value as JSON with a digest; replaces the file."""
    with open_atomic(path) as file:
        file.write(add_json_digest(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def read_json(path: Path, kind: type[T]) -> T:
    """Read a value of a type from JSON; raise a DataError with the path if that fails."""
    return _read_document(path, lambda content: msgspec.json.decode(content, type=kind))


def _read_document(path: Path, decode: Callable[[bytes], T]) -> T:
    remedy = _remedy(path)
    try:
        return decode(verify_json(path, read_record(path), remedy))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}); {remedy}") from error


def _remedy(path: Path) -> str:
    return f"remove {path.parent} to run the cell again"


def own_settings(settings: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return the settings without the sections of other methods.

    Weights are reduced to the name of their file, since their folder differs between machines.
    """
    section = METHOD_SECTIONS.get(method, PUBLISHED)
    kept = {
        name: value
        for name, value in settings.items()
        if not isinstance(value, Mapping) or name in {section, *SHARED_SECTIONS}
    }
    if isinstance(kept.get("weights"), str):
        kept["weights"] = Path(kept["weights"]).name
    return kept


def job_differences(before: Job, now: Job) -> list[str]:
    """List the differences between two jobs of a cell on which its result depends."""
    facts = ("labels", "boxes", "presence", "noise_seed", "method", "seed", "needs")
    data = ("train_sha256", "val_sha256", "weights_sha256")
    differences = [
        f"{name}: {getattr(before, name)!r}, now {getattr(now, name)!r}"
        for name in (*facts, *data)
        if getattr(before, name) != getattr(now, name)
    ]
    method = str(now.settings.get("method"))
    defaults = flatten(asdict(TrainSettings()))
    old, new = (flatten(own_settings(job.settings, method)) for job in (before, now))
    for name in {**old, **new}:
        values = [settings.get(name, defaults.get(name)) for settings in (old, new)]
        if values[0] != values[1]:
            differences.append(f"{name}: {values[0]!r}, now {values[1]!r}")
    return differences


def _refuse_other(folder: Path, before: Job, now: Job) -> None:
    listing = "".join(f"\n  {line}" for line in job_differences(before, now))
    if listing:
        raise UsageError(
            f"{folder}: this cell was run with other settings or data:{listing}\n"
            "Name another folder by --out, or use the settings and data of that run."
        )


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by their dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flatten(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves
