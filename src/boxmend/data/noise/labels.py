"""Label noise with exact counts: symmetric, pairwise, or by a confusion matrix.

Each annotation has a key. The annotations with the smallest keys change, so with the same keys a
low rate changes a part of what a higher rate changes.
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
from boxmend.data.noise.streams import choose_smallest, count_of_rate, pick_choices
from boxmend.data.types import Floats, Rows
from boxmend.errors import UsageError

Confusion = dict[int, dict[int, float]]
"""For each label, the share of its annotations that get each other label; the rest stay."""

LABEL_NOISES = ("symmetric", "any", "pair", "matrix")
MAX_SUM_ERROR = 1e-6  # of the sum of a row, because 0.3333333 three times is not exactly 1
EXAMPLE = '{"van": {"truck": 0.4}}'


def relabel_symmetric(
    labels: Rows, keys: Floats, draws: Floats, rate: float, num_labels: int
) -> Rows:
    """Replace round(rate * n) labels, each by one of the other labels with equal probability."""
    _ensure_two_labels("symmetric", num_labels)
    rows = choose_smallest(keys, count_of_rate(rate, len(labels)))
    other = pick_choices(draws[rows], num_labels - 1)
    result = labels.copy()
    result[rows] = other + (other >= labels[rows])  # skip the label itself
    return result


def relabel_any(labels: Rows, keys: Floats, draws: Floats, rate: float, num_labels: int) -> Rows:
    """Replace round(rate * n) labels, each by any label, so 1 of `num_labels` stays right (UNA)."""
    rows = choose_smallest(keys, count_of_rate(rate, len(labels)))
    result = labels.copy()
    result[rows] = pick_choices(draws[rows], num_labels)
    return result


def relabel_pairs(labels: Rows, keys: Floats, rate: float, num_labels: int) -> Rows:
    """Change round(rate * n_c) of each label c to the next label; the last becomes the first."""
    _ensure_two_labels("pair", num_labels)
    order, counts = _sort_by_label(labels, keys, num_labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    quota = np.array([count_of_rate(rate, count) for count in counts.tolist()], np.int64)
    rows = order[rank < np.repeat(quota, counts)]
    result = labels.copy()
    result[rows] = (labels[rows] + 1) % num_labels
    return result


def relabel_by_matrix(labels: Rows, keys: Floats, confusion: Confusion, num_labels: int) -> Rows:
    """Relabel by a confusion matrix; the counts of each label are exact by largest remainder."""
    order, counts = _sort_by_label(labels, keys, num_labels)
    ends = np.cumsum(counts)
    result = labels.copy()
    for label, shares in confusion.items():
        rows = order[ends[label] - counts[label] : ends[label]]
        targets = [*shares, label]  # the label itself comes last: the smallest keys change
        stay = max(0.0, 1.0 - math.fsum(shares.values()))
        result[rows] = np.repeat(targets, apportion([*shares.values(), stay], len(rows)))
    return result


def apportion(shares: Sequence[float], total: int) -> list[int]:
    """Split `total` into whole counts in proportion to `shares`, by largest remainder.

    Of equal remainders the earlier one is rounded up first.
    """
    exact = [share * total / math.fsum(shares) for share in shares]
    counts = [math.floor(part) for part in exact]
    # Nine decimals make remainders equal that differ by a rounding error only.
    remainders = [-round(part - count, 9) for part, count in zip(exact, counts, strict=True)]
    by_remainder = sorted(range(len(counts)), key=remainders.__getitem__)
    for place in by_remainder[: total - sum(counts)]:
        counts[place] += 1
    return counts


def read_confusion(path: Path, label_names: Sequence[str]) -> Confusion:
    """Read a confusion matrix: JSON with the shares that change, or CSV with complete rows.

    JSON names only what changes, as in {"van": {"truck": 0.4}}. CSV has the names in the first
    row and the first column, and each row adds up to 1. Labels without a row stay as they are.
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


def _ensure_two_labels(kind: str, num_labels: int) -> None:
    if num_labels < 2:
        raise UsageError(
            f"{kind} label noise needs at least two labels, but the dataset has {num_labels}"
        )


def _sort_by_label(labels: Rows, keys: Floats, num_labels: int) -> tuple[Rows, Rows]:
    """Return the rows sorted by label, then by key, and the count of each label."""
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
        # msgspec checks types and refuses deep nesting; json then finds repeated names.
        msgspec.json.decode(text, type=dict[str, dict[str, float]])
        table: dict[str, dict[str, float]] = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:  # msgspec's and json's errors are ValueErrors
        raise UsageError(f"{path}: not a label matrix like {EXAMPLE} ({error})") from error
    return table


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"{_first_repeated(name for name, _ in pairs)!r} appears twice")
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
            name: _read_share(path, first.strip(), cell)
            for name, cell in zip(names, cells, strict=True)
        }
    for heads in (names, [line[0].strip() for line in lines[1:]]):
        if len(set(heads)) < len(heads):
            raise UsageError(f"{path}: {_first_repeated(heads)!r} appears twice")
    return table


def _read_share(path: Path, row: str, cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise UsageError(f"{path}: row {row!r} holds {cell!r}, which is not a number") from None


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
            f"{path}: no such label in the dataset: {_list_names(unknown)}; "
            f"it has {_list_names(label_names)}"
        )
    shared = [name for name in used if times[name] > 1]
    if shared:
        raise UsageError(f"{path}: several labels of the dataset are called {shared[0]!r}")


def _list_names(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _check_row(path: Path, name: str, row: dict[str, float], *, whole: bool) -> None:
    """Refuse shares outside 0 to 1, sums above 1, and for a `whole` row any sum other than 1."""
    for other, value in row.items():
        if not 0 <= value <= 1:
            raise UsageError(f"{path}: {name!r} to {other!r} is {value}, expected 0 to 1")
    total = math.fsum(row.values())
    if total > 1 + MAX_SUM_ERROR or (whole and total < 1 - MAX_SUM_ERROR):
        expected = "1" if whole else "at most 1"
        raise UsageError(f"{path}: the shares of {name!r} add up to {total:g}, not to {expected}")
