"""The history of a run: every visit in its ledger, by row of its dataset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from boxmend.runs.settings.files import convert_run_settings

SETTLING_COLUMNS = (
    *("epoch", "step", "verdict", "new_label", "confidence"),
    *(f"final_{side}" for side in SIDES),
    "is_kept",
)
"""The columns of a ledger that suffice for labels and boxes."""
HISTORY_COLUMNS = (
    *SETTLING_COLUMNS,
    *("loss", "threshold", "num_candidates"),
    *(f"matched_{side}" for side in SIDES),
)


@dataclass(frozen=True, eq=False)
class History:
    """All visits in the order in which they were made; boxes are xyxy in pixels of the image.

    Every property needs its column of the ledger, and raises a KeyError if it was not read.
    """

    rows: Rows  # [v] of the annotations in the dataset
    columns: Mapping[str, NDArray[Any]]  # column of the ledger -> [v] values
    warm_up_steps: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epochs(self) -> NDArray[np.int32]:
        """[v] Epochs, never falling."""
        return self.columns["epoch"]

    @property
    def steps(self) -> NDArray[np.int64]:
        """[v] Steps, never falling."""
        return self.columns["step"]

    @property
    def losses(self) -> Singles:
        """[v] Losses of the annotated label; NaN where the method has none."""
        return self.columns["loss"]

    @property
    def thresholds(self) -> Singles:
        """[v] What the losses were compared with; may be infinite or NaN."""
        return self.columns["threshold"]

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """[v] Judgements."""
        return self.columns["verdict"]

    @property
    def labels(self) -> NDArray[np.int32]:
        """[v] Labels as trained on."""
        return self.columns["new_label"]

    @property
    def confidences(self) -> Singles:
        """[v] Confidences in these labels; NaN where the method has none."""
        return self.columns["confidence"]

    @property
    def num_candidates(self) -> NDArray[np.int32]:
        """[v] Numbers of candidate boxes."""
        return self.columns["num_candidates"]

    @cached_property
    def matched_boxes(self) -> Singles:
        """[v, 4] Boxes after matching."""
        return self._boxes("matched")

    @cached_property
    def final_boxes(self) -> Singles:
        """[v, 4] Boxes as trained on."""
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
        """The number of epochs."""
        return int(self.epochs[-1]) + 1 if len(self) else 0

    def last(self, among: Mask, num_rows: int) -> Rows:
        """[num_rows] The last visit of each annotation among those marked; -1 where none is."""
        chosen = np.flatnonzero(among)
        last = np.full(num_rows, -1, np.int64)
        last[self.rows[chosen]] = chosen  # of several the last stays
        return last

    def _boxes(self, name: str) -> Singles:
        return np.stack([self.columns[f"{name}_{side}"] for side in SIDES], axis=1)


def read_history(run: Run, dataset: Dataset, columns: Sequence[str] = HISTORY_COLUMNS) -> History:
    """Read columns of the ledger of a finished run; a DataError where it is not whole, or foreign.

    `columns` are at least SETTLING_COLUMNS. To read these alone takes a third of the time.
    """
    table = _whole_ledger(run, ["annotation_id", *columns])
    rows = _rows_of(run, dataset, table)
    arrays = from_table(table.select(list(columns)))
    is_relabelled = arrays["verdict"] == Judgement.RELABELLED
    _ensure_known(run, dataset, arrays["new_label"][is_relabelled])
    return History(rows, arrays, _warm_up_steps(run))


def _whole_ledger(run: Run, columns: Sequence[str]) -> pa.Table:
    """Read columns of the ledger of a finished run; a DataError where entries are missing."""
    table = ledger.read(run.path, list(columns))
    expected = run.summary().get("ledger_rows")
    if isinstance(expected, int) and len(table) != expected:
        raise DataError(
            f"{run.path / 'ledger'}: has {len(table):,} entries where the run made {expected:,}; "
            "a part is missing at the end: bring it back, or train again"
        )
    return table


def _warm_up_steps(run: Run) -> int:
    """Return how many steps of a finished run were warm-up."""
    settings, steps = run.settings(), run.summary().get("steps")
    if "warm_up" not in settings or not isinstance(steps, int):
        raise DataError(f"{run.path}: settings.json or `finished` lacks the length of the warm-up")
    share = convert_run_settings(run.path / SETTINGS_FILE, settings).warm_up
    return math.ceil(share * steps)


def _rows_of(run: Run, dataset: Dataset, table: pa.Table) -> Rows:
    """Return the row of the dataset for every entry of a ledger; ids are integers or texts."""
    ids = table["annotation_id"].combine_chunks().dictionary_encode()
    is_texts = dataset.annotation_ids.dtype == object
    own = dataset.annotation_ids.tolist()
    row_of = {escape_surrogates(one) if is_texts else one: row for row, one in enumerate(own)}
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


def _ensure_known(run: Run, dataset: Dataset, labels: NDArray[np.int32]) -> None:
    """Raise a DataError for labels that the dataset does not have."""
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(dataset.label_names):
        raise DataError(
            f"{run.path / 'ledger'}: has labels beyond the {len(dataset.label_names)} of the "
            "dataset; the ledger is of another run"
        )
