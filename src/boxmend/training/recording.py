"""Record the steps of a training: ledger entries and figures.

They are collected on the device and copied to the host for many steps together, so the loop seldom
waits.
"""

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
"""How many numbers each field of an Outcome has in the ledger, in the order of packed values."""


class HostRecords(NamedTuple):
    """The records of recent steps in one process, on the host."""

    figures: NDArray[np.float32]  # [steps, figures]
    numbers: NDArray[np.int64]  # [steps] annotations to learn from
    images: list[NDArray[np.int64]]  # rows of the images, for each step
    rows: list[NDArray[np.int64]]  # of the annotations to learn from, for each step
    values: list[NDArray[np.float32]]  # [.., sum of WIDTHS] of these annotations


class _Step(NamedTuple):
    """The record of one step, on the device."""

    progress: TrainingProgress
    image_rows: NDArray[np.int64]  # [B], on the host
    rows: Tensor  # [B, A]
    is_box: Tensor  # [B, A]
    values: Tensor  # [B, A, sum of WIDTHS]
    figures: dict[str, Tensor]  # scalars


@dataclass
class Recorder:
    """The outcomes of recent steps on the device, on their way to ledger and log."""

    dataset: Dataset
    ledger: Ledger | None
    """None in all processes but process 0."""
    processes: Processes
    pending: list[_Step] = field(default_factory=list)
    sums: set[str] = field(default_factory=set)
    """Names of the figures that are sums over the parts of a batch; the others are means."""
    window: dict[str, list[float]] = field(default_factory=dict)
    """Figures on the host by step, for the next line of metrics.jsonl.

    A checkpoint keeps them, so saving does not change which lines are written.
    """

    def add(
        self,
        batch: Batch,
        outcome: Outcome,
        progress: TrainingProgress,
        sums: Mapping[str, Tensor],
        means: Mapping[str, Tensor],
    ) -> None:
        """Record a copy of one step, without waiting for the device.

        `sums` and `means` are scalars of this process's part of the batch: `sums`, among them
        "loss", add up over the parts, and `means` are averaged. Their names may change after
        warm-up.
        """
        self.sums |= sums.keys()
        named = {**sums, **means}
        copied = torch.stack([value.float() for value in named.values()]).unbind()
        figures = dict(zip(named, copied, strict=True))
        values = _pack(outcome, batch)
        step = _Step(progress, batch.image_rows, batch.rows, batch.is_box, values, figures)
        self.pending.append(step)

    def flush(self) -> dict[str, float]:
        """Collect pending steps; return the means of the figures since the last call."""
        self.collect()
        means = {
            name: float(np.mean(values)) if values else math.nan
            for name, values in self.window.items()
        }
        self.window = {}
        return means

    def collect(self) -> None:
        """Move pending steps to the host: entries into the ledger, figures into `window`.

        All processes must call this after the same step. Raises a DataError with the images of the
        batch if a loss is not finite.
        """
        if not self.pending:
            return
        names = list(dict.fromkeys(name for step in self.pending for name in step.figures))
        portions = self.processes.gather_objects(self._copy_to_host(names))
        is_sum = np.array([name in self.sums for name in names])
        values = join_figures(portions, is_sum)  # [steps, figures]
        figures = dict(zip(names, values.T.astype(np.float64), strict=True))
        self._ensure_finite(figures["loss"], portions)
        if self.ledger is not None:
            self._append(self.ledger, portions)
        for name, column in figures.items():
            self.window.setdefault(name, []).extend(column[~np.isnan(column)].tolist())
        self.pending.clear()

    def _copy_to_host(self, names: Sequence[str]) -> HostRecords:
        """Copy pending steps to the host; a figure that a step lacks is NaN."""
        missing = next(iter(self.pending[0].figures.values())).new_full((), torch.nan)
        figures = torch.stack(
            [step.figures.get(name, missing) for step in self.pending for name in names]
        ).view(len(self.pending), len(names))
        rows, values = [], []
        for step in self.pending:
            mask = step.is_box.cpu().numpy()
            rows.append(step.rows.cpu().numpy()[mask])
            values.append(step.values.cpu().numpy()[mask])
        numbers = np.array([len(rows_of_step) for rows_of_step in rows])
        images = [step.image_rows for step in self.pending]
        return HostRecords(figures.cpu().numpy(), numbers, images, rows, values)

    def _append(self, ledger: Ledger, portions: Sequence[HostRecords]) -> None:
        """Append the entries of pending steps, in the order of the whole batches."""
        for place, step in enumerate(self.pending):
            rows = np.concatenate([portion.rows[place] for portion in portions])
            values = np.concatenate([portion.values[place] for portion in portions])
            ledger.append(self._entries(step.progress, rows, values))

    def _ensure_finite(self, losses: NDArray[np.floating], portions: Sequence[HostRecords]) -> None:
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            step = int(wrong[0])
            progress = self.pending[step].progress
            rows = np.concatenate([portion.images[step] for portion in portions])
            names = ", ".join(self.dataset.images.file_names[row] for row in rows)
            raise DataError(
                f"the loss is not finite at step {progress.step}, in the batch of {names}; lower "
                "--optimisation.lr, or check these images and their boxes"
            )

    def _entries(
        self, progress: TrainingProgress, rows: NDArray[np.int64], values: NDArray[np.float32]
    ) -> Entries:
        column = _unpack(values)
        n, data = len(rows), self.dataset
        return Entries(
            epochs=np.full(n, progress.epoch),
            steps=np.full(n, progress.step),
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


def _pack(outcome: Outcome, batch: Batch) -> Tensor:
    """Return the values of an outcome for the ledger [B, A, ..], with boxes in image pixels."""
    shape = batch.rows.shape
    fields = {name: getattr(outcome, name).float().expand(shape)[..., None] for name in SCALARS}
    fields |= {name: batch.frame.to_image(getattr(outcome, name)) for name in BOXES}
    return torch.cat([fields[name] for name in WIDTHS], dim=-1)


def _unpack(values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Split the values of `_pack` [n, ..] into fields by name: scalars [n] and boxes [n, 4]."""
    ends = np.cumsum(list(WIDTHS.values()))[:-1]
    fields = dict(zip(WIDTHS, np.split(values, ends, axis=1), strict=True))
    return {name: part[:, 0] if name in SCALARS else part for name, part in fields.items()}


def join_figures(
    portions: Sequence[HostRecords], is_sum: NDArray[np.bool_]
) -> NDArray[np.floating]:
    """Return the figures [steps, figures] of whole batches from those of their parts.

    `is_sum` [figures] marks sums; the other figures are means over the annotations of a part.
    """
    if len(portions) == 1:
        return portions[0].figures
    figures = np.stack([portion.figures for portion in portions]).astype(np.float64)  # [P, S, F]
    numbers = np.stack([portion.numbers for portion in portions])[..., None]  # [P, S, 1]
    weights = np.where(numbers.sum(0) > 0, numbers, 1)  # without annotations, a plain mean
    weighted = np.multiply(figures, weights, out=np.zeros_like(figures), where=weights > 0)
    means: NDArray[np.floating] = weighted.sum(0) / weights.sum(0)
    return np.where(is_sum, figures.sum(0), means)


Listener = Callable[[dict[str, Any]], None]
"""A function that is called with every line of the log, for example by a tracker."""
