"""What a step leaves behind: ledger entries and figures, gathered on the device and brought over
in portions, so that the loop seldom waits."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boxmend.data.dataset import Dataset
from boxmend.errors import DataError
from boxmend.methods.protocol import Outcome, TrainingProgress
from boxmend.runs.ledger import Entries, Ledger
from boxmend.training.loader import Batch
from boxmend.training.processes import Processes

COLUMNS = ("verdict", "loss", "threshold", "confidence", "num_candidates", "labels", "is_kept")


class Portion(NamedTuple):
    """What the recent steps left behind in one process, on the host."""

    figures: NDArray[np.float32]  # [steps, figures]
    numbers: NDArray[np.int64]  # [steps] annotations to learn from
    images: list[NDArray[np.int64]]  # rows of the images, for each step
    rows: list[NDArray[np.int64]]  # of the annotations to learn from, for each step
    values: list[NDArray[np.float32]]  # [.., 15] of these annotations


@dataclass
class Recorder:
    """Outcomes of recent steps, still on the device."""

    dataset: Dataset
    ledger: Ledger | None
    """None in all processes but the first."""
    processes: Processes
    pending: list[tuple[TrainingProgress, NDArray[np.int64], Tensor, Tensor, Tensor]] = field(
        default_factory=list
    )
    names: list[str] = field(default_factory=list)
    """Of the figures of any of these steps; a method may tell of more after warm-up."""
    figures: list[tuple[tuple[str, ...], Tensor]] = field(default_factory=list)
    window: dict[str, list[float]] = field(default_factory=dict)
    """Figures on the host, step by step, that no line of metrics.jsonl covers yet.

    A checkpoint keeps them, so that saving does not change which lines are written.
    """

    def add(
        self, batch: Batch, outcome: Outcome, moment: TrainingProgress, figures: dict[str, Tensor]
    ) -> None:
        """Take up one step without waiting for it; everything is copied.

        `figures` are scalars of this process's part of the batch; "loss" is one of them, and those
        before "norm" add up.
        """
        shape = batch.rows.shape
        columns = [getattr(outcome, name).float().expand(shape) for name in COLUMNS]
        boxes = [batch.frame.to_image(boxes) for boxes in (outcome.matched, outcome.boxes)]
        values = torch.cat([torch.stack(columns, -1), *boxes], dim=-1)  # [B, A, 15]
        self.pending.append((moment, batch.image_rows, batch.rows, batch.is_box, values))
        self.names += [name for name in figures if name not in self.names]
        values = torch.stack([value.float() for value in figures.values()])
        self.figures.append((tuple(figures), values))

    def flush(self) -> dict[str, float]:
        """Collect what is pending; returns the means of the figures since the last call."""
        self.collect()
        means = {
            name: float(np.mean(values)) if values else math.nan
            for name, values in self.window.items()
        }
        self.window = {}
        return means

    def collect(self) -> None:
        """Bring everything to the host: entries into the ledger, figures into `window`.

        All processes have to do so after the same step. A loss that is not finite stops the run
        and names the images of its batch.
        """
        if not self.pending:
            return
        names = self.names
        portions = self.processes.exchanged(self._brought_over())
        values = joined_figures(portions, names.index("norm"))  # [steps, figures]
        self._ensure_finite(values[:, names.index("loss")], portions)
        if self.ledger is not None:
            self._append(self.ledger, portions)
        for name, column in zip(names, values.T.astype(np.float64), strict=True):
            self.window.setdefault(name, []).extend(column[~np.isnan(column)].tolist())
        self.pending.clear()
        self.figures.clear()
        self.names = []

    def _brought_over(self) -> Portion:
        figures = torch.stack([_placed(own, one, self.names) for own, one in self.figures])
        rows, values = [], []
        for _, _, annotation_rows, is_box, columns in self.pending:
            mask = is_box.cpu().numpy()
            rows.append(annotation_rows.cpu().numpy()[mask])
            values.append(columns.cpu().numpy()[mask])
        numbers = np.array([len(one) for one in rows])
        images = [image_rows for _, image_rows, *_ in self.pending]
        return Portion(figures.cpu().numpy(), numbers, images, rows, values)

    def _append(self, ledger: Ledger, portions: Sequence[Portion]) -> None:
        """Add the entries of the recent steps, in the order of the whole batches."""
        for step, (moment, *_) in enumerate(self.pending):
            rows = np.concatenate([portion.rows[step] for portion in portions])
            values = np.concatenate([portion.values[step] for portion in portions])
            ledger.append(self._entries(moment, rows, values))

    def _ensure_finite(self, losses: NDArray[np.floating], portions: Sequence[Portion]) -> None:
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            step = int(wrong[0])
            moment = self.pending[step][0]
            rows = np.concatenate([portion.images[step] for portion in portions])
            names = ", ".join(self.dataset.images.file_names[row] for row in rows)
            raise DataError(
                f"the loss is not finite at step {moment.step}, in the batch of {names}; lower "
                "--optimisation.lr, or look at these images and their boxes"
            )

    def _entries(
        self, moment: TrainingProgress, rows: NDArray[np.int64], values: NDArray[np.float32]
    ) -> Entries:
        column = {name: values[:, k] for k, name in enumerate(COLUMNS)}
        n, data = len(rows), self.dataset
        return Entries(
            epochs=np.full(n, moment.epoch),
            steps=np.full(n, moment.step),
            annotation_ids=data.annotation_ids[rows],
            image_ids=data.image_ids[rows],
            losses=column["loss"],
            thresholds=column["threshold"],
            verdicts=column["verdict"].astype(np.int8),
            num_candidates=column["num_candidates"].astype(np.int64),
            old_labels=data.labels[rows],
            new_labels=column["labels"].astype(np.int64),
            confidences=column["confidence"],
            noisy_boxes=data.boxes[rows].astype(np.float32),
            matched_boxes=values[:, 7:11],
            final_boxes=values[:, 11:15],
            is_kept=column["is_kept"] > 0,
        )


def joined_figures(portions: Sequence[Portion], num_sums: int) -> NDArray[np.floating]:
    """Figures [steps, figures] of whole batches, from those of their parts.

    The first `num_sums` add up; the others are means over the annotations of a part.
    """
    if len(portions) == 1:
        return portions[0].figures
    figures = np.stack([portion.figures for portion in portions]).astype(np.float64)  # [P, S, F]
    numbers = np.stack([portion.numbers for portion in portions])[..., None]  # [P, S, 1]
    weights = np.where(numbers.sum(0) > 0, numbers, 1)  # of nothing at all, a plain mean
    weighted = np.multiply(figures, weights, out=np.zeros_like(figures), where=weights > 0)
    means: NDArray[np.floating] = weighted.sum(0) / weights.sum(0)
    means[:, :num_sums] = figures[..., :num_sums].sum(0)
    return means


Listener = Callable[[dict[str, Any]], None]
"""Called with every line of the log; how TensorBoard and others are attached."""


def _placed(own: Sequence[str], values: Tensor, names: Sequence[str]) -> Tensor:
    """The values [own] at the places of their names, and NaN at those of others."""
    if list(own) == list(names):
        return values
    placed = values.new_full((len(names),), torch.nan)
    placed[[names.index(name) for name in own]] = values
    return placed
