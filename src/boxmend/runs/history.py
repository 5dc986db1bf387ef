"""The history of a run: every visit in its ledger, by row of its dataset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Mask, Rows, Singles
from boxmend.errors import DataError
from boxmend.runs import ledger
from boxmend.runs.folder import SETTINGS_FILE, Run
from boxmend.runs.judgement import Judgement
from boxmend.runs.ledger.entries import SIDES, from_table
from boxmend.runs.planting import NO_ERRORS, PlantedErrors, has_planted_errors
from boxmend.runs.settings.files import convert_run_settings

SETTLING_COLUMNS = (
    *("epoch", "step", "verdict", "new_label", "confidence"),
    *(f"final_{side}" for side in SIDES),
    "is_kept",
)
"""The ledger columns that settling labels and boxes needs."""
HISTORY_COLUMNS = (
    *SETTLING_COLUMNS,
    *("loss", "threshold", "num_candidates"),
    *(f"matched_{side}" for side in SIDES),
)
SEEN_BOX_COLUMNS = tuple(f"noisy_{side}" for side in SIDES)


@dataclass(frozen=True, eq=False)
class History:
    """All visits of a run in order; boxes are xyxy in pixels of the image.

    A property raises a KeyError if its column of the ledger was not read.
    """

    rows: Rows  # [v] of the annotations in the dataset
    columns: Mapping[str, NDArray[Any]]  # column of the ledger -> [v] values
    warm_up_steps: int
    planted: PlantedErrors = field(default=NO_ERRORS)
    """Errors that the training planted; their visits are left out."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epochs(self) -> NDArray[np.int32]:
        """[v] Epochs, in ascending order."""
        return self.columns["epoch"]

    @property
    def steps(self) -> NDArray[np.int64]:
        """[v] Steps, in ascending order."""
        return self.columns["step"]

    @property
    def losses(self) -> Singles:
        """[v] Losses of the annotated label; NaN if the method has none."""
        return self.columns["loss"]

    @property
    def thresholds(self) -> Singles:
        """[v] Thresholds of the losses; may be infinite or NaN."""
        return self.columns["threshold"]

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """[v] Judgements."""
        return self.columns["verdict"]

    @property
    def labels(self) -> NDArray[np.int32]:
        """[v] Labels that were trained on."""
        return self.columns["new_label"]

    @property
    def confidences(self) -> Singles:
        """[v] Confidences in these labels; NaN if the method has none."""
        return self.columns["confidence"]

    @property
    def num_candidates(self) -> NDArray[np.int32]:
        """[v] Numbers of candidate boxes."""
        return self.columns["num_candidates"]

    @cached_property
    def matched_boxes(self) -> Singles:
        """[v, 4] Boxes after centre matching."""
        return self._boxes("matched")

    @cached_property
    def final_boxes(self) -> Singles:
        """[v, 4] Boxes that were trained on."""
        return self._boxes("final")

    @property
    def is_kept(self) -> Mask:
        """[v] Visits at which the annotation was trained on."""
        return self.columns["is_kept"]

    @cached_property
    def is_warm_up(self) -> Mask:
        """[v] Visits during warm-up."""
        is_warm_up: Mask = self.steps < self.warm_up_steps
        return is_warm_up

    @property
    def is_judged(self) -> Mask:
        """[v] Visits after warm-up at which the label was judged."""
        is_judged: Mask = (self.verdicts != Judgement.UNJUDGED) & ~self.is_warm_up
        return is_judged

    @property
    def num_epochs(self) -> int:
        """Return the number of epochs."""
        return int(self.epochs[-1]) + 1 if len(self) else 0

    def last(self, among: Mask, num_rows: int) -> Rows:
        """Return the last marked visit [num_rows] of each annotation; -1 if it has none."""
        chosen = np.flatnonzero(among)
        last = np.full(num_rows, -1, np.int64)
        last[self.rows[chosen]] = chosen  # the last assignment wins
        return last

    def _boxes(self, name: str) -> Singles:
        return np.stack([self.columns[f"{name}_{side}"] for side in SIDES], axis=1)


