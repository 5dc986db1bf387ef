"""Assign images to folds: by a hash of the file name, balanced in total and by class.

Images that belong together, such as frames of one video, go into one fold. Otherwise a detector
trains on their neighbours, which often share their wrong annotations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from hashlib import blake2b
from posixpath import dirname

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.folds.manifest import MAX_FOLDS
from boxmend.data.types import Rows
from boxmend.errors import UsageError

FOLDER, FRAMES = "folder", "frames"
TRAILING_NUMBER = re.compile(r"^(.*?)\d+(?:\.[^./]*)?$")
MIN_FRAMES_PER_VIDEO = 5  # mean number of images whose names differ only in the last number


@dataclass(frozen=True)
class FoldSettings:
    """The number of folds, the seed and the grouping."""

    k: int = 5
    seed: int = 0
    group_by: str | None = None
    """"folder", "frames" (the name up to its last number), or a regular expression; images with the
    same first group, or the same whole match, go into one fold."""

    def __post_init__(self) -> None:
        if type(self.k) is not int or not 2 <= self.k <= MAX_FOLDS:
            raise UsageError(f"k is {self.k!r}; expected a number of folds from 2 to {MAX_FOLDS}")
        if type(self.seed) is not int or self.seed < 0:
            raise UsageError(f"seed is {self.seed!r}; expected a whole number, at least 0")
        if self.group_by not in (None, FOLDER, FRAMES):
            try:
                re.compile(self.group_by or "")
            except (re.error, OverflowError, RecursionError) as error:
                raise UsageError(
                    f"group-by {self.group_by!r} is no regular expression ({error}); expected one, "
                    f"or {FOLDER}, or {FRAMES}"
                ) from error


def assign_folds(dataset: Dataset, settings: FoldSettings) -> Rows:
    """Return the fold [images] of every image; it does not depend on the order of the images.

    Groups are assigned class by class, rarest first. Each goes to the fold with the fewest images
    of that class; the total number of images breaks ties.
    """
    names = dataset.images.file_names
    groups: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        groups[get_group(name, settings.group_by)].append(row)
    _ensure_enough_groups(len(groups), len(set(names)), settings)
    labels_of_images = _find_rarest_labels(dataset)
    rarity = {label: rank for rank, label in enumerate(_sort_by_rarity(dataset))} | {
        UNKNOWN: len(names)
    }
    members = {key: [labels_of_images[row] for row in rows] for key, rows in groups.items()}
    rarest = {key: min(labels, key=rarity.__getitem__) for key, labels in members.items()}
    order = sorted(
        groups,
        key=lambda key: (rarity[rarest[key]], -len(groups[key]), _hash(key, settings.seed), key),
    )
    class_counts: dict[int, list[int]] = defaultdict(lambda: [0] * settings.k)
    totals = [0] * settings.k
    folds = np.zeros(len(names), np.int64)
    for key in order:
        counts = class_counts[rarest[key]]
        chosen = min(range(settings.k), key=lambda fold: (counts[fold], totals[fold], fold))
        folds[groups[key]] = chosen
        totals[chosen] += len(groups[key])
        for label in members[key]:
            class_counts[label][chosen] += 1
    return folds


def get_group(name: str, group_by: str | None) -> str:
    """Return the part of a file name that all images of its group share."""
    if group_by is None:
        return name
    if group_by == FOLDER:
        return dirname(name)
    match = (TRAILING_NUMBER if group_by == FRAMES else re.compile(group_by)).search(name)
    if match is None:
        return name
    return (match.group(1) or "") if match.re.groups else match.group(0)


def advise_grouping(dataset: Dataset, settings: FoldSettings) -> list[str]:
    """Return a hint if the file names look like frames of videos but no grouping was chosen."""
    names = dataset.images.file_names
    if settings.group_by is not None:
        return []
    videos = {get_group(name, FRAMES) for name in names}
    if len(videos) < settings.k or MIN_FRAMES_PER_VIDEO * len(videos) > len(names):
        return []
    return [
        f"the file names look like frames of {len(videos):,} videos; if so, --group-by {FRAMES} "
        "keeps each video in one fold"
    ]


def _ensure_enough_groups(num_groups: int, num_images: int, settings: FoldSettings) -> None:
    if num_groups >= settings.k:
        return
    unit = "images" if settings.group_by is None else "groups of images"
    raise UsageError(
        f"{settings.k} folds need at least {settings.k} {unit}, and there are {num_groups:,}"
        + (f" (of {num_images:,} images)" if settings.group_by is not None else "")
        + "; choose a smaller -k"
    )


def _sort_by_rarity(dataset: Dataset) -> list[int]:
    """Return the labels sorted by the number of images that have them, rarest first."""
    pairs = _pair_images_and_labels(dataset)
    counts = np.bincount(pairs[:, 1], minlength=len(dataset.label_names))
    return [int(label) for label in np.argsort(counts, kind="stable")]


def _find_rarest_labels(dataset: Dataset) -> list[int]:
    """Return the rarest label [images] of each image; UNKNOWN if it has none."""
    rarest = [UNKNOWN] * len(dataset.images)
    pairs = _pair_images_and_labels(dataset)
    rarity = np.empty(len(dataset.label_names), np.int64)
    rarity[_sort_by_rarity(dataset)] = np.arange(len(rarity))
    for image, label in pairs[np.argsort(-rarity[pairs[:, 1]], kind="stable")].tolist():
        rarest[image] = label  # the rarest label comes last
    return rarest


def _pair_images_and_labels(dataset: Dataset) -> Rows:
    """Return the distinct pairs [n, 2] of image row and label."""
    is_known = (dataset.image_rows != UNKNOWN) & (dataset.labels != UNKNOWN)
    pairs = np.stack([dataset.image_rows[is_known], dataset.labels[is_known]], axis=1)
    return np.unique(pairs, axis=0)


def _hash(key: str, seed: int) -> bytes:
    text = f"{seed}\n{key}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=16).digest()
