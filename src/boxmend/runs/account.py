"""The account of a run: what became of each annotation in the end, and on what evidence.

This is what reports, scores and exports start from: one row per annotation of the dataset, in its
order, also for those that the run never visited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from boxmend.data.boxes import overlaps
from boxmend.data.dataset import Dataset
from boxmend.data.types import Floats, Mask, Rows
from boxmend.errors import UsageError
from boxmend.runs import opening as inputs
from boxmend.runs.folder import Run
from boxmend.runs.history import History, history_of
from boxmend.runs.judgement import Judgement
from boxmend.runs.settling import Settlement, last_visits, means_of, settle


@dataclass(frozen=True, eq=False)
class Account:
    """A run's dataset, row by row, with what the run made of it."""

    run: Run
    dataset: Dataset
    history: History
    settlement: Settlement
    is_visited: Mask  # [n] the others are crowds, difficult objects, unreadable images and the like
    verdicts: NDArray[np.int8]  # [n] as settled; UNJUDGED where no visit judged the label
    losses: Floats  # [n] of the annotated label, mean over the visits that settled it; or NaN
    thresholds: Floats  # [n] at the last visit that judged; may be infinite, NaN where none did
    confidences: Floats  # [n] in the settled label; NaN where there is none
    num_candidates: Rows  # [n] at the last visit; 0 where there is none
    matched_boxes: Floats  # [n, 4] at the last visit after warm-up, or as annotated
    iou: Floats  # [n] of the annotated box with the settled one

    @cached_property
    def doubts(self) -> Floats:
        """[n] How much speaks against the label, in 0..1: 1 - exp(-loss); NaN if not judged."""
        doubts: Floats = -np.expm1(-self.losses)
        return doubts

    @cached_property
    def is_moved(self) -> Mask:
        """[n] Boxes that end elsewhere than annotated."""
        is_moved: Mask = self.settlement.num_moved > 0
        return is_moved

    @cached_property
    def is_changed(self) -> Mask:
        """[n] Annotations that are relabelled, moved, or discarded as unsure."""
        is_unlike = (self.verdicts == Judgement.RELABELLED) | (self.verdicts == Judgement.DISCARDED)
        is_changed: Mask = is_unlike | self.is_moved
        return is_changed


def open_account(run: str | Path, data: Dataset | str | Sequence[str] | None = None) -> Account:
    """Read a finished run, its dataset and its ledger, and settle every annotation.

    `data` says where the dataset is now, or is it; it is checked as by `apply`.
    """
    source = inputs.finished_run(run)
    if inputs.is_audit(source):
        raise UsageError(
            f"{source.path}: is an audit of predictions and has no ledger, which this is about; "
            f"`boxmend review {quote(str(source.path))}` shows its fixes"
        )
    dataset = inputs.dataset_of(source, data)
    return account_of(source, dataset, history_of(source, dataset))


def account_of(run: Run, dataset: Dataset, history: History) -> Account:
    """Settle a history; see `Account`."""
    settlement = settle(dataset, history.visits())
    last_judged = history.last(history.is_judged, len(dataset))
    last = history.last(~history.is_warm_up, len(dataset))
    return Account(
        run=run,
        dataset=dataset,
        history=history,
        settlement=settlement,
        is_visited=history.last(np.ones(len(history), np.bool_), len(dataset)) >= 0,
        verdicts=_verdicts(dataset, settlement),
        losses=_recent_losses(history, len(dataset)),
        thresholds=_at(history.thresholds, last_judged, np.nan),
        confidences=np.where(
            settlement.num_judged > 0, settlement.label_confidences, settlement.box_confidences
        ),
        num_candidates=_at(history.num_candidates, last, 0).astype(np.int64),
        matched_boxes=_matched(dataset, history, last),
        iou=overlaps(dataset.boxes, settlement.boxes),
    )


def _verdicts(dataset: Dataset, settlement: Settlement) -> NDArray[np.int8]:
    verdicts = np.full(len(dataset), Judgement.KEPT, np.int8)
    verdicts[settlement.labels != dataset.labels] = Judgement.RELABELLED
    verdicts[settlement.is_unsure] = Judgement.DISCARDED
    verdicts[settlement.num_judged == 0] = Judgement.UNJUDGED
    return verdicts


def _matched(dataset: Dataset, history: History, last: Rows) -> Floats:
    boxes = dataset.boxes.copy()
    boxes[last >= 0] = history.matched_boxes[last[last >= 0]]
    return boxes


def _recent_losses(history: History, num_rows: int) -> Floats:
    """[num_rows] The mean loss of the visits that settled each label; NaN where none has one."""
    settling = last_visits(history.rows, history.is_judged, history.num_epochs)
    losses = history.losses[settling].astype(np.float64)
    losses[~np.isfinite(losses)] = np.nan
    return means_of(losses, history.rows[settling], num_rows)


def _at(values: NDArray[np.generic], visits: Rows, missing: float) -> Floats:
    """[n] The value of each annotation's visit, or `missing` where it has none."""
    found = np.full(len(visits), missing, np.float64)
    found[visits >= 0] = values[visits[visits >= 0]]
    return found
