"""Find the classes that a prediction file means, by name or by an inferred numbering.

Numbers may be the dataset's own category ids, or number its classes from 0 or from 1. The numbering
that best agrees with the labels of overlapping annotations is the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.notes import warning
from boxmend.auditing.predictions.catalogue import category_labels, to_whole_number
from boxmend.auditing.predictions.raw import Key, RawDetections
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.formats.coco.sizes import get_category_ids
from boxmend.data.types import Rows
from boxmend.errors import DataError

MAX_SHOWN = 5
NUM_COCO_CLASSES = 80
UNUSED_COCO_IDS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # from 1 to 90
NAMES_REMEDY = "give class names instead of numbers, by the key category_name or in a column"


@dataclass(frozen=True)
class NumberingConstants:
    """Thresholds for choosing another numbering than the documented one, or refusing the file."""

    min_pairs: int = 10  # of overlapping boxes; fewer are too few to choose a numbering
    good_agreement: float = 0.3  # share of equal labels that another numbering needs
    min_agreement_lead: float = 0.2  # of another numbering over the expected one
    bad_agreement: float = 0.2  # share of equal labels; with less, the numbers mean other classes
    max_unknown_share: float = 0.5  # of skipped detections, whose classes the data do not have
    min_pairs_of_class: int = 20  # fewer are too few to judge a class
    exchanged_ratio: float = 1.5  # of detections of another class to those of the own class


NUMBERING = NumberingConstants()


@dataclass(frozen=True)
class Numbering:
    """One numbering of classes, with its description."""

    words: str
    labels: Mapping[int | str, int]


def possible_numberings(dataset: Dataset, *, counts_from_zero: bool) -> list[Numbering]:
    """Return the ways in which classes may be numbered, the documented one first."""
    num_labels = len(dataset.label_names)
    counted: list[Numbering] = [
        Numbering(
            "numbers from 0 in the order of the classes",
            {label: label for label in range(num_labels)},
        ),
        Numbering(
            "numbers from 1 in the order of the classes",
            {label + 1: label for label in range(num_labels)},
        ),
    ]
    if num_labels == NUM_COCO_CLASSES:
        ids = [number for number in range(1, 91) if number not in UNUSED_COCO_IDS]
        counted.append(
            Numbering("COCO's own ids", {number: label for label, number in enumerate(ids)})
        )
    if not any(source.format == "coco" for source in dataset.sources):
        return counted
    own_ids = category_labels(dataset)
    numbers = sorted(
        (number, label) for number, label in own_ids.items() if isinstance(number, int)
    )
    ranked: dict[str, dict[int | str, int]] = {
        f"numbers from {first} in the order of the category ids": {
            rank + first: label for rank, (_, label) in enumerate(numbers)
        }
        for first in (0, 1)
    }
    named = Numbering("the category ids of the data", own_ids)
    numberings = [*counted, named] if counts_from_zero else [named, *counted]
    numberings += [Numbering(words, labels) for words, labels in ranked.items()]
    return [
        number
        for label, number in enumerate(numberings)
        if number.labels not in [other.labels for other in numberings[:label]]
    ]


def find_labels(
    raw: RawDetections, dataset: Dataset, rows: Rows, true_labels: Rows
) -> tuple[Rows, list[str]]:
    """Return the label of each class key [class keys], and notes about them.

    `rows` are detections that overlap annotations, and `true_labels` the labels of these
    annotations.
    """
    labels, numbers = _match_names(raw.class_keys, dataset)
    notes: list[str] = []
    if numbers:
        numbering, notes = _choose_numbering(raw, dataset, numbers, (rows, true_labels))
        for key, number in numbers.items():
            labels[key] = numbering.labels.get(number, UNKNOWN)
    notes += _warn_about_exchanged_classes(
        labels[raw.classes[rows]], true_labels, dataset.label_names
    )
    return labels, notes + _note_unknown_classes(raw, dataset, labels)


def match_documented(raw: RawDetections, dataset: Dataset) -> Rows:
    """Return the label of each class key [class keys] by name or by the documented numbering.

    A key that means no label gets UNKNOWN.
    """
    labels, numbers = _match_names(raw.class_keys, dataset)
    documented = possible_numberings(dataset, counts_from_zero=raw.counts_from_zero)[0]
    for key, number in numbers.items():
        labels[key] = documented.labels.get(number, UNKNOWN)
    return labels


def _match_names(keys: Sequence[Key], dataset: Dataset) -> tuple[Rows, dict[int, int | str]]:
    """Return labels of keys that are class names, and the numbers of the other keys by place."""
    exact = {name: label for label, name in enumerate(dataset.label_names)}
    normalised: dict[str, int] = {}
    for name, label in exact.items():
        normalised[_normalise_name(name)] = (
            UNKNOWN if _normalise_name(name) in normalised else label
        )
    text_ids = {name for name in get_category_ids(dataset) if isinstance(name, str)}
    labels = np.full(len(keys), UNKNOWN, np.int64)
    numbers: dict[int, int | str] = {}
    for place, (identity, given_name) in enumerate(keys):
        key_name = given_name if given_name is not None else identity
        if isinstance(key_name, str):
            labels[place] = exact.get(key_name, normalised.get(_normalise_name(key_name), UNKNOWN))
        if given_name is None and labels[place] == UNKNOWN:
            number = identity if identity in text_ids else to_whole_number(identity)
            if isinstance(number, int | str):
                numbers[place] = number
    return labels, numbers


def _normalise_name(name: str) -> str:
    """Return a name in lower case, without hyphens, underscores and double spaces."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _choose_numbering(
    raw: RawDetections,
    dataset: Dataset,
    numbers: Mapping[int, int | str],
    pairs: tuple[Rows, Rows],
) -> tuple[Numbering, list[str]]:
    """Return the numbering that agrees best, and a note if it is not the documented one."""
    numberings = possible_numberings(dataset, counts_from_zero=raw.counts_from_zero)
    counts = np.bincount(raw.classes, minlength=len(raw.class_keys))
    known = [_share_known(numbering, numbers, counts) for numbering in numberings]
    agreement = [_agreement(raw, numbering, numbers, pairs) for numbering in numberings]
    num_pairs = sum(int(numbering) in numbers for numbering in raw.classes[pairs[0]].tolist())
    # Numberings that contain at least as many of the numbers as the documented one.
    candidates = [k for k in range(len(numberings)) if known[k] >= known[0]]
    best = max(candidates, key=lambda k: (agreement[k], -k))
    if num_pairs < NUMBERING.min_pairs:
        if known[0] == 1:
            return numberings[0], [
                f"the classes in {raw.files_text} are read as {numberings[0].words}; too few "
                "boxes overlap annotations to check this"
            ]
        raise DataError(
            f"{raw.files_text}: the classes are {_list_examples(numbers.values())}, while "
            f"{numberings[0].words} are {_list_examples(numberings[0].labels)}; too few boxes "
            f"overlap annotations to infer the classes: {NAMES_REMEDY}"
        )
    is_better = agreement[best] >= max(
        NUMBERING.good_agreement, agreement[0] + NUMBERING.min_agreement_lead
    )
    chosen = best if is_better else 0
    if agreement[chosen] < NUMBERING.bad_agreement:
        raise DataError(
            f"{raw.files_text}: the classes are not those of the data: of {num_pairs:,} boxes that "
            f"overlap an annotation, at most {agreement[best]:.0%} have its label in any "
            f"numbering; {NAMES_REMEDY}"
        )
    if chosen == 0:
        return numberings[0], []
    return numberings[best], [
        f"the classes in {raw.files_text} are read as {numberings[best].words}, not "
        f"{numberings[0].words}, since {agreement[best]:.0%} instead of {agreement[0]:.0%} of the "
        "boxes that overlap an annotation then have its label"
    ]


