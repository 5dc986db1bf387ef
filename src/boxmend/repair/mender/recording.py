"""Write what a `Mender` decides into the folder of a run: the ledger, metrics and a summary."""

import platform
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from boxmend import __version__
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import describe_data
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.repair.mender.settings import MenderSettings
from boxmend.repair.mender.state import read_value
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Entries, Ledger
from boxmend.runs.ledger.writing import LedgerState

METHOD = "mender"  # in settings.json, beside the names of training methods
RANK_REMEDY = (
    "in a training of several processes, only the process of rank 0 has a Mender and sends its "
    "annotations to the others"
)
RESUME_REMEDY = (
    "continue it with Mender(..., resume=True) and load_state_dict, or name a new folder. Note "
    f"that {RANK_REMEDY}"
)


class RunWriter:
    """The folder of a run while a `Mender` writes it; holds its lock."""

    def __init__(self, out: str | Path, dataset: Dataset, settings: MenderSettings, resume: bool):
        ensure_open(out, resume=resume)
        self._context = ExitStack()
        try:
            self._context.enter_context(runs.sole_writer(out))
        except OutputError as error:
            raise OutputError(f"{error}; {RANK_REMEDY}") from error
        self._finalizer = weakref.finalize(self, self._context.close)
        try:
            document = {"method": METHOD, "warm_up": 0.0, "mender": asdict(settings)}
            self.run = runs.create(out, document, _collect_facts(dataset), resume=resume)
        except BaseException:
            self._finalizer()
            raise
        self._ledger: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        """The ledger; entries of an earlier attempt that no state was loaded for are removed."""
        if self._ledger is None:
            self.rewind(None, None, None)
        assert self._ledger is not None
        return self._ledger

    def rewind(
        self, ledger: LedgerState | None, step: int | None, metrics_bytes: int | None
    ) -> None:
        """Continue from a saved state, or from the start."""
        self._ledger = Ledger.resume(self.run.path, ledger)
        self.run.rewind_metrics(step, metrics_bytes)

    def load_state(self, state: Mapping[str, Any], num_updates: int) -> None:
        """Continue from what `state` returned, after so many updates."""
        values = {name: read_value(state, f"ledger_{name}") for name in LedgerState.__annotations__}
        ledger = LedgerState(
            num_rows=int(values["num_rows"]),
            rows_per_part=int(values["rows_per_part"]),
            last_epoch=int(values["last_epoch"]),
            pending=values["pending"],
        )
        metrics_bytes = int(read_value(state, "metrics_bytes"))
        metrics = self.run.path / runs.METRICS_FILE
        if (metrics.stat().st_size if metrics.is_file() else 0) < metrics_bytes:
            raise DataError(
                f"{self.run.path}: lacks results of the updates before this state; name the folder "
                "that the state was saved with, or start a new run without it"
            )
        self.rewind(ledger, num_updates - 1 if num_updates else None, metrics_bytes)

    def append(self, entries: Entries, figures: Mapping[str, Any]) -> None:
        """Add the visits and the figures of one update."""
        self.ledger.append(entries)
        self.run.append_metrics(figures)

    def state(self) -> dict[str, Any]:
        """Return what `rewind` needs."""
        state = {f"ledger_{name}": value for name, value in self.ledger.state().items()}
        return {**state, "metrics_bytes": self.run.sync_metrics()}

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the rest of the ledger and mark the run as finished."""
        self.ledger.flush()
        self.run.finish({**summary, "ledger_rows": self.ledger.num_rows})
        self.close()

    def close(self) -> None:
        """Release the lock of the folder."""
        self._finalizer()


def ensure_open(out: str | Path, *, resume: bool, remedy: str = RESUME_REMEDY) -> None:
    """Raise an OutputError for a folder that cannot take a run; `remedy` says how to resume one."""
    runs.ensure_open(out, resume=resume, remedy=remedy)


def _collect_facts(dataset: Dataset) -> dict[str, Any]:
    addresses = [source.address or str(source.path) for source in dataset.sources]
    return {
        "versions": {
            "boxmend": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("numpy", "scipy")},
        },
        "hardware": platform.processor() or platform.machine(),
        "data": describe_data(dataset),
        "addresses": [str(Path(address).absolute()) for address in dict.fromkeys(addresses)],
    }


def ensure_unique_ids(dataset: Dataset) -> None:
    """Raise a UsageError if annotations share an id, since the ledger names them by it."""
    ids, counts = np.unique(dataset.annotation_ids.astype(str), return_counts=True)
    if (counts > 1).any():
        raise UsageError(
            f"several annotations share the id {ids[counts > 1][0]}; see `boxmend check`, whose "
            "--fix gives them new ids"
        )
