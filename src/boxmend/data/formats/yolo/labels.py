"""The lines of a YOLO label file: what they say, and how single values in them are replaced.

A line is `class cx cy w h`, in shares of the image, or `class x y x y x y ...`, a polygon.
Annotations are counted by their lines; blank ones do not count.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from boxmend.data.dataset import UNKNOWN
from boxmend.data.formats.documents import Edit, apply_edits, format_number
from boxmend.data.types import Box

BOX_VALUES = 5  # the class, and cx cy w h
POLYGON_VALUES = 7  # the class, and three points or more
DECIMALS = 8  # of what is written anew: 0.001 px on any image of up to 100,000 px
KEPT_DECIMALS = 6  # at least, where a number in a file is replaced; most files have as many
MAX_DECIMALS = 12  # beyond, what differs is the rounding of floats
TOLERANCE = 0.005  # px that rounding may move an edge by; we promise twice as much
BOM = b"\xef\xbb\xbf"
NAN = math.nan
NO_BOX = (NAN, NAN, NAN, NAN)

Size = tuple[int, int]


@dataclass(frozen=True)
class Rules:
    """What counts as an annotation."""

    num_labels: int
    takes_polygons: bool = False
    has_keypoints: bool = False


class Problem(NamedTuple):
    """What is wrong with one line."""

    kind: str  # of a finding
    position: int  # among the annotations of the file
    message: str  # with the line number


@dataclass(slots=True)
class Labels:
    """What a label file says: one row per annotation, also where it is wrong."""

    labels: list[int] = field(default_factory=list)  # UNKNOWN where not declared
    boxes: list[float] = field(default_factory=list)  # x1 y1 x2 y2 each; NaN where unknown
    problems: list[Problem] = field(default_factory=list)
    num_polygons: int = 0


class Change(NamedTuple):
    """What a line is to say; None leaves it as it is."""

    label: int | None
    box: Box | None  # in pixels


def parse_labels(content: bytes, size: Size | None, rules: Rules) -> Labels:
    """Read a label file for an image of this size; without one, boxes are NaN."""
    found = Labels()
    for line_number, line in enumerate(_without_mark(content).splitlines(), 1):
        tokens = line.split()
        if not tokens:
            continue
        problems: list[tuple[str, str]] = []
        label = _label(tokens[0], rules.num_labels)
        if label == UNKNOWN:
            message = f"class {_shown(tokens[0])} is not one of the {rules.num_labels:,} names"
            problems.append(("unknown-category", message))
        try:
            found.boxes += _box(tokens, size, rules)
            found.num_polygons += len(tokens) > BOX_VALUES
        except _LineError as error:
            found.boxes += NO_BOX
            problems.append((error.kind, str(error)))
        position = len(found.labels)
        found.labels.append(label)
        for kind, message in problems:
            found.problems.append(Problem(kind, position, f"line {line_number}: {message}"))
    return found


def patch_labels(
    content: bytes,
    size: Size,
    changes: Mapping[int, Change | None],
    added: Iterable[tuple[int, Box]] = (),
) -> bytes:
    """The file with lines changed, or removed where the change is None, and others appended.

    `changes` is by position; values whose number stays the same keep their bytes. `size` is only
    used where a box is changed or added.
    """
    newline = _newline(content)
    patched = b"".join(apply_edits(content, _edits(content, size, changes)))
    lines = [line_of(label, box, size) for label, box in added]
    if not lines:
        return patched
    if patched.removeprefix(BOM) and not patched.endswith((b"\n", b"\r")):
        patched += newline
    is_open = content.removeprefix(BOM) != b"" and not content.endswith((b"\n", b"\r"))
    return patched + newline.join(lines) + (b"" if is_open else newline)


def line_of(label: int, box: Box, size: Size) -> bytes:
    """A new line, without its end."""
    values = (format_number(value, DECIMALS) for value in to_shares(box, size))
    return f"{label} {' '.join(values)}".encode()


def to_shares(box: Box, size: Size) -> Box:
    """Centre, width and height of a box in pixels, in shares of its image."""
    (x1, y1, x2, y2), (width, height) = box, size
    return (
        (x1 + x2) / 2 / width,
        (y1 + y2) / 2 / height,
        (x2 - x1) / width,
        (y2 - y1) / height,
    )


# Reading


class _LineError(Exception):
    """A line without a usable box, and the kind of finding it is."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def _label(token: bytes, num_labels: int) -> int:
    try:
        value = float(token)  # not int: some tools write 0.0
    except ValueError:
        return UNKNOWN
    if value.is_integer() and 0 <= value < num_labels and b"_" not in token:
        return int(value)
    return UNKNOWN


