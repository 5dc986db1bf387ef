"""The history of a run: every visit in its ledger, by row of its dataset."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Dataset
from boxmend.data.types import Mask, Rows, Singles
from boxmend.runs import opening as inputs
from boxmend.runs.folder import Run
from boxmend.runs.judgement import Judgement
from boxmend.runs.ledger import COLUMNS
from boxmend.runs.settling import Visits


@dataclass(frozen=True, eq=False)
class History:
    """All visits in the order in which they were made; boxes are xyxy in pixels of the image."""

    rows: Rows  # [v] of the annotations in the dataset
    epochs: NDArray[np.int32]  # [v] never falling
    steps: NDArray[np.int64]  # [v]
    losses: Singles  # [v] of the annotated label; NaN where the method has none
    thresholds: Singles  # [v] may be infinite or NaN
    verdicts: NDArray[np.int8]  # [v] Verdict
    labels: NDArray[np.int32]  # [v] as trained on
    confidences: Singles  # [v] NaN where the method has none
    num_candidates: NDArray[np.int32]  # [v]
    matched_boxes: Singles  # [v, 4]
    final_boxes: Singles  # [v, 4]
    is_kept: Mask  # [v]
    is_warm_up: Mask  # [v]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_epochs(self) -> int:
        """How many epochs there were."""
        return int(self.epochs[-1]) + 1 if len(self) else 0

    @property
    def is_judged(self) -> Mask:
        """[v] Visits after warm-up at which the label was judged."""
        is_judged: Mask = (self.verdicts != Judgement.UNJUDGED) & ~self.is_warm_up
        return is_judged

    def last(self, among: Mask, num_rows: int) -> Rows:
        """[num_rows] The last visit of each annotation among those marked; -1 where none is."""
        chosen = np.flatnonzero(among)
        last = np.full(num_rows, -1, np.int64)
        last[self.rows[chosen]] = chosen  # of several the last stays
        return last

    def visits(self) -> Visits:
        """The same for `settle`."""
        return Visits(
            rows=self.rows,
            verdicts=self.verdicts,
            labels=self.labels.astype(np.int64),
            confidences=self.confidences.astype(np.float64),
            boxes=self.final_boxes.astype(np.float64),
            is_kept=self.is_kept,
            is_warm_up=self.is_warm_up,
            num_epochs=self.num_epochs,
        )


def history_of(run: Run, dataset: Dataset) -> History:
    """Read the whole ledger of a finished run; a DataError where it is not whole, or foreign."""
    table = inputs.whole_ledger(run, COLUMNS)
    single = {name: table[name].to_numpy() for name in table.column_names if name != "verdict"}
    verdicts = table["verdict"].combine_chunks().indices.to_numpy()
    labels = single["new_label"]
    inputs.ensure_known(run, dataset, labels[verdicts == Judgement.RELABELLED].astype(np.int64))
    return History(
        rows=inputs.rows_of(run, dataset, table),
        epochs=single["epoch"],
        steps=single["step"],
        losses=single["loss"],
        thresholds=single["threshold"],
        verdicts=verdicts,
        labels=labels,
        confidences=single["confidence"],
        num_candidates=single["num_candidates"],
        matched_boxes=_boxes(single, "matched"),
        final_boxes=_boxes(single, "final"),
        is_kept=single["is_kept"],
        is_warm_up=single["step"] < inputs.warm_up_steps(run),
    )


def _boxes(single: dict[str, NDArray[np.float32]], name: str) -> Singles:
    return np.stack([single[f"{name}_{side}"] for side in ("x1", "y1", "x2", "y2")], axis=1)
