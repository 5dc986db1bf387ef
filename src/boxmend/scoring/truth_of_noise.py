"""Derive the truth of noise that was planted in memory, without a file."""

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.text import escape_surrogates
from boxmend.data.noise import Noisy, Origin
from boxmend.scoring.truth import NONE, KnownTruth, TrueObjects


def truth_of_noise(clean: Dataset, noisy: Noisy) -> KnownTruth:
    """Return the truth of a dataset that `disturb` made from `clean`, including missing objects."""
    truth = noisy.truth
    is_there = ~truth.is_missing
    is_object = (clean.image_rows != UNKNOWN) & ~clean.is_crowd
    number = np.append(np.where(is_object, np.cumsum(is_object) - 1, NONE), NONE)
    row_of = {escape_surrogates(id): row for row, id in enumerate(clean.annotation_ids.tolist())}
    source_rows = np.concatenate([np.arange(len(clean)), np.full(len(truth) - len(clean), NONE)])
    for row in np.flatnonzero(truth.origins == Origin.DUPLICATE).tolist():
        source_rows[row] = row_of[escape_surrogates(truth.source_ids[[row]].tolist()[0])]
    objects = TrueObjects(
        image_rows=clean.image_rows[is_object],
        labels=clean.labels[is_object],
        boxes=clean.boxes[is_object],
        object_rows=number[source_rows][is_there],  # NONE selects the last entry
        are_all_known=True,
    )
    return KnownTruth(
        labels=truth.labels[is_there],
        boxes=truth.boxes[is_there],
        is_spurious=truth.is_spurious[is_there],
        image_rows=objects.image_rows,
        image_boxes=objects.boxes,
        objects=objects,
    )
