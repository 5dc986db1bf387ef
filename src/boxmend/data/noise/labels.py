"""Noise on labels, in exact counts: symmetric, pairwise, or by a confusion matrix.

The functions take one key per annotation; the smallest keys are relabelled, so that with the
same keys a low rate changes a part of what a higher one does.
"""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from boxmend.data.files.reading import describe_os_error, read_limited
from boxmend.data.noise.streams import chosen, picks, share
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError

Confusion = dict[int, dict[int, float]]
"""By label: the share of its annotations that turn into each other label; the rest stay."""

LABEL_NOISES = ("symmetric", "pair", "matrix")
TOLERANCE = 1e-6  # of the sum of a row: decimals like 0.3333333 need not add up exactly
EXAMPLE = '{"van": {"truck": 0.4}}'


def symmetric(labels: Rows, keys: Floats, draws: Floats, rate: float, num_labels: int) -> Rows:
    """Replace round(rate * n) labels, each by one of the other labels with equal probability."""
    _need_two_labels("symmetric", num_labels)
    rows = chosen(keys, share(rate, len(labels)))
    other = picks(draws[rows], num_labels - 1)
    result = labels.copy()
    result[rows] = other + (other >= labels[rows])  # step over the label itself
    return result


def pair(labels: Rows, keys: Floats, rate: float, num_labels: int) -> Rows:
    """Turn round(rate * n_c) of each label c into the next one; the last becomes the first."""
    _need_two_labels("pair", num_labels)
    order, counts = _by_label(labels, keys, num_labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    quota = np.array([share(rate, count) for count in counts.tolist()], np.int64)
    rows = order[rank < np.repeat(quota, counts)]
    result = labels.copy()
    result[rows] = (labels[rows] + 1) % num_labels
    return result


def confused(labels: Rows, keys: Floats, confusion: Confusion, num_labels: int) -> Rows:
    """Relabel by a confusion matrix; each label's counts are exact by largest remainder."""
    order, counts = _by_label(labels, keys, num_labels)
    ends = np.cumsum(counts)
    result = labels.copy()
    for label, shares in confusion.items():
        rows = order[ends[label] - counts[label] : ends[label]]
        targets = [*shares, label]  # those that stay come last: the smallest keys change
        stay = max(0.0, 1.0 - math.fsum(shares.values()))
        result[rows] = np.repeat(targets, apportioned([*shares.values(), stay], len(rows)))
    return result


def apportioned(shares: Sequence[float], total: int) -> list[int]:
    """Split `total` by shares that add up to 1 into whole counts, by largest remainder.

    Of equal remainders the earlier one goes first.
    """
    exact = [one * total / math.fsum(shares) for one in shares]
    counts = [math.floor(one) for one in exact]
    # To nine decimals, so that remainders which differ by a rounding error only are equal.
    remainders = [-round(one - count, 9) for one, count in zip(exact, counts, strict=True)]
    by_remainder = sorted(range(len(counts)), key=remainders.__getitem__)
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts


def read_confusion(path: Path, label_names: Sequence[str]) -> Confusion:
    """Read a confusion matrix: JSON with the shares that change, or a CSV table of whole rows.

    JSON names only what changes, as in {"van": {"truck": 0.4}}. CSV has the names in the first
    row and the first column, and each row adds up to 1. Rows without a row stay as they are.
    """
    text = _read_text(path)
    is_json = path.suffix.lower() == ".json" or text.lstrip().startswith("{")
    table = _json_table(path, text) if is_json else _csv_table(path, text)
    _check_names(path, table, label_names)
    number = {name: label for label, name in enumerate(label_names)}
    confusion: Confusion = {}
    for name, row in sorted(table.items(), key=lambda item: number[item[0]]):
        _check_row(path, name, row, whole=name in row or not is_json)
        others = {number[other]: value for other, value in row.items() if other != name}
        confusion[number[name]] = dict(sorted(others.items()))
    return confusion


def _need_two_labels(kind: str, num_labels: int) -> None:
    if num_labels < 2:
        raise UsageError(
            f"{kind} label noise needs at least two labels, but the dataset has {num_labels}"
        )


def _by_label(labels: Rows, keys: Floats, num_labels: int) -> tuple[Rows, Rows]:
    """Rows label by label, the smallest keys first, and how many each label has."""
    return np.lexsort((keys, labels)), np.bincount(labels, minlength=num_labels)


def _read_text(path: Path) -> str:
    try:
        data = read_limited(path, "settings_bytes")
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise UsageError(
            f"{path}: the label matrix cannot be read ({describe_os_error(error)})"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the label matrix is not UTF-8 text ({error})") from error


def _json_table(path: Path, text: str) -> dict[str, dict[str, float]]:
    try:
        # By type first: it refuses deep nesting and odd numbers; then again for repeated names.
        msgspec.json.decode(text, type=dict[str, dict[str, float]])
        table: dict[str, dict[str, float]] = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        raise UsageError(f"{path}: not a label matrix like {EXAMPLE} ({error})") from error
    return table


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"{_first_repeated(name for name, _ in pairs)!r} is there twice")
    return table


def _csv_table(path: Path, text: str) -> dict[str, dict[str, float]]:
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    except csv.Error as error:
        raise UsageError(f"{path}: not a CSV table ({error})") from error
    if len(lines) < 2:
        raise UsageError(f"{path}: expected a row of label names, then one row per label")
    names = [name.strip() for name in lines[0][1:]]
    table: dict[str, dict[str, float]] = {}
    for first, *cells in lines[1:]:
        if len(cells) != len(names):
            raise UsageError(
                f"{path}: row {first.strip()!r} has {len(cells)} numbers for {len(names)} labels"
            )
        table[first.strip()] = {
            name: _share_of(path, first.strip(), cell)
            for name, cell in zip(names, cells, strict=True)
        }
    for heads in (names, [line[0].strip() for line in lines[1:]]):
        if len(set(heads)) < len(heads):
            raise UsageError(f"{path}: {_first_repeated(heads)!r} is there twice")
    return table


def _share_of(path: Path, row: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise UsageError(f"{path}: row {row!r} holds {cell!r}, which is no number") from None


def _first_repeated(names: Iterable[str]) -> str | None:
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_names(
    path: Path, table: dict[str, dict[str, float]], label_names: Sequence[str]
) -> None:
    used = dict.fromkeys(table) | dict.fromkeys(name for row in table.values() for name in row)
    times = Counter(label_names)
    unknown = [name for name in used if not times[name]]
    if unknown:
        raise UsageError(
            f"{path}: no such label in the dataset: {_listed(unknown)}; "
            f"it has {_listed(label_names)}"
        )
    shared = [name for name in used if times[name] > 1]
    if shared:
        raise UsageError(f"{path}: several labels of the dataset are called {shared[0]!r}")


def _listed(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _check_row(path: Path, name: str, row: dict[str, float], *, whole: bool) -> None:
    """Refuse shares outside 0..1, a sum above 1, and of a `whole` row any other sum than 1."""
    for other, value in row.items():
        if not 0 <= value <= 1:
            raise UsageError(f"{path}: {name!r} to {other!r} is {value}, expected 0 to 1")
    total = math.fsum(row.values())
    if total > 1 + TOLERANCE or (whole and total < 1 - TOLERANCE):
        expected = "1" if whole else "at most 1"
        raise UsageError(f"{path}: the shares of {name!r} add up to {total:g}, not to {expected}")
