"""Which classes a file of detections means: by name, or by a numbering that has to be found out.

Numbers may be the dataset's own category ids, or count its classes from 0 or from 1. Which of them
is meant is told by the labels of the annotations that detections overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.notes import warning
from boxmend.auditing.predictions.catalogue import category_labels, whole_number
from boxmend.auditing.predictions.raw import Key, RawDetections
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats.coco.sizes import get_category_ids
from boxmend.data.types import Rows
from boxmend.errors import DataError

SHOWN = 5
NUM_COCO = 80
COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # of 1 to 90, those that COCO does not use
NAMES = "give the names of classes, which are never mistaken: the key category_name, or a column"


@dataclass(frozen=True)
class NumberingConstants:
    """When classes are read by another numbering than the expected one, or refused."""

    min_pairs: int = 10  # overlapping boxes; of fewer nothing is concluded
    good_agreement: float = 0.3  # share of equal labels by which another numbering may be taken
    min_agreement_lead: float = 0.2  # of another numbering over the expected one
    bad_agreement: float = 0.2  # below it numbers mean other classes
    max_unknown_share: float = 0.5  # of detections of other classes that may be passed over
    min_pairs_of_class: int = 20  # of fewer nothing is concluded about it
    exchanged_ratio: float = 1.5  # how many times as often another class is seen as the own one


NUMBERING = NumberingConstants()


@dataclass(frozen=True)
class Numbering:
    """One way to number classes."""

    words: str
    labels: Mapping[int | str, int]


def numberings(dataset: Dataset, *, counts_from_0: bool) -> list[Numbering]:
    """The ways in which classes may be numbered, the expected one first."""
    n = len(dataset.label_names)
    counted: list[Numbering] = [
        Numbering("numbers from 0 in the order of the classes", {k: k for k in range(n)}),
        Numbering("numbers from 1 in the order of the classes", {k + 1: k for k in range(n)}),
    ]
    if n == NUM_COCO:
        ids = [one for one in range(1, 91) if one not in COCO_GAPS]
        counted.append(Numbering("COCO's own ids", {one: k for k, one in enumerate(ids)}))
    if not any(source.format == "coco" for source in dataset.sources):
        return counted
    own = category_labels(dataset)
    numbers = sorted((one, k) for one, k in own.items() if isinstance(one, int))
    ranked: dict[str, dict[int | str, int]] = {
        f"numbers from {first} in the order of the category ids": {
            rank + first: label for rank, (_, label) in enumerate(numbers)
        }
        for first in (0, 1)
    }
    named = Numbering("the category ids of the data", own)
    every = [*counted, named] if counts_from_0 else [named, *counted]
    every += [Numbering(words, labels) for words, labels in ranked.items()]
    return [one for k, one in enumerate(every) if one.labels not in [o.labels for o in every[:k]]]


def labels_of(
    found: RawDetections, dataset: Dataset, rows: Rows, true_labels: Rows
) -> tuple[Rows, list[str]]:
    """The label [class keys] that each key means, and what is to be said about that.

    `rows` are detections that overlap annotations; `true_labels` are the labels of those.
    """
    labels, numbers = _named(found.class_keys, dataset)
    notes: list[str] = []
    if numbers:
        numbering, notes = _chosen(found, dataset, numbers, (rows, true_labels))
        for key, number in numbers.items():
            labels[key] = numbering.labels.get(number, UNKNOWN)
    notes += _exchanged(labels[found.classes[rows]], true_labels, dataset.label_names)
    return labels, notes + _unknown(found, dataset, labels)


def _named(keys: Sequence[Key], dataset: Dataset) -> tuple[Rows, dict[int, int | str]]:
    """Labels of the keys that are names, and the numbers of the others by their place."""
    exact = {name: label for label, name in enumerate(dataset.label_names)}
    loose: dict[str, int] = {}
    for one, label in exact.items():
        loose[_loosely(one)] = UNKNOWN if _loosely(one) in loose else label
    texts = {one for one in get_category_ids(dataset) if isinstance(one, str)}
    labels = np.full(len(keys), UNKNOWN, np.int64)
    numbers: dict[int, int | str] = {}
    for place, (identity, name) in enumerate(keys):
        told = name if name is not None else identity
        if isinstance(told, str):
            labels[place] = exact.get(told, loose.get(_loosely(told), UNKNOWN))
        if name is None and labels[place] == UNKNOWN:
            number = identity if identity in texts else whole_number(identity)
            if isinstance(number, int | str):
                numbers[place] = number
    return labels, numbers


def _loosely(name: str) -> str:
    """A name without what people write now so, now otherwise."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _chosen(
    found: RawDetections,
    dataset: Dataset,
    numbers: Mapping[int, int | str],
    pairs: tuple[Rows, Rows],
) -> tuple[Numbering, list[str]]:
    """The numbering that is meant, and what is to be said where it is not the expected one."""
    every = numberings(dataset, counts_from_0=found.counts_from_0)
    counts = np.bincount(found.classes, minlength=len(found.class_keys))
    known = [_share_known(one, numbers, counts) for one in every]
    agreement = [_agreement(found, one, numbers, pairs) for one in every]
    num = sum(int(one) in numbers for one in found.classes[pairs[0]].tolist())
    able = [k for k in range(len(every)) if known[k] >= known[0]]  # that know no fewer of them
    best = max(able, key=lambda k: (agreement[k], -k))
    if num < NUMBERING.min_pairs:
        if known[0] == 1:
            return every[0], [
                f"the classes in {found.told_files} were taken for {every[0].words}; too few boxes "
                "overlap annotations to make sure of it"
            ]
        raise DataError(
            f"{found.told_files}: the classes are {_some(numbers.values())}, while "
            f"{every[0].words} are {_some(every[0].labels)}; too few boxes overlap annotations to "
            f"find out which are meant: {NAMES}"
        )
    is_better = agreement[best] >= max(
        NUMBERING.good_agreement, agreement[0] + NUMBERING.min_agreement_lead
    )
    chosen = best if is_better else 0
    if agreement[chosen] < NUMBERING.bad_agreement:
        raise DataError(
            f"{found.told_files}: the classes mean something else than those of the data: of "
            f"{num:,} boxes that overlap an annotation {agreement[best]:.0%} have its label, "
            f"however the classes are numbered; {NAMES}"
        )
    if chosen == 0:
        return every[0], []
    return every[best], [
        f"the classes in {found.told_files} are {every[best].words}, not {every[0].words}: so "
        f"{agreement[best]:.0%} instead of {agreement[0]:.0%} of the boxes that overlap an "
        "annotation have its label. They were read so"
    ]


