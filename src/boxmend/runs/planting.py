"""Plant known errors into the annotations that a training sees, and find them in its ledger.

With the setting `probe`, a training gets a copy of its dataset in which a few labels and boxes are
wrong on purpose. The errors follow from the seed, so a resumed run gets the same ones; no file of
the dataset changes. The ledger holds the annotations that the training saw. Where they differ from
the dataset, an error was planted, so readers need neither the seed nor this code's random numbers.
"""

from dataclasses import dataclass, replace

import numpy as np

from boxmend.data.dataset import Dataset
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.data.noise.disturbing import find_eligible_rows
from boxmend.data.noise.streams import Stream, count_of_rate, uniforms
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError
from boxmend.runs.folder import DATA_KEY, Run

PLANTED_KEY = "planted_sha256"  # of the facts about data: the fingerprint with planted errors
FIRST_SEED = 2**32  # noise with the seed of the training would use the same random numbers


@dataclass(frozen=True, eq=False)
class PlantedErrors:
    """Annotations as a training saw them, where they differ from the dataset."""

    rows: Rows  # [p] of the dataset, ascending
    labels: Rows  # [p]
    boxes: Floats  # [p, 4]

    def __len__(self) -> int:
        return len(self.rows)

    def put_into(self, dataset: Dataset) -> Dataset:
        """Return a copy of the dataset with these labels and boxes."""
        labels, boxes = dataset.labels.copy(), dataset.boxes.copy()
        labels[self.rows], boxes[self.rows] = self.labels, self.boxes
        return replace(dataset, labels=labels, boxes=boxes)


NO_ERRORS = PlantedErrors(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 4)))


def plant_errors(dataset: Dataset, share: float, seed: int) -> Dataset:
    """Return a copy of the dataset with errors in this share of its annotations.

    Half of them get any other label, the other half a box that is grossly off; if there is only one
    class, all of them get such a box. Crowd and difficult objects stay as they are.
    """
    eligible = find_eligible_rows(dataset)
    count = count_of_rate(share, len(eligible))
    if not count:
        raise UsageError(
            f"probe is {share}, which is less than one of {len(eligible):,} annotations; raise it, "
            "or leave it out"
        )
    seed += FIRST_SEED
    order = np.argsort(uniforms(seed, Stream.SUBSET, len(eligible)), kind="stable")[:count]
    num_labels = count // 2 if len(dataset.label_names) > 1 else 0
    for_labels, for_boxes = (
        np.sort(eligible[part]) for part in (order[:num_labels], order[num_labels:])
    )
    if num_labels:
        settings = NoiseSettings("symmetric:1", seed=seed)
        dataset = disturb(dataset, settings, eligible=for_labels).dataset
    return disturb(dataset, NoiseSettings(gross_boxes=1, seed=seed), eligible=for_boxes).dataset


def remove_planted_share(rate: float, planted: float) -> float:
    """Return a rate of errors among annotations without the share of planted errors."""
    return max((rate - planted) / (1 - planted), 0.0)


def has_planted_errors(run: Run) -> bool:
    """Return whether errors were planted into the annotations of a training."""
    data = run.facts().get(DATA_KEY)
    return isinstance(data, dict) and PLANTED_KEY in data
