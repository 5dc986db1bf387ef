"""Columns of a gallery that both kinds of reports have: pictures, boxes, numbers and texts."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.types import Box, Floats, Rows
from boxmend.web.text import display_text
from boxmend.web.thumbnails import Request, Thumbnails

Column = list[Any]

MAX_REASON_CHARACTERS = 500  # a reason has two label names


def request_pictures(dataset: Dataset, image_rows: Rows, around: Floats) -> list[Request]:
    """Request a picture around each box [g, 4]; the rows of the gallery are sorted by image."""
    starts = np.flatnonzero(np.diff(image_rows, prepend=-2))
    ends = [*starts[1:], len(image_rows)][: len(starts)]
    requests = []
    for start, end in zip(starts, ends, strict=True):
        image = int(image_rows[start])
        boxes: list[Box] = [_box(sides) for sides in around[start:end].tolist()]
        requests.append(Request(dataset.images.paths[image] if image != UNKNOWN else "", boxes))
    return requests


def file_columns(dataset: Dataset, image_rows: Rows) -> dict[str, Any]:
    """Return the names of the images of the rows, and the place of each row's image among them."""
    own, of_row = np.unique(image_rows, return_inverse=True)
    names = [dataset.images.file_names[row] if row != UNKNOWN else "" for row in own.tolist()]
    return {"files": [display_text(name) for name in names], "file": of_row.tolist()}


def picture_columns(files: list[int], pictures: Iterable[Thumbnails]) -> dict[str, Column]:
    """Return the window and picture of every row, or its problem, and the picture of every image.

    `files` are the images of the rows, as in `file_columns`.
    """
    numbers = np.bincount(files).tolist() if files else []
    windows: Column = []
    names: list[str | None] = []
    problems: list[str] = []
    whole: list[str | None] = []  # by image, as "files" are
    sizes: Column = []
    for n, thumbnails in zip(numbers, pictures, strict=True):
        windows += [side for window in thumbnails.windows for side in window] or [0] * 4 * n
        names += thumbnails.names or [None] * n
        problems += [thumbnails.problem] * n
        whole.append(thumbnails.whole or None)
        sizes += thumbnails.size
    distinct_problems, problem_of = list_distinct([display_text(problem) for problem in problems])
    return {
        "windows": windows,
        "pictures": names,
        "problems": distinct_problems,
        "problem": problem_of,
        "whole": whole,
        "sizes": sizes,
    }


def enclose_boxes(boxes: Sequence[Floats]) -> Floats:
    """Return the smallest box [g, 4] around several boxes of each row; unknown sides are NaN."""
    stacked = np.stack(boxes)  # [b, g, 4]
    low = np.fmin.reduce(stacked[..., :2])
    high = np.fmax.reduce(stacked[..., 2:])
    return np.concatenate([low, high], axis=1)


def _box(sides: list[float]) -> Box:
    x1, y1, x2, y2 = sides
    return x1, y1, x2, y2


def list_distinct(texts: list[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts in their order, and the index of each text among them."""
    number = {text: k for k, text in enumerate(dict.fromkeys(texts))}
    return list(number), [number[text] for text in texts]


def round_values(values: Floats, decimals: int) -> Column:
    """Return rounded numbers, and None for those that are not finite."""
    is_known = np.isfinite(values)
    numbers = np.where(is_known, values, 0).round(decimals).tolist()
    pairs = zip(numbers, is_known.tolist(), strict=True)
    return [number if known else None for number, known in pairs]


def flatten_boxes(boxes: Floats) -> Column:
    """Return the sides of all boxes in one list [4g], to a tenth of a pixel."""
    return round_values(boxes.reshape(-1), 1)
