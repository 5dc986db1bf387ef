"""Pairing the images of two datasets by their names."""

from collections import Counter
from collections.abc import Callable, Hashable

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset, Images
from boxmend.data.types import Rows

Key = Callable[[str, str], Hashable]  # of a split and a file name

NOWHERE = -1  # place of an annotation whose image the other dataset does not have


def pair_images(a: Images, b: Images) -> tuple[Rows, Rows]:
    """Rows of the images that both have, in the order of `a`.

    The same name pairs, within the same split before any other; names that are there several
    times pair in order. Failing that, names without their ending or without their folder pair,
    if there is but one such name on either side.
    """
    partner = np.full(len(a), UNKNOWN, np.int64)
    for key, is_exact in _KEYS:
        free_a = np.flatnonzero(partner == UNKNOWN)
        free_b = np.setdiff1d(np.arange(len(b)), partner)
        if len(free_a) == 0 or len(free_b) == 0:
            break
        for row_a, row_b in _matches(_keys(a, key), _keys(b, key), is_exact, (free_a, free_b)):
            partner[row_a] = row_b
    rows = np.flatnonzero(partner != UNKNOWN)
    return rows, partner[rows]


def place_annotations(dataset: Dataset, paired: Rows) -> Rows:
    """The number of the image pair that each annotation lies in, or NOWHERE.

    Annotations of unknown images share one last place: so they find their like.
    """
    places = np.full(len(dataset.images) + 1, NOWHERE, np.int64)
    places[paired] = np.arange(len(paired))
    places[-1] = len(paired)
    return places[dataset.image_rows]  # UNKNOWN picks the last


def _stem(name: str) -> str:
    """A file name without its ending; a name that is nothing but an ending stays."""
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


def _matches(
    keys_a: list[Hashable], keys_b: list[Hashable], is_exact: bool, free: tuple[Rows, Rows]
) -> list[tuple[int, int]]:
    """Pair free rows of equal key; unless the key is exact it must be unique in all rows."""
    often = Counter(keys_a) | Counter(keys_b)  # the greater of both counts
    waiting: dict[Hashable, list[int]] = {}
    for row in reversed(free[1].tolist()):
        waiting.setdefault(keys_b[row], []).append(row)
    matches = []
    for row in free[0].tolist():
        key = keys_a[row]
        if key in waiting and waiting[key] and (is_exact or often[key] == 1):
            matches.append((row, waiting[key].pop()))
    return matches
