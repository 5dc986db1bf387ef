"""Open finished runs: the folder, the dataset that the run was trained on, and its history."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.errors import DataError, UsageError
from boxmend.runs.folder import Run, open_run
from boxmend.runs.history import History, read_history
from boxmend.runs.settling import Settlement, settle

MAX_UNCHECKED_ADDRESSES = 100  # so many are read even if some have no image
_OPTION = "--data (--training-data of `boxmend evaluate`)"
_MOVED_DATA_REMEDY = f"if they were moved, name their new place by {_OPTION}"


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A finished training run with its dataset and all its visits."""

    run: Run
    dataset: Dataset
    history: History

    @cached_property
    def settlement(self) -> Settlement:
        """Settle the visits of every annotation, including those that were never visited."""
        return settle(self.dataset, self.history)


def open_run_with_history(
    run: str | Path, data: Dataset | str | Sequence[str] | None = None
) -> OpenRun:
    """Read a finished run, its dataset and its ledger.

    `data` is the dataset or its present address, if it was moved; it is checked as by `apply`.
    """
    source = open_finished_run(run)
    if is_audit(source):
        raise UsageError(
            f"{source.path}: is an audit of predictions and has no ledger; name a training run, or "
            f"see the fixes of the audit by `boxmend review {quote(str(source.path))}`"
        )
    dataset = read_dataset(source, data)
    return OpenRun(source, dataset, read_history(source, dataset))


def open_finished_run(path: Any) -> Run:
    """Open a finished run; raise a DataError for an unfinished one."""
    run = open_run(path)
    if not run.is_finished and is_audit(run):
        raise DataError(f"{run.path}: the audit is unfinished; remove the folder and audit again")
    if not run.is_finished:
        raise DataError(
            f"{run.path}: the run is unfinished; continue it with `boxmend train --resume`"
        )
    return run


def is_audit(run: Run) -> bool:
    """Return whether a run is an audit of predictions, which has neither ledger nor model."""
    return run.facts().get("kind") == "audit"


def _addresses_of(run: Run) -> list[str]:
    """Return the addresses of a run's data; raise a DataError if it has none."""
    addresses = run.facts().get("addresses")
    if not isinstance(addresses, list) or not addresses:
        raise DataError(
            f"{run.path}: does not have the address of its data, which were in memory; name it by "
            f"{_OPTION}"
        )
    images = _data_facts(run).get("images")
    if isinstance(images, int) and len(addresses) > max(images, MAX_UNCHECKED_ADDRESSES):
        raise DataError(
            f"{run.path / 'run.json'}: has {len(addresses):,} addresses of data for {images:,} "
            f"images, so it was changed; name the data by {_OPTION}"
        )
    return [str(address) for address in addresses]


def read_dataset(run: Run, data: Dataset | str | Sequence[str] | None) -> Dataset:
    """Return the dataset of a run, read from `data` or from the addresses in the run.

    Raises a DataError if the data are gone or differ from those that the run was trained on.
    """
    if isinstance(data, Dataset):
        dataset, where = data, "the dataset in memory"
    else:
        new_addresses = [data] if isinstance(data, str) else list(data or ())
        addresses = new_addresses or _addresses_of(run)
        where = " ".join(addresses)
        try:
            dataset = load(*addresses, **_reading_options(run))
        except UsageError as error:
            if new_addresses:
                raise
            message = f"{run.path}: the data of the run are gone: {error}; {_MOVED_DATA_REMEDY}"
            raise DataError(message) from error
    _ensure_same(run, dataset, where)
    return dataset


def _reading_options(run: Run) -> dict[str, Any]:
    """Return the options with which a run read its data; trainings use none."""
    if not is_audit(run):
        return {}
    images = run.facts().get("images_folder")
    return {"polygons": "box", "images": images if isinstance(images, str) else None}


def _ensure_same(run: Run, dataset: Dataset, where: str) -> None:
    recorded = _data_facts(run)
    if "sha256" not in recorded:
        again = "audit again" if is_audit(run) else "train again"
        raise DataError(f"{run.path / 'run.json'}: has no fingerprint of the data; {again}")
    if recorded["sha256"] == fingerprint(dataset):
        return
    counts = {"images": len(dataset.images), "annotations": len(dataset)}
    differing = [
        f"{number:,} {what} instead of {recorded[what]:,}"
        for what, number in counts.items()
        if isinstance(recorded.get(what), int) and recorded[what] != number
    ]
    if recorded.get("label_names") not in (None, list(dataset.label_names)):
        differing.append("other label names")
    what = ", ".join(differing) or "other labels, boxes, flags, ids or file names"
    past, again = ("made of", "audit again") if is_audit(run) else ("trained on", "train again")
    raise DataError(
        f"{where}: not the data that {run.path} was {past} ({what}); restore the "
        f"annotations, or {again}, or name the right data (with their split) by "
        f"{_OPTION}"
    )


def _data_facts(run: Run) -> dict[str, Any]:
    """Return what `run.json` records about the data; empty where it records nothing."""
    facts = run.facts().get("data")
    return facts if isinstance(facts, dict) else {}
