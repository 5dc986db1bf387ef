"""What a step leaves behind: ledger entries and figures, gathered on the device and brought over
in portions, so that the loop seldom waits."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boxmend.dataset import Dataset
from boxmend.errors import DataError
from boxmend.ledger import Entries, Ledger
from boxmend.loader import Batch
from boxmend.methods.protocol import Moment, Outcome

COLUMNS = ("verdict", "loss", "threshold", "confidence", "num_candidates", "labels", "is_kept")


@dataclass
class Recorder:
    """Outcomes of recent steps, still on the device."""

    dataset: Dataset
    ledger: Ledger
    pending: list[tuple[Moment, NDArray[np.int64], Tensor, Tensor, Tensor]] = field(
        default_factory=list
    )
    figures: list[dict[str, Tensor]] = field(default_factory=list)

    def add(
        self, batch: Batch, outcome: Outcome, moment: Moment, figures: dict[str, Tensor]
    ) -> None:
        """Take up one step without waiting for it."""
        shape = batch.rows.shape
        columns = [getattr(outcome, name).float().expand(shape) for name in COLUMNS]
        boxes = [batch.frame.to_image(boxes) for boxes in (outcome.matched, outcome.boxes)]
        values = torch.cat([torch.stack(columns, -1), *boxes], dim=-1)  # [B, A, 15]
        self.pending.append((moment, batch.image_rows, batch.rows, batch.is_box, values))
        self.figures.append({**figures, **outcome.metrics})

    def flush(self) -> dict[str, float]:
        """Bring everything over: entries into the ledger, the means of the figures to the caller.

        A loss that is not finite stops the run and names the images of its batch.
        """
        if not self.pending:
            return {}
        names = list(self.figures[0])
        rows = torch.stack(
            [torch.stack([one[name].float() for name in names]) for one in self.figures]
        )
        values = rows.cpu().numpy()  # [steps, figures]
        self._ensure_finite(values[:, names.index("loss")])
        for moment, _, annotation_rows, is_box, columns in self.pending:
            mask = is_box.cpu().numpy()
            self.ledger.append(
                self._entries(
                    moment, annotation_rows.cpu().numpy()[mask], columns.cpu().numpy()[mask]
                )
            )
        self.pending.clear()
        self.figures.clear()
        return {name: float(np.nanmean(values[:, k])) for k, name in enumerate(names)}

    def _ensure_finite(self, losses: NDArray[np.float32]) -> None:
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            moment, image_rows = self.pending[int(wrong[0])][:2]
            names = ", ".join(self.dataset.images.file_names[row] for row in image_rows)
            raise DataError(
                f"the loss is not finite at step {moment.step}, in the batch of {names}; lower "
                "--optimisation.lr, or look at these images and their boxes"
            )

    def _entries(
        self, moment: Moment, rows: NDArray[np.int64], values: NDArray[np.float32]
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


Listener = Callable[[dict[str, Any]], None]
"""Called with every line of the log; how TensorBoard and others are attached."""
