"""The images and classes of a dataset by every name that a file of detections may give them."""

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

AMBIGUOUS = -2  # instead of a row: there is more than one
LONGEST = 4096  # characters of a name: that of a path
MOST_DIGITS = 20  # of a text that is read as a number
SHOWN = 5  # names that an error lists

Identity = int | float | str | None
AnyKey = TypeVar("AnyKey", bound=Hashable)


class Catalogue:
    """The images and classes of a dataset, by all that a detection may call them.

    An image is told by its id, its file name (with more or fewer folders in front), or its file
    name without ending. A number may also be a file name like 000042.jpg where ids are no numbers.
    A class is told by its name, or by its number in `category_labels`. Ids in `contested` mean more
    than one image, and choose only between those that share a name.
    """

    def __init__(
        self,
        images: Images,
        label_names: Sequence[str],
        category_labels: Mapping[int | str, int],
        contested: Collection[int | str] = (),
    ):
        self._names = images.file_names
        self._label_names = list(label_names)
        self._labels = {name: label for label, name in enumerate(label_names)}
        self._category_labels: dict[Any, int] = dict(category_labels)
        self._contested: set[Any] = {*contested, *map(str, contested)}
        ids = images.ids.tolist()
        self._ids = ids
        self._by_id: dict[Any, int] = _unambiguous((one, row) for row, one in enumerate(ids))
        self._by_name = _unambiguous((name, row) for row, name in enumerate(self._names))
        self._by_part = _unambiguous(
            (part, row) for row in range(len(ids)) for part in (str(ids[row]), *self._parts(row))
        )
        self._by_number: dict[Any, int] = {}
        if images.ids.dtype == object:
            self._by_number = rows_by_number(self._names)

    def image_row(self, identity: Identity, name: str | None) -> int:
        """The row of an image told by `image_id`, `file_name` or both; UNKNOWN or AMBIGUOUS.

        A name goes before an id, since ids differ between copies of a dataset while names do not.
        An id only chooses between images that share the name.
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
        """The label told by `category_id`, `category_name` or both, of which the name counts."""
        if name is not None:
            return self._labels.get(name, UNKNOWN)
        if identity in self._category_labels:
            return self._category_labels[identity]
        if not isinstance(identity, str):
            return UNKNOWN
        label = self._labels.get(identity, UNKNOWN)
        if label == UNKNOWN:
            return self._category_labels.get(whole_number(identity), UNKNOWN)
        return label

    def known(self, what: str) -> str:
        """Say which images or classes there are, for an error."""
        if what == "image" and not self._ids:
            return "they have none"
        if what == "image":
            pairs = zip(self._ids[:SHOWN], self._names[:SHOWN], strict=True)
            some = ", ".join(f"{one!r} ({name})" for one, name in pairs)
            return f"it has {len(self._ids):,} images, such as {some}"
        numbers = {label: number for number, label in self._category_labels.items()}
        listed = [
            f"{name} ({numbers[label]})" if label in numbers else name
            for label, name in enumerate(self._label_names[:SHOWN])
        ]
        more = ", .." if len(self._label_names) > SHOWN else ""
        return f"its classes are {', '.join(listed)}{more}; category_name goes before category_id"

    def _by_identity(self, identity: Identity) -> int:
        if identity in self._contested:
            return AMBIGUOUS
        row = self._by_id.get(identity)
        if row is not None:
            return row
        if isinstance(identity, str):
            return self._by_file_name(identity)
        return self._by_number.get(identity, UNKNOWN)

    def _by_file_name(self, name: str) -> int:
        if len(name) > LONGEST:
            return UNKNOWN
        path = name.replace("\\", "/")
        for text in _with_fewer_folders(path):
            if text in self._by_name:
                return self._by_name[text]
        return self._by_part.get(path, UNKNOWN)

    def _parts(self, row: int) -> tuple[str, ...]:
        """The shorter names of an image."""
        name = self._names[row]
        base = basename(name)
        return base, splitext(base)[0], splitext(name)[0]


def catalogue_of(dataset: Dataset) -> Catalogue:
    """Return the catalogue of a dataset; numbers of classes are those of `category_labels`."""
    return Catalogue(
        dataset.images,
        dataset.label_names,
        category_labels(dataset),
        find_ambiguous_image_ids(dataset),
    )


def category_labels(dataset: Dataset) -> dict[int | str, int]:
    """Return the labels by category id, without ids that mean more than one class.

    The ids are those of the dataset's COCO documents, else they count its label names from 1, as
    `boxmend predict` writes them.
    """
    contested = find_ambiguous_category_ids(dataset)
    numbers = enumerate(get_category_ids(dataset))
    return {number: label for label, number in numbers if number not in contested}


def whole_number(identity: Identity) -> int | None:
    """Return the whole number that an id is, also as a text; None where it is none."""
    if isinstance(identity, str):
        is_digits = identity.isascii() and identity.isdigit() and len(identity) < MOST_DIGITS
        return int(identity) if is_digits else None
    return int(identity) if identity is not None and float(identity).is_integer() else None


def rows_by_number(file_names: Sequence[str]) -> dict[Any, int]:
    """Return rows by the number that a file is called, 42 for 000042.jpg; AMBIGUOUS if several."""
    numbers = (whole_number(splitext(basename(name))[0]) for name in file_names)
    return _unambiguous((one, row) for row, one in enumerate(numbers) if one is not None)


def _with_fewer_folders(name: str) -> Iterator[str]:
    """The name, and what is left of it without its first folder, its first two, .."""
    yield name
    while "/" in name:
        name = name.partition("/")[2]
        yield name


def _unambiguous(pairs: Iterable[tuple[AnyKey, int]]) -> dict[AnyKey, int]:
    """Rows by key; AMBIGUOUS where several have it."""
    found: dict[AnyKey, int] = {}
    for key, row in pairs:
        if found.setdefault(key, row) != row:
            found[key] = AMBIGUOUS
    return found
