"""Which image goes into which fold: by a hash of its file name, evenly, and evenly by class.

Images that belong together, as frames of one video do, go into one fold: otherwise a detector has
seen their neighbours, and with them their wrong annotations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from posixpath import dirname

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.folds.manifest import MOST_FOLDS
from boxmend.data.types import Rows
from boxmend.errors import UsageError

FOLDER, FRAMES = "folder", "frames"
TRAILING_NUMBER = re.compile(r"^(.*?)\d+(?:\.[^./]*)?$")
MANY_FRAMES = 5  # images of one name but for the number, in the mean, that look like videos


@dataclass(frozen=True)
class FoldSettings:
    """How to split."""

    k: int = 5
    seed: int = 0
    group_by: str | None = None
    """"folder", "frames" (the name up to its last number), or a regular expression whose first
    group, or whole match, is what images of one group share."""

    def __post_init__(self) -> None:
        if type(self.k) is not int or not 2 <= self.k <= MOST_FOLDS:
            raise UsageError(f"k is {self.k!r}; expected a number of folds from 2 to {MOST_FOLDS}")
        if type(self.seed) is not int or self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}; expected a whole number from 0 on, like 0")
        if self.group_by not in (None, FOLDER, FRAMES):
            try:
                re.compile(self.group_by or "")
            except (re.error, OverflowError, RecursionError) as error:
                raise UsageError(
                    f"group-by {self.group_by!r} is no regular expression ({error}); expected one, "
                    f"or {FOLDER}, or {FRAMES}"
                ) from error


def split(dataset: Dataset, settings: FoldSettings) -> Rows:
    """The fold [images] of every image; it does not depend on the order of the images.

    Groups are dealt out class by class, the rarest first, each to the fold with the fewest images
    of that class, and then with the fewest images.
    """
    names = dataset.images.file_names
    groups: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        groups[group_of(name, settings.group_by)].append(row)
    _ensure_enough(len(groups), len(set(names)), settings)
    classes = _rarest_classes(dataset)
    rarity = {label: place for place, label in enumerate(_by_rarity(dataset))} | {
        UNKNOWN: len(names)
    }
    members = {key: [classes[row] for row in rows] for key, rows in groups.items()}
    first = {key: min(found, key=rarity.__getitem__) for key, found in members.items()}
    order = sorted(
        groups,
        key=lambda key: (rarity[first[key]], -len(groups[key]), _hash(key, settings.seed), key),
    )
    of_class: dict[int, list[int]] = defaultdict(lambda: [0] * settings.k)
    totals = [0] * settings.k
    folds = np.zeros(len(names), np.int64)
    for key in order:
        counts = of_class[first[key]]
        chosen = min(range(settings.k), key=lambda fold: (counts[fold], totals[fold], fold))
        folds[groups[key]] = chosen
        totals[chosen] += len(groups[key])
        for label in members[key]:
            of_class[label][chosen] += 1
    return folds


def group_of(name: str, group_by: str | None) -> str:
    """What a file name shares with those that go into the same fold."""
    if group_by is None:
        return name
    if group_by == FOLDER:
        return dirname(name)
    found = (TRAILING_NUMBER if group_by == FRAMES else re.compile(group_by)).search(name)
    if found is None:
        return name
    return (found.group(1) or "") if found.re.groups else found.group(0)


def frames_advice(dataset: Dataset, settings: FoldSettings) -> list[str]:
    """What is said where file names look like frames of videos, and nothing keeps them together."""
    names = dataset.images.file_names
    if settings.group_by is not None:
        return []
    videos = {group_of(name, FRAMES) for name in names}
    if len(videos) < settings.k or MANY_FRAMES * len(videos) > len(names):
        return []
    return [
        f"the file names look like frames of {len(videos):,} videos; if they are, --group-by "
        f"{FRAMES} keeps each in one fold"
    ]


def _ensure_enough(num_groups: int, num_images: int, settings: FoldSettings) -> None:
    if num_groups >= settings.k:
        return
    what = "images" if settings.group_by is None else "groups of images"
    raise UsageError(
        f"{settings.k} folds need at least {settings.k} {what}, and there are {num_groups:,}"
        + (f" (of {num_images:,} images)" if settings.group_by is not None else "")
        + "; choose a smaller -k"
    )


def _by_rarity(dataset: Dataset) -> list[int]:
    """Labels by the number of images that have them, the rarest first."""
    pairs = _image_labels(dataset)
    counts = np.bincount(pairs[:, 1], minlength=len(dataset.label_names))
    return [int(one) for one in np.argsort(counts, kind="stable")]


def _rarest_classes(dataset: Dataset) -> list[int]:
    """[images] The rarest label of each image; UNKNOWN where it has none."""
    rarest = [UNKNOWN] * len(dataset.images)
    pairs = _image_labels(dataset)
    place = np.empty(len(dataset.label_names), np.int64)
    place[_by_rarity(dataset)] = np.arange(len(place))
    for image, label in pairs[np.argsort(-place[pairs[:, 1]], kind="stable")].tolist():
        rarest[image] = label  # the rarest comes last
    return rarest


def _image_labels(dataset: Dataset) -> Rows:
    """[n, 2] Image rows and labels that occur together."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    pairs = np.stack([dataset.image_rows[is_known], dataset.labels[is_known]], axis=1)
    return np.unique(pairs, axis=0)


def _hash(key: str, seed: int) -> bytes:
    text = f"{seed}\n{key}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()
