"""Parse and patch the lines of a YOLO label file.

A line is `class cx cy w h`, in shares of the image, or `class x y x y x y ...`, a polygon. The
position of an annotation is the number of its line; blank lines do not count.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from boxmend.data.dataset import UNKNOWN
from boxmend.data.formats.documents import Edit, apply_edits, format_number
from boxmend.data.types import Box

BOX_VALUES = 5  # the class, and cx cy w h
PREDICTION_VALUES = 6  # the class, cx cy w h and a confidence
POLYGON_VALUES = 7  # the class, and three points or more
NEW_DECIMALS = 8  # of new lines: 0.001 pixels in any image of up to 100,000 pixels
MIN_DECIMALS = 6  # of a replaced number; most files have as many
MAX_DECIMALS = 12  # of a replaced number; further digits are rounding errors
TOLERANCE_PIXELS = 0.005  # rounding may move an edge by this; the docs promise twice as much
BOM = b"\xef\xbb\xbf"
NAN = math.nan
NO_BOX = (NAN, NAN, NAN, NAN)

Size = tuple[int, int]


@dataclass(frozen=True)
class Rules:
    """The rules for valid annotations."""

    num_labels: int
    takes_polygons: bool = False
    has_keypoints: bool = False


class Problem(NamedTuple):
    """An error in one line."""

    kind: str  # of a finding
    position: int  # among the annotations of the file
    message: str  # with the line number


@dataclass(slots=True)
class Labels:
    """The annotations of a label file, one row each, wrong ones included."""

    labels: list[int] = field(default_factory=list)  # UNKNOWN if not declared
    boxes: list[float] = field(default_factory=list)  # x1 y1 x2 y2 each; NaN if unknown
    problems: list[Problem] = field(default_factory=list)
    num_polygons: int = 0


class Change(NamedTuple):
    """The new values of a line; None keeps the old value."""

    label: int | None
    box: Box | None  # in pixels


def parse_labels(content: bytes, size: Size | None, rules: Rules) -> Labels:
    """Parse the label file of an image of this size; boxes are NaN if the size is unknown."""
    parsed = Labels()
    for line_number, line in enumerate(_strip_mark(content).splitlines(), 1):
        tokens = line.split()
        if not tokens:
            continue
        problems: list[tuple[str, str]] = []
        label = _parse_label(tokens[0], rules.num_labels)
        if label == UNKNOWN:
            message = f"class {_quote(tokens[0])} is not one of the {rules.num_labels:,} names"
            problems.append(("unknown-category", message))
        try:
            parsed.boxes += _parse_box(tokens, size, rules)
            parsed.num_polygons += len(tokens) > BOX_VALUES
        except _LineError as error:
            parsed.boxes += NO_BOX
            problems.append((error.kind, str(error)))
        position = len(parsed.labels)
        parsed.labels.append(label)
        for kind, message in problems:
            parsed.problems.append(Problem(kind, position, f"line {line_number}: {message}"))
    return parsed


def patch_labels(
    content: bytes,
    size: Size,
    changes: Mapping[int, Change | None],
    added: Iterable[tuple[int, Box]] = (),
) -> bytes:
    """Return the file with lines changed, removed (change None) or appended.

    `changes` is by position; unchanged numbers keep their bytes. `size` is only needed for changed
    or new boxes.
    """
    newline = _find_newline(content)
    patched = b"".join(apply_edits(content, _make_edits(content, size, changes)))
    lines = [format_line(label, box, size) for label, box in added]
    if not lines:
        return patched
    if patched.removeprefix(BOM) and not patched.endswith((b"\n", b"\r")):
        patched += newline
    lacks_newline = content.removeprefix(BOM) != b"" and not content.endswith((b"\n", b"\r"))
    return patched + newline.join(lines) + (b"" if lacks_newline else newline)


def format_line(label: int, box: Box, size: Size) -> bytes:
    """Return a new line without its line end."""
    values = (format_number(value, NEW_DECIMALS) for value in to_shares(box, size))
    return f"{label} {' '.join(values)}".encode()


def to_shares(box: Box, size: Size) -> Box:
    """Convert a box in pixels to center, width and height in shares of its image."""
    (x1, y1, x2, y2), (width, height) = box, size
    return (
        (x1 + x2) / 2 / width,
        (y1 + y2) / 2 / height,
        (x2 - x1) / width,
        (y2 - y1) / height,
    )


# Reading.


class _LineError(Exception):
    """A line has no usable box; `kind` is the kind of the finding."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def _parse_label(token: bytes, num_labels: int) -> int:
    try:
        value = float(token)  # not int: some tools write 0.0
    except ValueError:
        return UNKNOWN
    if value.is_integer() and 0 <= value < num_labels and b"_" not in token:
        return int(value)
    return UNKNOWN


