"""The truth about noise in memory equals the one that is read from files."""

from pathlib import Path

import numpy as np
import pytest

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load
from boxmend.data.noise import NoiseSettings, disturb
from boxmend.scoring.truth import KnownTruth, known_truth
from boxmend.scoring.truth_of_noise import truth_of_noise

NOISE = NoiseSettings("symmetric:0.3", "uniform:0.2", 0.2, 0.2, 0.1, seed=2)


def describe(truth: KnownTruth, dataset: Dataset) -> list[tuple[object, ...]]:
    """Each annotation with its true label, box and object, and then each object."""
    objects = truth.objects
    assert objects is not None
    rows: list[tuple[object, ...]] = []
    for row in range(len(dataset)):
        place = int(objects.object_rows[row])
        box = None if place < 0 else objects.boxes[place].tolist()
        rows.append((truth.labels[row], truth.boxes[row].tolist(), truth.is_spurious[row], box))
    is_missing = objects.is_missing
    result = zip(
        objects.image_rows, objects.labels, objects.boxes.tolist(), is_missing, strict=True
    )
    return rows + sorted((int(a), int(b), c, bool(d)) for a, b, c, d in result)


@pytest.mark.parametrize("has_crowds", [False, True])
def test_it_equals_the_truth_by_the_clean_dataset(toys: Path, has_crowds: bool) -> None:
    clean = load(f"{toys}:train")
    if has_crowds:
        clean.is_crowd[:5] = True
        clean.is_difficult[5:9] = True
    noisy = disturb(clean, NOISE)
    ours = truth_of_noise(clean, noisy)
    theirs = known_truth(clean, noisy.dataset)
    twins = noisy.truth.origins[~noisy.truth.is_missing] == 3  # known_truth sees no duplicates
    assert twins.any()
    same = np.flatnonzero(~twins)
    first, second = describe(ours, noisy.dataset), describe(theirs, noisy.dataset)
    n = len(noisy.dataset)
    assert str([first[row] for row in same]) == str([second[row] for row in same])
    assert str(first[n:]) == str(second[n:])
    assert ours.objects is not None
    assert ours.objects.are_all_known


def test_a_duplicate_shows_the_object_of_its_original(toys: Path) -> None:
    clean = load(f"{toys}:train")
    noisy = disturb(clean, NoiseSettings(duplicate=0.3, seed=1))
    truth = truth_of_noise(clean, noisy)
    assert truth.objects is not None
    rows = truth.objects.object_rows
    added = np.arange(len(clean), len(noisy.dataset))
    sources = noisy.truth.source_ids[added].tolist()
    ids = clean.annotation_ids.tolist()
    assert rows[added].tolist() == [int(rows[ids.index(source)]) for source in sources]
    assert not truth.is_spurious.any()
    assert truth.boxes[added].tolist() == clean.boxes[[ids.index(one) for one in sources]].tolist()