def _share_known(numbering: Numbering, numbers: Mapping[int, int | str], counts: Rows) -> float:
    all_of = sum(int(counts[place]) for place in numbers)
    known = sum(int(counts[place]) for place, one in numbers.items() if one in numbering.labels)
    return known / all_of if all_of else 1.0


def _agreement(
    found: RawDetections,
    numbering: Numbering,
    numbers: Mapping[int, int | str],
    pairs: tuple[Rows, Rows],
) -> float:
    """Share of the overlapping boxes told by number that have the label of their annotation."""
    labels = np.full(len(found.class_keys), UNKNOWN - 1, np.int64)
    for place, number in numbers.items():
        labels[place] = numbering.labels.get(number, UNKNOWN)
    told = labels[found.classes[pairs[0]]]
    is_number = told > UNKNOWN - 1
    return float((told == pairs[1])[is_number].mean()) if is_number.any() else 0.0


def _exchanged(labels: Rows, true_labels: Rows, names: Sequence[str]) -> list[str]:
    """What is said where classes are seen in each other's place, as if names were exchanged.

    A class that a detector does not know is taken for one that it does. Here the other one is taken
    for yet another itself.
    """
    taken: dict[int, tuple[int, float]] = {}
    for label in range(len(names)):
        own = labels[(true_labels == label) & (labels != UNKNOWN)]
        if len(own) < NUMBERING.min_pairs_of_class:
            continue
        counts = np.bincount(own, minlength=len(names))
        most = int(counts.argmax())
        if most != label and counts[most] >= NUMBERING.exchanged_ratio * counts[label]:
            taken[label] = most, counts[most] / len(own)
    strange = [(one, most, share) for one, (most, share) in taken.items() if most in taken]
    if not strange:
        return []
    some = _some(f"{names[one]} as {names[most]} ({share:.0%})" for one, most, share in strange)
    told = (
        f"classes look exchanged, since the detector sees {some}. Compare the names of the classes "
        "and their order in the data with those of the detector; if they differ, label fixes are "
        "wrong"
    )
    return [warning(told)]


def _unknown(found: RawDetections, dataset: Dataset, labels: Rows) -> list[str]:
    """What is said of detections of classes that the data do not have; a DataError if many."""
    counts = np.bincount(found.classes, minlength=len(labels))
    lost = [place for place in np.flatnonzero(labels == UNKNOWN).tolist() if counts[place]]
    if not lost:
        return []
    some = _some(_told(found.class_keys[place]) for place in lost)
    num, told = int(counts[lost].sum()), f"the data do not have: {some}"
    if num > NUMBERING.max_unknown_share * len(found):
        raise DataError(
            f"{found.told_files}: {num:,} of {len(found):,} detections are of classes that {told}; "
            f"the classes of the data are {_some(dataset.label_names)}"
        )
    return [f"{num:,} of {len(found):,} detections were passed over, of classes that {told}"]


def _told(key: Key) -> object:
    return key[1] if key[1] is not None else key[0]


def _some(values: Iterable[object]) -> str:
    every = [str(one)[:80] for one in values]
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more
