"""Which images a file of detections means, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from boxmend.auditing.predictions.catalogue import (
    AMBIGUOUS,
    Catalogue,
    rows_by_number,
    whole_number,
)
from boxmend.auditing.predictions.raw import Key, RawDetections
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.images.reading import read_header_size
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError

SHOWN = 3


@dataclass(frozen=True, eq=False)
class ImageNaming:
    """One way to understand how a file tells its images."""

    words: str
    rows: Rows  # [image keys] of the dataset's images; UNKNOWN


def readings(found: RawDetections, dataset: Dataset, catalogue: Catalogue) -> list[ImageNaming]:
    """The ways to understand the images of a file: ids and names, else numbers in file names.

    The second is there where ids are numbers and file names are, too, and both mean different
    images: Ultralytics tells 000042.jpg as 42, whatever its id.
    """
    rows = np.array([_row(key, catalogue) for key in found.image_keys], np.int64)
    plain = ImageNaming("ids and file names", rows)
    if dataset.images.ids.dtype == object:
        return [plain]
    by_number = rows_by_number(dataset.images.file_names)
    other = np.array(
        [
            by_number.get(number, UNKNOWN) if (number := _number(key)) is not None else row
            for key, row in zip(found.image_keys, rows.tolist(), strict=True)
        ],
        np.int64,
    )
    if (other == rows).all() or not (other >= 0).any():
        return [plain]
    return [plain, ImageNaming("the numbers in file names", other)]


def ensure_clear(found: RawDetections, rows: Rows, dataset: Dataset) -> list[str]:
    """Refuse names of several images, and files of other images; say what is passed over."""
    is_ambiguous = rows == AMBIGUOUS
    if is_ambiguous.any():
        key = found.image_keys[int(np.argmax(is_ambiguous))]
        raise DataError(
            f"{found.told_files}: {_told(key)!r} means more than one image; give whole file names "
            "with their folders, or ids"
        )
    num_known = len(np.unique(rows[rows >= 0]))
    lost = [key for key, row in zip(found.image_keys, rows.tolist(), strict=True) if row < 0]
    if not lost:
        return []
    some = ", ".join(repr(_told(key)) for key in lost[:SHOWN])
    told = f"{len(lost):,} of {len(rows):,} images in {found.told_files}"
    if num_known == 0 or (num_known < len(lost) and 2 * num_known < len(dataset.images)):
        raise DataError(
            f"{told} are no images of the data, such as {some}; the data have "
            f"{_images(dataset.images.file_names)}. Are these predictions of other images?"
        )
    return [f"{told} are no images of the data and were passed over, such as {some}"]


def sizes_of(dataset: Dataset, rows: Rows) -> Floats:
    """[images, 2] Width and height of the images at `rows`; NaN where unknown, or not asked for.

    Where the dataset does not tell a size, the header of the image file does.
    """
    images = dataset.images
    sizes = images.sizes
    sizes[(sizes <= 0).any(axis=1)] = np.nan
    asked = np.unique(rows[rows >= 0])
    for row in asked[np.isnan(sizes[asked, 0])].tolist():
        size = read_header_size(images.paths[row]) if images.paths[row] else None
        sizes[row] = size if size is not None else np.nan
    return sizes


def _row(key: Key, catalogue: Catalogue) -> int:
    row = catalogue.image_row(*key)
    if row == UNKNOWN and isinstance(key[0], str) and (number := _number(key)) is not None:
        return catalogue.image_row(number, None)
    return row


def _number(key: Key) -> int | None:
    """Return the whole number that tells an image, where no name does."""
    return whole_number(key[0]) if key[1] is None else None


def _told(key: Key) -> int | float | str:
    shown = key[1] if key[1] is not None else key[0]
    return shown[:80] if isinstance(shown, str) else "no image at all" if shown is None else shown


def _images(names: Sequence[str]) -> str:
    some = ", ".join(names[:SHOWN])
    return f"{len(names):,}, such as {some}" if names else "none"
