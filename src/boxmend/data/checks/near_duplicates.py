"""Find images that look the same although they are in different splits, which leak into scores.

The perceptual hashes of two copies differ in few of their bits, whatever the format, the size, the
brightness and a narrow crop. Small objects before a plain sky have similar hashes, too, so the
thumbnails must agree as well. The limits come from photographs of VOC 2007: all copies that were
re-encoded, resized or 3% cropped are found, and 19 of 50 million pairs of images are reported, each
of the same scene or subject.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from boxmend.data.checks.places import file_of_image, image_name
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.images.appearance import HASH_SIDE
from boxmend.data.images.reading import InspectedImage
from boxmend.data.types import Rows

MAX_DIFFERENT_BITS = 72  # of the 256 bits of a hash
MAX_DIFFERENT_CORNER_BITS = (
    20  # of the 64 bits for the lowest frequencies, which are compared first
)
MIN_CORRELATION = 0.7  # of the thumbnails' grey values
CORNER_SIDE = 8  # the lowest frequencies of both axes
PAIRS_PER_BLOCK = 2**20  # compared at once, which bounds the memory
NO_SPLIT = "all"  # the split of an image in a dataset without splits


class Match(NamedTuple):
    """A row of a column of appearances, the most similar other row, and their different bits."""

    row: int
    other: int
    bits: int


def find_parts(dataset: Dataset) -> list[str | int]:
    """Return for each image the split that it is in; addresses without splits count as splits."""
    images = dataset.images
    groups = [source.group for source in dataset.sources] or [0]
    return [
        groups[source] if split == NO_SPLIT else split
        for split, source in zip(images.splits, images.sources.tolist(), strict=True)
    ]


def check_near_duplicates(
    dataset: Dataset, inspected: Mapping[str, InspectedImage]
) -> Iterator[Finding]:
    """Yield a finding for each image that looks like one of an earlier split, closest pairs first.

    Only the most similar image is named. Images with the same bytes are left out: they have a
    finding of their own.
    """
    parts = find_parts(dataset)
    ranks = {part: rank for rank, part in enumerate(dict.fromkeys(parts))}
    rows = [
        row
        for row, path in enumerate(dataset.images.paths)
        if path in inspected and inspected[path].appearance is not None
    ]
    images = [inspected[dataset.images.paths[row]] for row in rows]
    splits = np.array([ranks[parts[row]] for row in rows], np.int64)
    matches = sorted(find_matches(images, splits), key=lambda match: match.bits)
    for place, other, bits in matches:
        if images[place].digest != images[other].digest:
            yield _make_finding(dataset, rows[place], rows[other], bits)


def _make_finding(dataset: Dataset, row: int, other: int, bits: int) -> Finding:
    images = dataset.images
    name, other_name = image_name(dataset, row), image_name(dataset, other)
    places = f"this image is in {images.splits[row]!r}, the other in {images.splits[other]!r}"
    if images.splits[row] == images.splits[other]:
        places = f"the other is in another dataset: {file_of_image(dataset, other)}"
    message = (
        f"{images.paths[row]}: looks like {other_name} ({images.paths[other]}), across splits: "
        f"{places} ({bits} of {HASH_SIDE**2} bits of their hashes differ)"
    )
    return Finding("near-duplicate", message, file_of_image(dataset, row), name)


def find_matches(images: Sequence[InspectedImage], splits: Rows) -> Iterator[Match]:
    """Yield the most similar image of an earlier split for each image that has a similar one."""
    if not splits.any():
        return
    hashes = [image.appearance.hash for image in images if image.appearance is not None]
    words = np.frombuffer(b"".join(hashes), np.uint64).reshape(len(images), -1)
    corners = _take_corners(words)
    thumbnails = _standardise_thumbnails(images)
    for split in range(1, int(splits.max()) + 1):
        queries, earlier = np.flatnonzero(splits == split), np.flatnonzero(splits < split)
        step = max(PAIRS_PER_BLOCK // max(len(earlier), 1), 1)
        for first in range(0, len(queries), step):
            block = queries[first : first + step]
            near = np.bitwise_count(corners[block, None] ^ corners[earlier])
            places, columns = np.nonzero(near <= MAX_DIFFERENT_CORNER_BITS)
            rows, others = block[places], earlier[columns]
            bits = np.bitwise_count(words[rows] ^ words[others]).sum(axis=1, dtype=np.int64)
            for k in _choose_first_of_best(rows, bits):
                row, other = int(rows[k]), int(others[k])
                correlation = float(thumbnails[row] @ thumbnails[other])
                if bits[k] <= MAX_DIFFERENT_BITS and correlation >= MIN_CORRELATION:
                    yield Match(row, other, int(bits[k]))


def _take_corners(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the bits of the lowest frequencies of hashes [n, 4] as one word each."""
    bits = np.unpackbits(words.view(np.uint8), axis=1).reshape(-1, HASH_SIDE, HASH_SIDE)
    corners = bits[:, :CORNER_SIDE, :CORNER_SIDE].reshape(len(words), -1)
    return np.packbits(corners, axis=1).view(np.uint64).ravel()


def _standardise_thumbnails(images: Sequence[InspectedImage]) -> NDArray[np.float32]:
    """Return thumbnails [n, pixels] whose products are correlations."""
    texts = [image.appearance.thumbnail for image in images if image.appearance is not None]
    pixels = np.frombuffer(b"".join(texts), np.uint8).reshape(len(images), -1).astype(np.float32)
    pixels -= pixels.mean(axis=1, keepdims=True)
    pixels /= np.linalg.norm(pixels, axis=1, keepdims=True)
    return pixels


def _choose_first_of_best(rows: Rows, values: Rows) -> list[int]:
    """Return for each row, in order, the position of its first smallest value."""
    order = np.lexsort((np.arange(len(rows)), values, rows))
    is_first = np.diff(rows[order], prepend=-1) != 0
    chosen: list[int] = order[is_first].tolist()
    return chosen
