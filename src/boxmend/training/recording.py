"""What a step leaves behind: ledger entries and figures, gathered on the device and brought over
in portions, so that the loop seldom waits."""

import math
from collections.abc import Callable, Mapping, Sequence
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

SCALARS = ("verdict", "loss", "threshold", "confidence", "num_candidates", "labels", "is_kept")
BOXES = ("matched", "boxes")
WIDTHS = {**dict.fromkeys(SCALARS, 1), **dict.fromkeys(BOXES, 4)}
"""Numbers of each field of an Outcome that the ledger gets, in the order in which they travel."""


class Portion(NamedTuple):
    """What the recent steps left behind in one process, on the host."""

    figures: NDArray[np.float32]  # [steps, figures]
    numbers: NDArray[np.int64]  # [steps] annotations to learn from
    images: list[NDArray[np.int64]]  # rows of the images, for each step
    rows: list[NDArray[np.int64]]  # of the annotations to learn from, for each step
    values: list[NDArray[np.float32]]  # [.., sum of WIDTHS] of these annotations


class _Step(NamedTuple):
    """What one step left behind, on the device."""

    moment: TrainingProgress
    image_rows: NDArray[np.int64]  # [B], on the host
    rows: Tensor  # [B, A]
    is_box: Tensor  # [B, A]
    values: Tensor  # [B, A, sum of WIDTHS]
    figures: dict[str, Tensor]  # scalars


@dataclass
class Recorder:
    """Outcomes of recent steps, still on the device."""

    dataset: Dataset
    ledger: Ledger | None
    """None in all processes but the first."""
    processes: Processes
    pending: list[_Step] = field(default_factory=list)
    sums: set[str] = field(default_factory=set)
    """Names of the figures that add up over the parts of a batch; the others are means."""
    window: dict[str, list[float]] = field(default_factory=dict)
    """Figures on the host, step by step, that no line of metrics.jsonl covers yet.

    A checkpoint keeps them, so that saving does not change which lines are written.
    """

    def add(
        self,
        batch: Batch,
        outcome: Outcome,
        moment: TrainingProgress,
        sums: Mapping[str, Tensor],
        means: Mapping[str, Tensor],
    ) -> None:
        """Record one step without waiting for it; everything is copied.

        Takes scalars of this process's part of the batch: `sums`, of which "loss" is one, add up
        over the parts, `means` are averaged. A method may give more of them after warm-up.
        """
        self.sums |= sums.keys()
        named = {**sums, **means}
        copied = torch.stack([value.float() for value in named.values()]).unbind()
        figures = dict(zip(named, copied, strict=True))
        values = _packed(outcome, batch)
        step = _Step(moment, batch.image_rows, batch.rows, batch.is_box, values, figures)
        self.pending.append(step)

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
        names = list(dict.fromkeys(name for step in self.pending for name in step.figures))
        portions = self.processes.gather_objects(self._brought_over(names))
        is_sum = np.array([name in self.sums for name in names])
        values = joined_figures(portions, is_sum)  # [steps, figures]
        figures = dict(zip(names, values.T.astype(np.float64), strict=True))
        self._ensure_finite(figures["loss"], portions)
        if self.ledger is not None:
            self._append(self.ledger, portions)
        for name, column in figures.items():
            self.window.setdefault(name, []).extend(column[~np.isnan(column)].tolist())
        self.pending.clear()

    def _brought_over(self, names: Sequence[str]) -> Portion:
        """Copy what is pending to the host; a step without one of the figures has NaN there."""
        nothing = next(iter(self.pending[0].figures.values())).new_full((), torch.nan)
        figures = torch.stack(
            [step.figures.get(name, nothing) for step in self.pending for name in names]
        ).view(len(self.pending), len(names))
        rows, values = [], []
        for step in self.pending:
            mask = step.is_box.cpu().numpy()
            rows.append(step.rows.cpu().numpy()[mask])
            values.append(step.values.cpu().numpy()[mask])
        numbers = np.array([len(one) for one in rows])
        images = [step.image_rows for step in self.pending]
        return Portion(figures.cpu().numpy(), numbers, images, rows, values)

    def _append(self, ledger: Ledger, portions: Sequence[Portion]) -> None:
        """Add the entries of the recent steps, in the order of the whole batches."""
        for place, step in enumerate(self.pending):
            rows = np.concatenate([portion.rows[place] for portion in portions])
            values = np.concatenate([portion.values[place] for portion in portions])
            ledger.append(self._entries(step.moment, rows, values))

    def _ensure_finite(self, losses: NDArray[np.floating], portions: Sequence[Portion]) -> None:
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            step = int(wrong[0])
            moment = self.pending[step].moment
            rows = np.concatenate([portion.images[step] for portion in portions])
            names = ", ".join(self.dataset.images.file_names[row] for row in rows)
            raise DataError(
                f"the loss is not finite at step {moment.step}, in the batch of {names}; lower "
                "--optimisation.lr, or look at these images and their boxes"
            )

    def _entries(
        self, moment: TrainingProgress, rows: NDArray[np.int64], values: NDArray[np.float32]
    ) -> Entries:
        column = _unpacked(values)
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
            matched_boxes=column["matched"],
            final_boxes=column["boxes"],
            is_kept=column["is_kept"] > 0,
        )


def _packed(outcome: Outcome, batch: Batch) -> Tensor:
    """Join what the ledger gets of an outcome, boxes in pixels of the images; [B, A, ..]."""
    shape = batch.rows.shape
    fields = {name: getattr(outcome, name).float().expand(shape)[..., None] for name in SCALARS}
    fields |= {name: batch.frame.to_image(getattr(outcome, name)) for name in BOXES}
    return torch.cat([fields[name] for name in WIDTHS], dim=-1)


def _unpacked(values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Part what `_packed` joined, [n, ..], by name of the field: scalars [n] and boxes [n, 4]."""
    ends = np.cumsum(list(WIDTHS.values()))[:-1]
    fields = dict(zip(WIDTHS, np.split(values, ends, axis=1), strict=True))
    return {name: part[:, 0] if name in SCALARS else part for name, part in fields.items()}


def joined_figures(portions: Sequence[Portion], is_sum: NDArray[np.bool_]) -> NDArray[np.floating]:
    """Figures [steps, figures] of whole batches, from those of their parts.

    Those of `is_sum` [figures] add up; the others are means over the annotations of a part.
    """
    if len(portions) == 1:
        return portions[0].figures
    figures = np.stack([portion.figures for portion in portions]).astype(np.float64)  # [P, S, F]
    numbers = np.stack([portion.numbers for portion in portions])[..., None]  # [P, S, 1]
    weights = np.where(numbers.sum(0) > 0, numbers, 1)  # of nothing at all, a plain mean
    weighted = np.multiply(figures, weights, out=np.zeros_like(figures), where=weights > 0)
    means: NDArray[np.floating] = weighted.sum(0) / weights.sum(0)
    return np.where(is_sum, figures.sum(0), means)


Listener = Callable[[dict[str, Any]], None]
"""Called with every line of the log; how TensorBoard and others are attached."""
