"""Find the images that a prediction file means, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions.catalogue import (
    AMBIGUOUS,
    Catalogue,
    rows_by_file_number,
    to_whole_number,
)
from boxmend.auditing.predictions.raw import Key, RawDetections
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.images.reading import read_header_size
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

MAX_SHOWN = 3


@dataclass(frozen=True, eq=False)
class ImageNaming:
    """One interpretation of the image names of a file."""

    words: str
    rows: Rows  # [image keys] of the dataset's images; UNKNOWN


def possible_namings(
    raw: RawDetections, dataset: Dataset, catalogue: Catalogue
) -> list[ImageNaming]:
    """Return the possible interpretations of image names: ids and file names, or file numbers.

    The second is possible if both ids and file names are numbers and mean different images:
    Ultralytics writes 42 for 000042.jpg, independent of its id.
    """
    rows = np.array([find_row(key, catalogue) for key in raw.image_keys], np.int64)
    plain = ImageNaming("ids and file names", rows)
    if dataset.images.ids.dtype == object:
        return [plain]
    by_number = rows_by_file_number(dataset.images.file_names)
    other = np.array(
        [
            by_number.get(number, UNKNOWN) if (number := _image_number(key)) is not None else row
            for key, row in zip(raw.image_keys, rows.tolist(), strict=True)
        ],
        np.int64,
    )
    if (other == rows).all() or not (other >= 0).any():
        return [plain]
    return [plain, ImageNaming("the numbers in file names", other)]


def ensure_unambiguous(raw: RawDetections, rows: Rows, dataset: Dataset) -> list[str]:
    """Raise a DataError for ambiguous names and for files of other images; note unknown images."""
    is_ambiguous = rows == AMBIGUOUS
    if is_ambiguous.any():
        key = raw.image_keys[int(np.argmax(is_ambiguous))]
        raise DataError(
            f"{raw.files_text}: {_key_text(key)!r} means more than one image; give whole file "
            "names with their folders, or ids"
        )
    num_known = len(np.unique(rows[rows >= 0]))
    unknown = [key for key, row in zip(raw.image_keys, rows.tolist(), strict=True) if row < 0]
    if not unknown:
        return []
    examples = ", ".join(repr(_key_text(key)) for key in unknown[:MAX_SHOWN])
    unknown_text = f"{len(unknown):,} of {len(rows):,} images in {raw.files_text}"
    if num_known == 0 or (num_known < len(unknown) and 2 * num_known < len(dataset.images)):
        raise DataError(
            f"{unknown_text} are not in the data, such as {examples}; the data have "
            f"{_image_examples(dataset.images.file_names)}. Check that the predictions belong to "
            "these images"
        )
    return [f"{unknown_text} are not in the data and are skipped, such as {examples}"]


def find_image_sizes(dataset: Dataset, rows: Rows) -> Floats:
    """Return width and height [images, 2] of the images at `rows`; NaN for all others.

    A size that the dataset does not have is read from the header of the image file.
    """
    images = dataset.images
    sizes = images.sizes
    sizes[(sizes <= 0).any(axis=1)] = np.nan
    needed = np.unique(rows[rows >= 0])
    for row in needed[np.isnan(sizes[needed, 0])].tolist():
        size = read_header_size(images.paths[row]) if images.paths[row] else None
        sizes[row] = size if size is not None else np.nan
    return sizes


def find_row(key: Key, catalogue: Catalogue) -> int:
    """Return the row of an image; UNKNOWN, or AMBIGUOUS if several images match."""
    row = catalogue.image_row(*key)
    if row == UNKNOWN and isinstance(key[0], str) and (number := _image_number(key)) is not None:
        return catalogue.image_row(number, None)
    return row


def _image_number(key: Key) -> int | None:
    """Return the whole number of a key without a name."""
    return to_whole_number(key[0]) if key[1] is None else None


def _key_text(key: Key) -> int | float | str:
    shown = key[1] if key[1] is not None else key[0]
    return shown[:80] if isinstance(shown, str) else "no image at all" if shown is None else shown


def _image_examples(names: Sequence[str]) -> str:
    examples = ", ".join(names[:MAX_SHOWN])
    return f"{len(names):,}, such as {examples}" if names else "none"
