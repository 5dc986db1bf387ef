"""Opening finished runs: the folder, the dataset that the run was made of, and its history."""

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

MIN_REFUSED_ADDRESSES = 100  # fewer are read even if some of them have no image
_OPTION = "--data (--training-data of `boxmend evaluate`)"
_ELSEWHERE = f"if they lie elsewhere now, say where by {_OPTION}"


@dataclass(frozen=True, eq=False)
class OpenRun:
    """A finished training run with its dataset and all its visits."""

    run: Run
    dataset: Dataset
    history: History

    @cached_property
    def settlement(self) -> Settlement:
        """What the visits settle for every annotation, also for those that were never visited."""
        return settle(self.dataset, self.history)


def open_run_with_history(
    run: str | Path, data: Dataset | str | Sequence[str] | None = None
) -> OpenRun:
    """Read a finished run, its dataset and its ledger.

    `data` says where the dataset is now, or is it; it is checked as by `apply`.
    """
    source = open_finished_run(run)
    if is_audit(source):
        raise UsageError(
            f"{source.path}: is an audit of predictions and has no ledger, which this is about; "
            f"`boxmend review {quote(str(source.path))}` shows its fixes"
        )
    dataset = read_dataset(source, data)
    return OpenRun(source, dataset, read_history(source, dataset))


def open_finished_run(path: Any) -> Run:
    """Open a run that came to its end; a DataError tells of one that did not."""
    run = open_run(path)
    if not run.is_finished and is_audit(run):
        raise DataError(f"{run.path}: the audit is unfinished; remove the folder and audit again")
    if not run.is_finished:
        raise DataError(f"{run.path}: the run is unfinished; go on with `boxmend train --resume`")
    return run


def is_audit(run: Run) -> bool:
    """Whether a run is an audit of predictions, which has fixes but neither ledger nor model."""
    return run.facts().get("kind") == "audit"


def _addresses_of(run: Run) -> list[str]:
    """The addresses that a run was trained on; a DataError where it was trained on none."""
    addresses = run.facts().get("addresses")
    if not isinstance(addresses, list) or not addresses:
        raise DataError(
            f"{run.path}: the run knows no address of its data, as it was made on a dataset in "
            f"memory; say where they are by {_OPTION}"
        )
    images = _data_facts(run).get("images")
    if isinstance(images, int) and len(addresses) > max(images, MIN_REFUSED_ADDRESSES):
        raise DataError(
            f"{run.path / 'run.json'}: names {len(addresses):,} addresses of data for {images:,} "
            f"images, so it was changed; name the data by {_OPTION}"
        )
    return [str(address) for address in addresses]


def read_dataset(run: Run, data: Dataset | str | Sequence[str] | None) -> Dataset:
    """The dataset of a run, read from its addresses or others, or as given, and known again.

    A DataError tells of data that are gone, or differ from those that the run was trained on.
    """
    if isinstance(data, Dataset):
        dataset, where = data, "the dataset that was given"
    else:
        given = [data] if isinstance(data, str) else list(data or ())
        addresses = given or _addresses_of(run)
        where = " ".join(addresses)
        try:
            dataset = load(*addresses, **_reading(run))
        except UsageError as error:
            if given:
                raise
            message = f"{run.path}: the data of the run are gone: {error}; {_ELSEWHERE}"
            raise DataError(message) from error
    _ensure_same(run, dataset, where)
    return dataset


def _reading(run: Run) -> dict[str, Any]:
    """How an audit may have read its data; what that gives is known again by its fingerprint.

    Trainings read without options.
    """
    if not is_audit(run):
        return {}
    images = run.facts().get("images_folder")
    return {"polygons": "box", "images": images if isinstance(images, str) else None}


def _ensure_same(run: Run, dataset: Dataset, where: str) -> None:
    told = _data_facts(run)
    if "sha256" not in told:
        again = "audit again" if is_audit(run) else "train again"
        raise DataError(f"{run.path / 'run.json'}: has no fingerprint of the data; {again}")
    if told["sha256"] == fingerprint(dataset):
        return
    counts = {"images": len(dataset.images), "annotations": len(dataset)}
    differing = [
        f"{number:,} {what} where the run had {told[what]:,}"
        for what, number in counts.items()
        if isinstance(told.get(what), int) and told[what] != number
    ]
    if told.get("label_names") not in (None, list(dataset.label_names)):
        differing.append("other label names")
    what = ", ".join(differing) or "other labels, boxes, flags, ids or file names"
    past, again = ("made of", "audit again") if is_audit(run) else ("trained on", "train again")
    raise DataError(
        f"{where}: not the data that {run.path} was {past} ({what}); bring back the "
        f"annotations as they were or {again}, or name the right ones (with their split) by "
        f"{_OPTION}"
    )


def _data_facts(run: Run) -> dict[str, Any]:
    """Return what `run.json` records about the data; empty where it records nothing."""
    facts = run.facts().get("data")
    return facts if isinstance(facts, dict) else {}
