"""Pair the images of two datasets by their names."""

from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset, Images
from boxmend.data.types import Rows

Key = Callable[[str, str], Hashable]  # of a split and a file name

NO_PAIR = -1  # for an annotation whose image the other dataset lacks


def pair_images(a: Images, b: Images) -> tuple[Rows, Rows]:
    """Return the rows of the images that both have, in the order of `a`.

    Images with the same name are paired, first within the same split; repeated names are paired in
    order. The remaining images are paired by names without extension, then without folder, if
    that name is unique in both datasets.
    """
    partner = np.full(len(a), UNKNOWN, np.int64)
    for key, is_exact in _KEYS:
        free_a = np.flatnonzero(partner == UNKNOWN)
        free_b = np.setdiff1d(np.arange(len(b)), partner)
        if len(free_a) == 0 or len(free_b) == 0:
            break
        for row_a, row_b in _match_keys(_keys(a, key), _keys(b, key), is_exact, (free_a, free_b)):
            partner[row_a] = row_b
    rows = np.flatnonzero(partner != UNKNOWN)
    return rows, partner[rows]


def number_image_pairs(dataset: Dataset, paired: Rows) -> Rows:
    """Return the number of each annotation's image pair, or NO_PAIR.

    Annotations of unknown images share one further number, so that they are compared, too.
    """
    numbers = np.full(len(dataset.images) + 1, NO_PAIR, np.int64)
    numbers[paired] = np.arange(len(paired))
    numbers[-1] = len(paired)
    return numbers[dataset.image_rows]  # UNKNOWN picks the last


def _stem(name: str) -> str:
    """Return a file name without its extension; a name like ".jpg" stays."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + (base.rpartition(".")[0] or base)


_KEYS: tuple[tuple[Key, bool], ...] = (
    (lambda split, name: (split, name), True),
    (lambda split, name: name, True),
    (lambda split, name: _stem(name), False),
    (lambda split, name: _stem(name).rpartition("/")[2], False),
    (lambda split, name: (split, _stem(name).rpartition("/")[2]), False),
)


def _keys(images: Images, key: Key) -> list[Hashable]:
    return [key(split, name) for split, name in zip(images.splits, images.file_names, strict=True)]


def _match_keys(
    keys_a: list[Hashable], keys_b: list[Hashable], is_exact: bool, free: tuple[Rows, Rows]
) -> list[tuple[int, int]]:
    """Pair free rows with equal keys; a key that is not exact must be unique in both datasets."""
    counts = Counter(keys_a) | Counter(keys_b)  # the larger of both counts
    unpaired: dict[Hashable, list[int]] = {}
    for row in reversed(free[1].tolist()):
        unpaired.setdefault(keys_b[row], []).append(row)
    matches = []
    for row in free[0].tolist():
        key = keys_a[row]
        if key in unpaired and unpaired[key] and (is_exact or counts[key] == 1):
            matches.append((row, unpaired[key].pop()))
    return matches
