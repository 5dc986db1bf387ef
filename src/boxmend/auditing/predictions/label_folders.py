"""Read label files with confidences, as Ultralytics writes by `save_txt=True save_conf=True`.

A line is `class x y width height confidence`: the centre and the size in shares of the image. The
file has the name of the image.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from boxmend.auditing.predictions.raw import UNKNOWN_FOLD, BoxFormat, Key, RawDetections
from boxmend.data.files.reading import read_bytes
from boxmend.data.types import Floats
from boxmend.errors import DataError

KIND = "label files"
ENDING = ".txt"
VALUES_PER_LINE = 6
OTHER_TEXT_FILES = {"classes.txt", "labels.txt", "requirements.txt"}
EXPECTED = "expected lines `class x y width height confidence`"


def list_label_files(folder: Path) -> Iterator[str]:
    """Yield paths of label files below a folder, sorted, relative to it."""
    for path, folders, names in os.walk(folder):
        folders.sort()
        below = os.path.relpath(path, folder)
        for name in sorted(names):
            if name.endswith(ENDING) and name not in OTHER_TEXT_FILES:
                yield name if below == "." else f"{below.replace(os.sep, '/')}/{name}"


def read_label_folder(folder: Path) -> RawDetections:
    """Read all label files below a folder; each has the name of its image, without the ending."""
    image_keys: list[Key] = []
    files, counts = [], []
    columns: list[Floats] = [np.zeros((0, VALUES_PER_LINE))]
    for name in list_label_files(folder):
        path = folder / name
        values = _read_values(path)
        image_keys.append((name.removesuffix(ENDING), None))
        files.append(str(path))
        counts.append(len(values))
        columns.append(values)
    numbers = np.concatenate(columns)
    sizes = np.array(counts, np.int64)
    labels, classes = np.unique(numbers[:, 0], return_inverse=True)
    return RawDetections(
        kind=KIND,
        format=BoxFormat("cxcywh", is_share=True),
        image_keys=image_keys,
        images=np.repeat(np.arange(len(sizes)), sizes),
        class_keys=[
            (int(label) if label.is_integer() else label, None) for label in labels.tolist()
        ],
        classes=classes.reshape(-1).astype(np.int64),
        scores=numbers[:, 5],
        boxes=numbers[:, 1:5],
        vectors=None,
        vector_names=(),
        folds=np.full(len(numbers), UNKNOWN_FOLD, np.int64),
        files=files,
        firsts=np.cumsum(sizes) - sizes,
        unit="line",
        counts_from_zero=True,
    )


def _read_values(path: Path) -> Floats:
    """Return the numbers [lines, 6] of a label file; blank lines are skipped."""
    lines = [
        line for text in read_bytes(path, "label_file_bytes").splitlines() if (line := text.split())
    ]
    if any(len(line) != VALUES_PER_LINE for line in lines):
        _raise_for_wrong_line(path, lines)
    try:
        values = np.array([list(map(float, line)) for line in lines], np.float64)
    except ValueError:
        _raise_for_wrong_line(path, lines)
        raise
    if not np.isfinite(values).all():
        _raise_for_wrong_line(path, lines)
    return values.reshape(-1, VALUES_PER_LINE)


def _raise_for_wrong_line(path: Path, lines: list[list[bytes]]) -> None:
    """Raise an error for the first invalid line."""
    for number, line in enumerate(lines):
        place = f"{path}: line {number} (the first is 0)"
        shown = b" ".join(line).decode("utf-8", "backslashreplace")[:80]
        if len(line) == VALUES_PER_LINE - 1:
            raise DataError(
                f"{place}: {shown}: has no confidence; predict again with save_conf=True "
                "beside save_txt=True"
            )
        if len(line) != VALUES_PER_LINE or not all(map(_is_finite, line)):
            raise DataError(f"{place}: {shown}: {EXPECTED}")


def _is_finite(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
