"""A training run in Python: its ledger, metrics, rates and changes as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from boxmend.data.dataset import Dataset
from boxmend.data.formats.writing import native_format
from boxmend.data.table import Table, make_table
from boxmend.errors import UsageError
from boxmend.repair.changes import ApplySettings
from boxmend.repair.from_visits import changes_from_ledger
from boxmend.repair.mended import MendedDataset, make_mended
from boxmend.runs import ledger
from boxmend.runs.folder import Run
from boxmend.runs.opening import is_audit, open_finished_run, read_dataset

RATES = {"label_noise": "wrong label", "box_noise": "box noise"}


@dataclass(frozen=True)
class TrainedRun(Run):
    """The folder of a finished training run, with its results as tables."""

    data: Dataset | str | Sequence[str] | None = field(default=None, repr=False, compare=False)
    """The dataset, or its present address if it was moved since; checked when it is used."""

    @property
    def ledger(self) -> Table:
        """Every visit of every annotation; `boxmend.runs.ledger.read` reads only some columns."""
        return Table(ledger.read(self.path), "visits")

    @property
    def metrics(self) -> Table:
        """The lines of `metrics.jsonl`; a figure that a line does not have is null."""
        records = self.read_metrics()
        names = dict.fromkeys(name for record in records for name in record)
        columns = {name: _to_column([record.get(name) for record in records]) for name in names}
        return make_table(columns, "lines")

    @property
    def rates(self) -> Table:
        """The estimated noise with 95% intervals; empty if the method estimates none.

        Box noise is the bound of the usual error of an edge, as a share of the box's side.
        """
        noise = self.summary().get("noise") or {}
        known = [name for name in RATES if name in noise]
        columns: dict[str, Any] = {"kind": pa.array([RATES[name] for name in known], pa.string())}
        for column, suffix in (("rate", ""), ("low", "_low"), ("high", "_high")):
            columns[column] = pa.array([noise.get(name + suffix) for name in known], pa.float64())
        return make_table(columns, "rates", {"kind": tuple(RATES.values())})

    @property
    def changes(self) -> Table:
        """The changes that `boxmend apply` makes without options, with their reasons."""
        return self.mended().changes

    @cached_property
    def dataset(self) -> Dataset:
        """The dataset that the run was trained on."""
        return read_dataset(self, self.data)

    def mended(self, settings: ApplySettings | None = None) -> MendedDataset:
        """Return the dataset with the changes of the ledger, as `boxmend apply` writes them."""
        settings = settings or ApplySettings()
        if settings.precision is not None:
            raise UsageError("a precision is for fixes: audit the run, then call boxmend.apply")
        settings.check_for_settling()
        changes = changes_from_ledger(self, self.dataset, settings)
        return make_mended(self.dataset, changes, native_format(self.dataset))

    def __repr__(self) -> str:
        state = "finished" if self.is_finished else "unfinished"
        return f"TrainedRun({str(self.path)!r}, {state})"


def open_run(path: str | Path, data: Dataset | str | Sequence[str] | None = None) -> TrainedRun:
    """Open a finished training run; `data` is its dataset, or the present address of it."""
    run = open_finished_run(path)
    if is_audit(run):
        raise UsageError(f"{run.path}: is an audit, not a training run")
    return TrainedRun(run.path, data)


def _to_column(values: list[Any]) -> pa.Array:
    """Return an Arrow array; values of several types become JSON texts."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError):
        texts = [None if value is None else json.dumps(value) for value in values]
        return pa.array(texts, pa.string())