def _share_known(numbering: Numbering, numbers: Mapping[int, int | str], counts: Rows) -> float:
    """Return the share of detections with a number that the numbering contains."""
    known = [place for place, number in numbers.items() if number in numbering.labels]
    total = sum(int(counts[place]) for place in numbers)
    return sum(int(counts[place]) for place in known) / total if total else 1.0


def _agreement(
    raw: RawDetections,
    numbering: Numbering,
    numbers: Mapping[int, int | str],
    pairs: tuple[Rows, Rows],
) -> float:
    """Return the share of overlapping boxes with a number that have their annotation's label."""
    labels = np.full(len(raw.class_keys), UNKNOWN - 1, np.int64)
    for place, number in numbers.items():
        labels[place] = numbering.labels.get(number, UNKNOWN)
    detected = labels[raw.classes[pairs[0]]]
    is_number = detected > UNKNOWN - 1
    return float((detected == pairs[1])[is_number].mean()) if is_number.any() else 0.0


def _warn_about_exchanged_classes(
    labels: Rows, true_labels: Rows, names: Sequence[str]
) -> list[str]:
    """Return a warning if classes seem exchanged: the detector takes one for another.

    A detector that does not know a class also takes it for another one. So classes count as
    exchanged only if the other class is taken for yet another one, too.
    """
    mistaken: dict[int, tuple[int, float]] = {}  # most frequent label, and its share
    for label in range(len(names)):
        own = labels[(true_labels == label) & (labels != UNKNOWN)]
        if len(own) < NUMBERING.min_pairs_of_class:
            continue
        counts = np.bincount(own, minlength=len(names))
        most = int(counts.argmax())
        if most != label and counts[most] >= NUMBERING.exchanged_ratio * counts[label]:
            mistaken[label] = most, counts[most] / len(own)
    examples = [
        f"{names[label]} as {names[most]} ({share:.0%})"
        for label, (most, share) in mistaken.items()
        if most in mistaken
    ]
    if not examples:
        return []
    text = (
        f"classes look exchanged, since the detector sees {_list_examples(examples)}. Compare the "
        "names of the classes and their order in the data with those of the detector; if they "
        "differ, label fixes are wrong"
    )
    return [warning(text)]


def _note_unknown_classes(raw: RawDetections, dataset: Dataset, labels: Rows) -> list[str]:
    """Return notes on detections of unknown classes; raise a DataError if there are many."""
    counts = np.bincount(raw.classes, minlength=len(labels))
    unknown = [key for key in np.flatnonzero(labels == UNKNOWN).tolist() if counts[key]]
    if not unknown:
        return []
    examples = _list_examples(_key_text(raw.class_keys[key]) for key in unknown)
    num_skipped, classes_text = int(counts[unknown].sum()), f"the data do not have: {examples}"
    if num_skipped > NUMBERING.max_unknown_share * len(raw):
        raise DataError(
            f"{raw.files_text}: {num_skipped:,} of {len(raw):,} detections are of classes that "
            f"{classes_text}; the classes of the data are {_list_examples(dataset.label_names)}"
        )
    return [
        f"{num_skipped:,} of {len(raw):,} detections are skipped, since they are of classes that "
        f"{classes_text}"
    ]


def _key_text(key: Key) -> object:
    return key[1] if key[1] is not None else key[0]


def _list_examples(values: Iterable[object]) -> str:
    texts = [str(value)[:80] for value in values]
    more_text = f" and {len(texts) - MAX_SHOWN} more" if len(texts) > MAX_SHOWN else ""
    return ", ".join(texts[:MAX_SHOWN]) + more_text