def _parse_box(tokens: list[bytes], size: Size | None, rules: Rules) -> Box:
    """Return the box in pixels, zero-based and half-open."""
    is_polygon = len(tokens) >= POLYGON_VALUES and len(tokens) % 2 == 1
    if len(tokens) != BOX_VALUES and (not is_polygon or rules.has_keypoints):
        raise _LineError("malformed", f"{len(tokens)} values; {_explain_count(len(tokens), rules)}")
    if is_polygon and not rules.takes_polygons:
        message = (
            f"a polygon of {len(tokens) // 2} points; pass --polygons box (polygons='box') to "
            "take the box around it"
        )
        raise _LineError("malformed", message)
    values = _parse_numbers(tokens[1:])
    if not math.isfinite(sum(values)):
        raise _LineError("box-not-finite", f"not finite: {_quote(b' '.join(tokens[1:]))}")
    width, height = size or (NAN, NAN)
    if is_polygon:
        xs, ys = values[::2], values[1::2]
        box = min(xs) * width, min(ys) * height, max(xs) * width, max(ys) * height
    else:
        cx, cy, w, h = values
        box = (
            (cx - w / 2) * width,
            (cy - h / 2) * height,
            (cx + w / 2) * width,
            (cy + h / 2) * height,
        )
    if size and not math.isfinite(sum(box)):
        raise _LineError("box-not-finite", f"too large: {_quote(b' '.join(tokens[1:]))}")
    return box


def _explain_count(count: int, rules: Rules) -> str:
    if rules.has_keypoints:
        return "keypoints are not supported"
    if count == PREDICTION_VALUES:
        return (
            "the sixth is probably a confidence, so that these are predictions; audit a dataset "
            "with them by --predictions DIR, or remove the sixth value"
        )
    return "expected class cx cy w h"


def _parse_numbers(tokens: list[bytes]) -> list[float]:
    joined = b" ".join(tokens)
    try:
        if b"_" not in joined:  # only Python accepts 1_000 as a number
            return [float(token) for token in tokens]
    except ValueError:
        pass
    raise _LineError("malformed", f"not numbers: {_quote(joined)}")


def _quote(data: bytes) -> str:
    text = data[:60].decode("ascii", "backslashreplace")
    return repr(text + ("…" if len(data) > 60 else ""))


def _strip_mark(content: bytes) -> bytes:
    return content.removeprefix(BOM)


# Patching.


def _make_edits(content: bytes, size: Size, changes: Mapping[int, Change | None]) -> Iterator[Edit]:
    for position, (start, line) in enumerate(_find_lines(content)):
        if position not in changes:
            continue
        change = changes[position]
        if change is None:
            yield Edit(start, start + len(line), b"")
        else:
            yield from _make_line_edits(start, line, size, change)


def _find_lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the start and the bytes (with line end) of each line that has an annotation."""
    start = len(content) - len(_strip_mark(content))
    for line in _strip_mark(content).splitlines(keepends=True):
        if line.strip():
            yield start, line
        start += len(line)


def _make_line_edits(start: int, line: bytes, size: Size, change: Change) -> Iterator[Edit]:
    tokens = list(_find_tokens(start, line))
    first, others = tokens[0], tokens[1:]
    if change.label is not None:
        yield Edit(first.start, first.end, str(change.label).encode())
    if change.box is None:
        return
    shares = to_shares(change.box, size)
    try:
        old = _parse_numbers([token.new for token in others])
    except _LineError:
        old = []
    if len(old) != len(shares) or not math.isfinite(sum(old)):  # a polygon, or unreadable
        new = " ".join(format_number(value, NEW_DECIMALS) for value in shares)
        yield Edit(first.end, tokens[-1].end, f" {new}".encode())
        return
    decimals = _choose_decimals([token.new for token in others], size)
    for token, before, after in zip(others, old, shares, strict=True):
        if abs(after - before) > 0.5 * 10**-decimals:
            yield Edit(token.start, token.end, format_number(after, decimals).encode())


def _find_tokens(start: int, line: bytes) -> Iterator[Edit]:
    """Yield the values of a line, each as an edit that changes nothing."""
    end = 0
    for token in line.split():
        begin = line.index(token, end)
        end = begin + len(token)
        yield Edit(start + begin, start + end, token)


def _choose_decimals(tokens: list[bytes], size: Size) -> int:
    """Return the decimals of the line, but enough for the tolerance in an image of this size.

    Rounding the center and half the width each move an edge.
    """
    present = max(len(token.partition(b".")[2]) for token in tokens)
    needed = math.ceil(math.log10(1.5 * max(size) / TOLERANCE_PIXELS / 2))
    return min(max(present, needed, MIN_DECIMALS), MAX_DECIMALS)


def _find_newline(content: bytes) -> bytes:
    """Return the line end of the first line; a line feed if there is none."""
    for line in content.splitlines(keepends=True):
        return line[len(line.rstrip(b"\r\n")) :] or b"\n"
    return b"\n"