def read_history(run: Run, dataset: Dataset, columns: Sequence[str] = HISTORY_COLUMNS) -> History:
    """Read columns of the ledger of a finished run.

    `columns` include SETTLING_COLUMNS; reading only these takes a third of the time. Visits of
    annotations with a planted error are left out, since they do not judge the annotation of the
    dataset. Raises a DataError if entries are missing, or if the ledger belongs to another dataset.
    """
    table = _read_ledger(run, ["annotation_id", *columns])
    rows = _rows_of(run, dataset, table)
    arrays = from_table(table.select(list(columns)))
    is_relabelled = arrays["verdict"] == Judgement.RELABELLED
    _ensure_known_labels(run, dataset, arrays["new_label"][is_relabelled])
    if not has_planted_errors(run):
        return History(rows, arrays, _warm_up_steps(run))
    planted = _find_planted(run, dataset, rows)
    is_left = ~np.isin(rows, planted.rows)
    arrays = {name: column[is_left] for name, column in arrays.items()}
    return History(rows[is_left], arrays, _warm_up_steps(run), planted)


def _find_planted(run: Run, dataset: Dataset, rows: Rows) -> PlantedErrors:
    """Return the annotations that the training saw with another label or box than the dataset has.

    `rows` are those of the entries.
    """
    columns = from_table(_read_ledger(run, ["old_label", *SEEN_BOX_COLUMNS]))
    seen, first = np.unique(rows, return_index=True)
    labels = columns["old_label"][first].astype(np.int64)
    boxes = np.stack([columns[name][first] for name in SEEN_BOX_COLUMNS], axis=1)
    _ensure_known_labels(run, dataset, columns["old_label"][first])
    has_other_box = (boxes != dataset.boxes[seen].astype(np.float32)).any(axis=1)
    exact = np.where(has_other_box[:, None], boxes.astype(np.float64), dataset.boxes[seen])
    is_planted = (labels != dataset.labels[seen]) | has_other_box
    return PlantedErrors(seen[is_planted], labels[is_planted], exact[is_planted])


def _read_ledger(run: Run, columns: Sequence[str]) -> pa.Table:
    """Read columns of the ledger of a finished run; raise a DataError if entries are missing."""
    table = ledger.read(run.path, list(columns))
    expected = run.summary().get("ledger_rows")
    if isinstance(expected, int) and len(table) != expected:
        raise DataError(
            f"{run.path / 'ledger'}: has {len(table):,} entries, but the run wrote {expected:,}; "
            "the last part is missing: restore it, or train again"
        )
    return table


def _warm_up_steps(run: Run) -> int:
    """Return the number of warm-up steps of a finished run.

    A `Mender` records it; other runs have the share of warm-up in their settings.
    """
    settings, summary = run.settings(), run.summary()
    steps, known = summary.get("steps"), summary.get("warm_up_steps")
    if isinstance(known, int):
        return known
    if "warm_up" not in settings or not isinstance(steps, int):
        raise DataError(
            f"{run.path}: the length of warm-up is missing in settings.json or `finished`; "
            "restore a copy of the files, or train again"
        )
    share = convert_run_settings(run.path / SETTINGS_FILE, settings).warm_up
    return math.ceil(share * steps)


def _rows_of(run: Run, dataset: Dataset, table: pa.Table) -> Rows:
    """Return the dataset row of every ledger entry; ids are integers or strings."""
    ids = table["annotation_id"].combine_chunks().dictionary_encode()
    has_string_ids = dataset.annotation_ids.dtype == object
    own_ids = dataset.annotation_ids.tolist()
    row_of = {
        escape_surrogates(own_id) if has_string_ids else own_id: row
        for row, own_id in enumerate(own_ids)
    }
    if len(row_of) != len(own_ids):
        raise DataError(
            f"{run.path}: several annotations of the dataset share an id; see `boxmend check`"
        )
    if ids.null_count:
        raise DataError(
            f"{run.path / 'ledger'}: has visits without an annotation; restore the run from a "
            "copy, or train again"
        )
    ledger_ids = ids.dictionary.to_pylist()
    unknown = [ledger_id for ledger_id in ledger_ids if ledger_id not in row_of]
    if unknown:
        raise DataError(
            f"{run.path / 'ledger'}: has annotation {unknown[0]!r}, which the dataset does not "
            "have; the ledger belongs to another run"
        )
    rows: Rows = np.array([row_of[ledger_id] for ledger_id in ledger_ids], np.int64)[
        ids.indices.to_numpy()
    ]
    return rows


def _ensure_known_labels(run: Run, dataset: Dataset, labels: NDArray[np.int32]) -> None:
    """Raise a DataError for labels that the dataset does not have."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(dataset.label_names):
        raise DataError(
            f"{run.path / 'ledger'}: has labels beyond the {len(dataset.label_names)} of the "
            "dataset; the ledger belongs to another run"
        )
