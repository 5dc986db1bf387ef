"""The readable images of a dataset, with their sizes in the file and in the network frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Images
from boxmend.data.images.reading import read_header_size
from boxmend.errors import DataError
from boxmend.training.loader.decode import decode
from boxmend.training.loader.frame import ImageSize, fit

CANVAS_MULTIPLE = 32  # pixels: the largest stride of a backbone


class Sizes(NamedTuple):
    """Sizes of images as (width, height)."""

    stored: NDArray[np.int64]  # [n, 2] in the file
    fitted: NDArray[np.int64]  # [n, 2] in the network frame

    @property
    def scales(self) -> NDArray[np.float64]:
        """Return the scales network / image [n, 2]."""
        return self.fitted / self.stored

    def take(self, rows: NDArray[np.int64]) -> Sizes:
        """Return the sizes at `rows`."""
        return Sizes(self.stored[rows], self.fitted[rows])

    @property
    def canvas(self) -> tuple[int, int]:
        """Return the height and width that hold every image, multiples of CANVAS_MULTIPLE."""
        width, height = -(-self.fitted.max(0) // CANVAS_MULTIPLE) * CANVAS_MULTIPLE
        return int(height), int(width)


@dataclass(frozen=True)
class ReadableImages:
    """The n images whose headers can be read, in the order of the dataset."""

    rows: NDArray[np.int64]  # [n] in the dataset's images
    paths: list[str]
    sizes: Sizes

    def __len__(self) -> int:
        return len(self.paths)

    def fill(self, out: NDArray[np.uint8], index: int) -> str | None:
        """Write image `index` into out [3, H, W], at the top left, zero elsewhere.

        Returns None, or the problem of the image; all of `out` is then zero.
        """
        out[:] = 0
        width, height = self.sizes.stored[index].tolist()
        fitted = self.sizes.fitted[index].tolist()
        try:
            pixels = decode(
                self.paths[index], expected=(width, height), resize_to=(fitted[0], fitted[1])
            )
        except DataError as error:
            return str(error)
        out[:, : fitted[1], : fitted[0]] = pixels.transpose(2, 0, 1)
        return None


def read_headers(images: Images, image_size: ImageSize) -> tuple[ReadableImages, list[str]]:
    """Read the headers of all images; return the readable ones, and a message for each other."""
    headers = [read_header_size(path) if path else None for path in images.paths]
    rows = [row for row, size in enumerate(headers) if size is not None and min(size) > 0]
    problems = [_problem(images, row) for row in sorted(set(range(len(images))) - set(rows))]
    stored = [size for size in headers if size is not None and min(size) > 0]
    fitted = [fit(*size, image_size.short, image_size.long) for size in stored]
    sizes = Sizes(_pairs(stored), _pairs(fitted))
    paths = [images.paths[row] for row in rows]
    return ReadableImages(np.array(rows, np.int64), paths, sizes), problems


def describe_size_mismatch(images: Images, readable: ReadableImages) -> str | None:
    """Return a message about images whose size differs from the recorded one, or None."""
    recorded = np.stack([images.widths, images.heights], -1)[readable.rows]  # [n, 2]
    stored = readable.sizes.stored
    wrong = np.flatnonzero((recorded > 0).all(-1) & (recorded != stored).any(-1))
    if not len(wrong):
        return None
    (width, height), (is_width, is_height) = recorded[wrong[0]], stored[wrong[0]]
    return (
        f"{len(wrong)} of {len(readable)} images differ from their recorded size; the first: "
        f"{readable.paths[wrong[0]]}: {width} x {height} recorded, {is_width} x {is_height} in "
        "the file; boxes are read as pixels of the file"
    )


def _problem(images: Images, row: int) -> str:
    path = images.paths[row]
    if not path:
        return f"{images.file_names[row]}: the folder of the image is unknown"
    try:
        decode(path)
    except DataError as error:
        return str(error)
    return f"{path}: its header cannot be read"


def _pairs(sizes: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array(sizes, np.int64).reshape(-1, 2)
