"""Look up images and classes of a dataset by any name that a prediction file may use."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from posixpath import basename, splitext
from typing import Any, TypeVar

from boxmend.data.dataset import UNKNOWN, Dataset, Images
from boxmend.data.formats.coco.sizes import (
    find_ambiguous_category_ids,
    find_ambiguous_image_ids,
    get_category_ids,
)

AMBIGUOUS = -2  # instead of a row, if several images match
MAX_NAME_CHARACTERS = 4096  # the longest path of most systems
MAX_DIGITS = 20  # of a text that can be a number
MAX_SHOWN = 5  # names that an error lists

Identity = int | float | str | None
AnyKey = TypeVar("AnyKey", bound=Hashable)


class Catalogue:
    """The images and classes of a dataset by every name that a detection may use for them.

    A detection names an image by its id, by its file name (with more or fewer leading folders), or
    by its file name without ending. If ids are not numbers, 42 also means 000042.jpg. A detection
    names a class by name, or by its number in `category_labels`. Several images share each of the
    `ambiguous_ids`; such an id only chooses between images with the same name.
    """

    def __init__(
        self,
        images: Images,
        label_names: Sequence[str],
        category_labels: Mapping[int | str, int],
        ambiguous_ids: Collection[int | str] = (),
    ):
        self._names = images.file_names
        self._label_names = list(label_names)
        self._labels = {name: label for label, name in enumerate(label_names)}
        self._category_labels: dict[Any, int] = dict(category_labels)
        self._ambiguous_ids: set[Any] = {*ambiguous_ids, *map(str, ambiguous_ids)}
        ids = images.ids.tolist()
        self._ids = ids
        self._by_id: dict[Any, int] = _map_unambiguously(
            (image_id, row) for row, image_id in enumerate(ids)
        )
        self._by_name = _map_unambiguously((name, row) for row, name in enumerate(self._names))
        self._by_part = _map_unambiguously(
            (part, row) for row in range(len(ids)) for part in (str(ids[row]), *self._parts(row))
        )
        self._by_number: dict[Any, int] = {}
        if images.ids.dtype == object:
            self._by_number = rows_by_file_number(self._names)

    def image_row(self, identity: Identity, name: str | None) -> int:
        """Return the row of the image with this id, file name or both; UNKNOWN or AMBIGUOUS.

        A name counts more than an id, since ids differ between copies of a dataset. An id only
        chooses between images with the same name.
        """
        if name is None:
            return self._by_identity(identity)
        row = self._by_file_name(name)
        if row == AMBIGUOUS:
            chosen = self._by_id.get(identity, AMBIGUOUS)
            if chosen >= 0 and name in (self._names[chosen], *self._parts(chosen)):
                return chosen
        return row

    def label(self, identity: Identity, name: str | None) -> int:
        """Return the label with this category id or name; if both are given, the name counts."""
        if name is not None:
            return self._labels.get(name, UNKNOWN)
        if identity in self._category_labels:
            return self._category_labels[identity]
        if not isinstance(identity, str):
            return UNKNOWN
        label = self._labels.get(identity, UNKNOWN)
        if label == UNKNOWN:
            return self._category_labels.get(to_whole_number(identity), UNKNOWN)
        return label

    def list_known(self, what: str) -> str:
        """List some images or classes of the dataset, for an error message."""
        if what == "image" and not self._ids:
            return "they have no images"
        if what == "image":
            pairs = zip(self._ids[:MAX_SHOWN], self._names[:MAX_SHOWN], strict=True)
            examples = ", ".join(f"{image_id!r} ({name})" for image_id, name in pairs)
            return f"they have {len(self._ids):,} images, such as {examples}"
        numbers = {label: number for number, label in self._category_labels.items()}
        listed = [
            f"{name} ({numbers[label]})" if label in numbers else name
            for label, name in enumerate(self._label_names[:MAX_SHOWN])
        ]
        more = ", .." if len(self._label_names) > MAX_SHOWN else ""
        return f"their classes are {', '.join(listed)}{more}; category_name overrides category_id"

    def _by_identity(self, identity: Identity) -> int:
        if identity in self._ambiguous_ids:
            return AMBIGUOUS
        row = self._by_id.get(identity)
        if row is not None:
            return row
        if isinstance(identity, str):
            return self._by_file_name(identity)
        return self._by_number.get(identity, UNKNOWN)

    def _by_file_name(self, name: str) -> int:
        if len(name) > MAX_NAME_CHARACTERS:
            return UNKNOWN
        path = name.replace("\\", "/")
        for text in _strip_folders(path):
            if text in self._by_name:
                return self._by_name[text]
        return self._by_part.get(path, UNKNOWN)

    def _parts(self, row: int) -> tuple[str, ...]:
        """Return shorter names of an image."""
        name = self._names[row]
        base = basename(name)
        return base, splitext(base)[0], splitext(name)[0]


def make_catalogue(dataset: Dataset) -> Catalogue:
    """Return the catalogue of a dataset; `labels_by_category_id` numbers its classes."""
    return Catalogue(
        dataset.images,
        dataset.label_names,
        category_labels(dataset),
        find_ambiguous_image_ids(dataset),
    )


def category_labels(dataset: Dataset) -> dict[int | str, int]:
    """Return labels by category id, without ids of several classes.

    The ids are those of the dataset's COCO documents. Without such documents they number the label
    names from 1, as `boxmend predict` does.
    """
    ambiguous_ids = find_ambiguous_category_ids(dataset)
    numbers = enumerate(get_category_ids(dataset))
    return {number: label for label, number in numbers if number not in ambiguous_ids}


def to_whole_number(identity: Identity) -> int | None:
    """Return an id as a whole number, also if it is a text; None if it is not a whole number."""
    if isinstance(identity, str):
        is_digits = identity.isascii() and identity.isdigit() and len(identity) < MAX_DIGITS
        return int(identity) if is_digits else None
    if isinstance(identity, float):
        return int(identity) if identity.is_integer() else None
    return identity


def rows_by_file_number(file_names: Sequence[str]) -> dict[Any, int]:
    """Return image rows by the number in the file name: 42 for 000042.jpg; AMBIGUOUS if several."""
    numbers = (to_whole_number(splitext(basename(name))[0]) for name in file_names)
    return _map_unambiguously(
        (number, row) for row, number in enumerate(numbers) if number is not None
    )


def _strip_folders(name: str) -> Iterator[str]:
    """Yield the name, then the name without its first folder, without its first two, and so on."""
    yield name
    while "/" in name:
        name = name.partition("/")[2]
        yield name


def _map_unambiguously(pairs: Iterable[tuple[AnyKey, int]]) -> dict[AnyKey, int]:
    """Return rows by key; AMBIGUOUS where several rows share the key."""
    row_of: dict[AnyKey, int] = {}
    for key, row in pairs:
        if row_of.setdefault(key, row) != row:
            row_of[key] = AMBIGUOUS
    return row_of