def _box(tokens: list[bytes], size: Size | None, rules: Rules) -> Box:
    """The edges in pixels, zero-based and half-open."""
    is_polygon = len(tokens) >= POLYGON_VALUES and len(tokens) % 2 == 1
    if len(tokens) != BOX_VALUES and (not is_polygon or rules.has_keypoints):
        what = "keypoints are not supported" if rules.has_keypoints else "expected class cx cy w h"
        raise _LineError("malformed", f"{len(tokens)} values; {what}")
    if is_polygon and not rules.takes_polygons:
        message = (
            f"a polygon of {len(tokens) // 2} points; pass --polygons box (polygons='box') to "
            "take the box around it"
        )
        raise _LineError("malformed", message)
    values = _numbers(tokens[1:])
    if not math.isfinite(sum(values)):
        raise _LineError("box-not-finite", f"not finite: {_shown(b' '.join(tokens[1:]))}")
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
        raise _LineError("box-not-finite", f"beyond all numbers: {_shown(b' '.join(tokens[1:]))}")
    return box


def _numbers(tokens: list[bytes]) -> list[float]:
    joined = b" ".join(tokens)
    try:
        if b"_" not in joined:  # Python takes 1_000 for a number, nobody else does
            return [float(token) for token in tokens]
    except ValueError:
        pass
    raise _LineError("malformed", f"not numbers: {_shown(joined)}")


def _shown(data: bytes) -> str:
    text = data[:60].decode("ascii", "backslashreplace")
    return repr(text + ("…" if len(data) > 60 else ""))


def _without_mark(content: bytes) -> bytes:
    return content.removeprefix(BOM)


# Patching


def _edits(content: bytes, size: Size, changes: Mapping[int, Change | None]) -> Iterator[Edit]:
    for position, (start, line) in enumerate(_lines(content)):
        if position not in changes:
            continue
        change = changes[position]
        if change is None:
            yield Edit(start, start + len(line), b"")
        else:
            yield from _line_edits(start, line, size, change)


def _lines(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that hold annotations, with their ends, and where each starts."""
    start = len(content) - len(_without_mark(content))
    for line in _without_mark(content).splitlines(keepends=True):
        if line.strip():
            yield start, line
        start += len(line)


def _line_edits(start: int, line: bytes, size: Size, change: Change) -> Iterator[Edit]:
    tokens = list(_tokens(start, line))
    first, others = tokens[0], tokens[1:]
    if change.label is not None:
        yield Edit(first.start, first.end, str(change.label).encode())
    if change.box is None:
        return
    shares = to_shares(change.box, size)
    try:
        old = _numbers([token.new for token in others])
    except _LineError:
        old = []
    if len(old) != len(shares) or not math.isfinite(sum(old)):  # a polygon, or not to be read
        new = " ".join(format_number(value, DECIMALS) for value in shares)
        yield Edit(first.end, tokens[-1].end, f" {new}".encode())
        return
    decimals = _decimals([token.new for token in others], size)
    for token, before, after in zip(others, old, shares, strict=True):
        if abs(after - before) > 0.5 * 10**-decimals:
            yield Edit(token.start, token.end, format_number(after, decimals).encode())


def _tokens(start: int, line: bytes) -> Iterator[Edit]:
    """The values of a line, each as the edit that would leave it as it is."""
    end = 0
    for token in line.split():
        begin = line.index(token, end)
        end = begin + len(token)
        yield Edit(start + begin, start + end, token)


def _decimals(tokens: list[bytes], size: Size) -> int:
    """As many as the line has, but enough for its image: an edge moves by centre and half width."""
    own = max(len(token.partition(b".")[2]) for token in tokens)
    needed = math.ceil(math.log10(1.5 * max(size) / TOLERANCE / 2))
    return min(max(own, needed, KEPT_DECIMALS), MAX_DECIMALS)


def _newline(content: bytes) -> bytes:
    """The end of the first line; where there is none, a plain one."""
    for line in content.splitlines(keepends=True):
        return line[len(line.rstrip(b"\r\n")) :] or b"\n"
    return b"\n"
