"""What `apply` starts from: a finished run, the dataset it was trained on, and its ledger."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.files.text import valid_text
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.data.types import Rows
from boxmend.errors import DataError, UsageError
from boxmend.runs import ledger
from boxmend.runs.folder import SETTINGS_FILE, Run, open_run
from boxmend.runs.ledger import Judgement
from boxmend.runs.settings.files import settings_of_run
from boxmend.runs.settling import Visits

_BOX = ("final_x1", "final_y1", "final_x2", "final_y2")
MIN_REFUSED_ADDRESSES = 100  # fewer are read even if some of them have no image
_OPTION = "--data (--training-data of `boxmend evaluate`)"
_ELSEWHERE = f"if they lie elsewhere now, say where by {_OPTION}"


def finished_run(path: Any) -> Run:
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


def addresses_of(run: Run) -> list[str]:
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


def dataset_of(run: Run, data: Dataset | str | Sequence[str] | None) -> Dataset:
    """The dataset of a run, read from its addresses or others, or as given, and known again.

    A DataError tells of data that are gone, or differ from those that the run was trained on.
    """
    if isinstance(data, Dataset):
        dataset, where = data, "the dataset that was given"
    else:
        given = [data] if isinstance(data, str) else list(data or ())
        addresses = given or addresses_of(run)
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


def visits_of(run: Run, dataset: Dataset) -> Visits:
    """The ledger of a run by rows of its dataset; a DataError where it is not whole, or foreign."""
    wanted = ["epoch", "step", "annotation_id", "verdict", "new_label", "confidence", "is_kept"]
    table = whole_ledger(run, [*wanted, *_BOX])

    def column(name: str) -> NDArray[Any]:
        values: NDArray[Any] = table[name].to_numpy()
        return values

    rows = rows_of(run, dataset, table)
    verdicts = table["verdict"].combine_chunks().indices.to_numpy()
    labels = column("new_label").astype(np.int64)
    ensure_known(run, dataset, labels[verdicts == Judgement.RELABELLED])
    epochs = column("epoch")
    return Visits(
        rows=rows,
        verdicts=verdicts,
        labels=labels,
        confidences=column("confidence").astype(np.float64),
        boxes=np.stack([column(side).astype(np.float64) for side in _BOX], axis=1),
        is_kept=column("is_kept"),
        is_warm_up=column("step") < warm_up_steps(run),
        num_epochs=int(epochs[-1]) + 1 if len(epochs) else 0,
    )


def whole_ledger(run: Run, columns: Sequence[str]) -> pa.Table:
    """Read columns of the ledger of a finished run; a DataError where entries are missing."""
    table = ledger.read(run.path, list(columns))
    expected = run.summary().get("ledger_rows")
    if isinstance(expected, int) and len(table) != expected:
        raise DataError(
            f"{run.path / 'ledger'}: has {len(table):,} entries where the run made {expected:,}; "
            "a part is missing at the end: bring it back, or train again"
        )
    return table


def warm_up_steps(run: Run) -> int:
    """How many steps of a finished run were warm-up."""
    settings, steps = run.settings(), run.summary().get("steps")
    if "warm_up" not in settings or not isinstance(steps, int):
        raise DataError(f"{run.path}: settings.json or `finished` lacks the length of the warm-up")
    share = settings_of_run(run.path / SETTINGS_FILE, settings).warm_up
    return math.ceil(share * steps)


def rows_of(run: Run, dataset: Dataset, table: pa.Table) -> Rows:
    """The row of the dataset for every entry of the ledger, whose ids are integers or texts."""
    ids = table["annotation_id"].combine_chunks().dictionary_encode()
    is_texts = dataset.annotation_ids.dtype == object
    own = dataset.annotation_ids.tolist()
    row_of = {valid_text(one) if is_texts else one: row for row, one in enumerate(own)}
    if len(row_of) != len(own):
        raise DataError(f"{run.path}: the dataset has annotations that share an id; see `check`")
    told = ids.dictionary.to_pylist()
    foreign = [one for one in told if one not in row_of]
    if foreign:
        raise DataError(
            f"{run.path / 'ledger'}: tells of annotation {foreign[0]!r}, which the dataset does "
            "not have; the ledger is of another run"
        )
    rows: Rows = np.array([row_of[one] for one in told], np.int64)[ids.indices.to_numpy()]
    return rows


def ensure_known(run: Run, dataset: Dataset, labels: Rows) -> None:
    """Raise a DataError for labels that the dataset does not have."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(dataset.label_names):
        raise DataError(
            f"{run.path / 'ledger'}: has labels beyond the {len(dataset.label_names)} of the "
            "dataset; the ledger is of another run"
        )
