"""What a cell is told, saved in its folder, and what became of it so far.

OUT/SCALE/cells/CELL/cell.json    the job: settings resolved, hashes and addresses of the data
OUT/SCALE/cells/CELL/run/         the training's run
OUT/SCALE/cells/CELL/log.txt      what it said, try after try
OUT/SCALE/cells/CELL/tries.json   how often it was begun, and how long it took in all
OUT/SCALE/cells/CELL/keep/        figures and a picture, small enough to be brought elsewhere
OUT/SCALE/cells/CELL/result.json  its line of OUT/SCALE/results.jsonl, when it is over
OUT/SCALE/cells/CELL/.lock        held by the process that runs it
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

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
SHARED_SECTIONS = {"optimisation"}  # of the settings: for all methods

T = TypeVar("T")


class State(Enum):
    """How far a cell is."""

    OPEN = "open"
    """Not begun."""
    RUNNING = "running"
    """A process has it, here or elsewhere."""
    STOPPED = "stopped"
    """Begun and interrupted or killed; it goes on from its checkpoint."""
    DONE = "done"
    FAILED = "failed"
    """Ended by an error, which is recorded."""


class Job(Struct, frozen=True, kw_only=True):
    """One cell, with all that its process needs to know."""

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
    """Resolved, nested as `settings.json` of a run has them."""
    told: str
    """Which noise rates the method is told."""
    train: list[str]
    """Addresses of the clean data."""
    val: list[str]
    train_sha256: str
    val_sha256: str
    weights_sha256: str | None = None
    """Of the file of weights, where there is one."""
    presence: str | None = None
    """missing:RATE or spurious:RATE."""
    needs: str | None = None
    """The cell whose mended annotations this one is trained on."""
    keep_weights: bool = False
    keep_figures: bool = False
    """Whether figures and a picture are left in `keep/`."""


class Tries(Struct, frozen=True):
    """How often a cell was begun."""

    number: int = 0
    seconds: float = 0.0
    """Of all tries, to within a few seconds where one was killed."""


def rates_told(method: str, settings: TrainSettings) -> str:
    """Say in words which noise rates a method is told."""
    rates = (settings.label_noise, settings.box_noise)
    if all(rate == "auto" for rate in rates):
        return "none"
    true = " (the true ones)" if method in GIVEN_TRUE_RATES else ""
    return f"labels {rates[0]}, boxes {rates[1]}{true}"


def save_job(folder: Path, job: Job) -> None:
    """Write cell.json, or bring it up to date; a UsageError tells of one of another job.

    A cell that was not begun takes any job. One that was begun keeps its settings, and addresses
    of the same data may be new.
    """
    if (folder / JOB_FILE).exists():
        before = read_job(folder)
        if before == job:
            return
        if is_begun(folder):
            _refuse_other(folder, before, job)
            # What it was begun with goes on, also of settings that do not matter to its method.
            job = msgspec.structs.replace(job, settings=before.settings)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / JOB_FILE, job)


def read_job(folder: Path) -> Job:
    """Read cell.json; a DataError tells of one that is none."""
    job = read_json(folder / JOB_FILE, Job)
    return msgspec.structs.replace(
        job, settings=rename_settings(job.settings), variant=rename_dotted(job.variant)
    )


def is_begun(folder: Path) -> bool:
    """Tell whether a cell left anything behind."""
    return (folder / RUN_FOLDER).exists() or (folder / RESULT_FILE).exists()


def state_of(folder: Path) -> State:
    """Tell how far a cell is, by its folder."""
    if is_held(folder / LOCK_FILE):
        return State.RUNNING
    result = read_result(folder)
    if result is not None:
        return State.DONE if result.error is None else State.FAILED
    return State.STOPPED if (folder / RUN_FOLDER).exists() else State.OPEN


def read_result(folder: Path) -> Result | None:
    """Read the result of a cell that is over."""
    path = folder / RESULT_FILE
    return _read_document(path, decode_result) if path.exists() else None


def read_tries(folder: Path) -> Tries:
    """Read how often a cell was begun."""
    path = folder / TRIES_FILE
    return read_json(path, Tries) if path.exists() else Tries()


def write_json(path: Path, value: Struct) -> None:
    """Write a document in the place of the last one."""
    with open_atomic(path) as file:
        file.write(add_json_digest(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def read_json(path: Path, kind: type[T]) -> T:
    """Read a document of a kind; a DataError names the file."""
    return _read_document(path, lambda content: msgspec.json.decode(content, type=kind))


def _read_document(path: Path, decode: Callable[[bytes], T]) -> T:
    remedy = f"remove {path.parent}, and the cell is run afresh"
    try:
        return decode(verify_json(path, read_record(path), remedy))
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: cannot be read ({reason}); {remedy}") from error


def own_settings(settings: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Leave out the sections of settings that are those of other methods.

    Weights, which may lie elsewhere on each machine, go by the name of their file.
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


def differences(before: Job, now: Job) -> list[str]:
    """List what differs between two jobs of one name, of what a result depends on."""
    facts = ("labels", "boxes", "presence", "noise_seed", "method", "seed", "needs")
    data = ("train_sha256", "val_sha256", "weights_sha256")
    found = [
        f"{name}: {getattr(before, name)!r}, now {getattr(now, name)!r}"
        for name in (*facts, *data)
        if getattr(before, name) != getattr(now, name)
    ]
    method = str(now.settings.get("method"))
    usual = flat(asdict(TrainSettings()))
    was, here = (flat(own_settings(one.settings, method)) for one in (before, now))
    for name in {**was, **here}:
        values = [one.get(name, usual.get(name)) for one in (was, here)]
        if values[0] != values[1]:
            found.append(f"{name}: {values[0]!r}, now {values[1]!r}")
    return found


def _refuse_other(folder: Path, before: Job, now: Job) -> None:
    listing = "".join(f"\n  {line}" for line in differences(before, now))
    if listing:
        raise UsageError(
            f"{folder}: this cell was run with other settings or data, and what differs is never "
            f"mixed:{listing}\nName another folder by --out, or give what it was run with."
        )


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give nested values by their dotted names."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{name}.")
        else:
            leaves[f"{prefix}{name}"] = value
    return leaves
