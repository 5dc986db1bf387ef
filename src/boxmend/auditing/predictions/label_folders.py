"""Read label files with confidences, as Ultralytics writes by `save_txt=True save_conf=True`.

A line is `class x y width height confidence`: the centre and the size in shares of the image. The
file has the name of the image.
"""

import os
from collections.abc import Iterator, Mapping
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
    lines: list[int] = []
    for name in list_label_files(folder):
        path = folder / name
        values, numbers_of_lines = _read_values(path)
        lines += numbers_of_lines
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
        lines=np.array(lines, np.int64),
        counts_from_zero=True,
    )


def _read_values(path: Path) -> tuple[Floats, list[int]]:
    """Return the numbers [n, 6] of a label file and their lines, from 1; skip blank lines."""
    all_lines = enumerate(read_bytes(path, "label_file_bytes").splitlines(), 1)
    lines = {number: words for number, text in all_lines if (words := text.split())}
    if any(len(words) != VALUES_PER_LINE for words in lines.values()):
        _raise_for_wrong_line(path, lines)
    try:
        values = np.array([list(map(float, words)) for words in lines.values()], np.float64)
    except ValueError:
        _raise_for_wrong_line(path, lines)
        raise
    if not np.isfinite(values).all():
        _raise_for_wrong_line(path, lines)
    return values.reshape(-1, VALUES_PER_LINE), list(lines)


def _raise_for_wrong_line(path: Path, lines: Mapping[int, list[bytes]]) -> None:
    """Raise an error for the first invalid line."""
    for number, words in lines.items():
        shown = b" ".join(words).decode("utf-8", "backslashreplace")[:80]
        if len(words) == VALUES_PER_LINE - 1:
            raise DataError(
                f"{path}: line {number}: {shown}: has no confidence; predict again with "
                "save_conf=True beside save_txt=True"
            )
        if len(words) != VALUES_PER_LINE or not all(map(_is_finite, words)):
            raise DataError(f"{path}: line {number}: {shown}: {EXPECTED}")


def _is_finite(text: bytes) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False
