"""The audit suite: all regimes and seeds on one dataset, resumable by regime and seed."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import boxmend
from boxmend.auditing.predictions import ResolvedPredictions
from boxmend.bench.audit.regimes import Regime
from boxmend.bench.audit.suite_cell import measure_cell
from boxmend.data.dataset import Dataset
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import (
    DamagedError,
    add_json_digest,
    make_damage_error,
    split_json_digest,
)
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.reading import read_record
from boxmend.data.fingerprint import fingerprint
from boxmend.data.progress import Progress
from boxmend.errors import DataError, UsageError

MEASURED_CODE = ("auditing", "bench/audit", "data/noise", "scoring")  # determines the figures
REMEDY = "remove the file; the suite then measures that cell again"


@dataclass(frozen=True, eq=False)
class SuiteInputs:
    """The inputs that all cells share."""

    dataset: Dataset
    predictions: ResolvedPredictions
    regimes: tuple[Regime, ...]
    seeds: tuple[int, ...]

    def identity(self) -> dict[str, str]:
        """Return everything that determines the figures of a cell except its regime and seed."""
        digest = hashlib.sha256()
        detections = self.predictions
        for column in (
            detections.image_rows,
            detections.labels,
            detections.scores,
            detections.boxes,
        ):
            digest.update(np.ascontiguousarray(column, np.float64).tobytes())
        return {
            "data_sha256": fingerprint(self.dataset),
            "predictions_sha256": digest.hexdigest(),
            "code_sha256": _digest_code(),
            **{name: version(name) for name in ("boxmend", "cleanlab", "hotcoco")},
        }


def run_suite(inputs: SuiteInputs, out: Path | None, report: Progress) -> list[dict[str, Any]]:
    """Measure all cells that `out` does not have, and return all of them.

    Each cell is a JSON file in `out`. A cell that another version of the code measured, or on other
    data, raises a UsageError.
    """
    identity = inputs.identity()
    cells = list(_read_or_measure(inputs, identity, out, report))
    return [{name: cell[name] for name in cell if name != "identity"} for cell in cells]


def _read_or_measure(
    inputs: SuiteInputs, identity: dict[str, str], out: Path | None, report: Progress
) -> Iterator[dict[str, Any]]:
    total = len(inputs.regimes) * len(inputs.seeds)
    done = 0
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    for regime in inputs.regimes:
        for seed in inputs.seeds:
            report(done, total)
            path = None if out is None else out / f"{regime.name}-{seed}.json"
            if path is not None and path.exists():
                yield read_cell(path, identity, regime.with_seed(seed).to_json())
            else:
                cell = measure_cell(inputs.dataset, inputs.predictions, regime, seed)
                cell["identity"] = identity
                if path is not None:
                    write_cell(path, cell)
                yield cell
            done += 1
    report(done, total)


def write_cell(path: Path, cell: dict[str, Any]) -> None:
    """Write a cell with its digest."""
    with open_atomic(path) as file:
        file.write(add_json_digest(encode_json(cell, indent=1)))


def read_cell(path: Path, identity: dict[str, str], settings: dict[str, Any]) -> dict[str, Any]:
    """Read a finished cell; raise an error if it is damaged, or of other settings, data or code."""
    try:
        text = split_json_digest(read_record(path))
    except DamagedError as error:
        raise make_damage_error(path, REMEDY) from error
    if text is None:
        raise DataError(f"{path}: has no digest, so the suite did not write it; {REMEDY}")
    cell: dict[str, Any] = json.loads(text)
    known = cell["identity"] | {"settings": cell["settings"]}
    expected = identity | {"settings": settings}
    changed = [name for name, value in expected.items() if known.get(name) != value]
    if changed:
        raise UsageError(
            f"{path}: this cell was measured with another {changed[0]}; "
            "choose a new folder by --out"
        )
    return cell


def _digest_code() -> str:
    """Return a hash of the source files that determine the figures."""
    digest = hashlib.sha256()
    root = Path(boxmend.__file__).parent
    for package in MEASURED_CODE:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def parse_seeds(number: int, first: int) -> tuple[int, ...]:
    """Return `number` seeds from `first` on; raise a UsageError without any, or if one is < 0."""
    if number < 1 or first < 0:
        raise UsageError(
            f"--seeds is {number} and --first-seed is {first}; expected at least one seed, "
            "from 0 on"
        )
    return tuple(range(first, first + number))


def parse_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in texts like "clean,pair-3"."""
    return tuple(name for text in texts for name in text.split(",") if name)
