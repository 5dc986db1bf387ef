"""Read and append verdicts of people on fixes: `verdicts.jsonl` in the folder of a run.

Each line is a JSON object that ends with its digest (see `data.files.digests`). Each call appends
its lines with one write, so that two processes do not overwrite each other's lines, and a kill
damages at most the last line. The next write adds an empty line behind a damaged one. Readers skip
a damaged line at the end or before an empty line.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from boxmend.data.files.atomic import wrap_os_errors
from boxmend.data.files.digests import add_json_digest, verify_json_lines
from boxmend.data.files.reading import read_limited
from boxmend.data.files.syncing import sync_folder
from boxmend.data.types import Box
from boxmend.errors import DataError, OutputError

VERDICTS_FILE = "verdicts.jsonl"
ACCEPT, REJECT, SKIP, UNDO = ANSWERS = ("accept", "reject", "skip", "undo")
MODES = ("queue", "sample", "doubtful", "pattern", "import")
MAX_TEXT_CHARACTERS = 10_000  # of a text; ids of fixes contain label names
REMEDY = "remove that line, or restore a copy of the file"
MAX_COORDINATE = 1e7  # pixels from the corner of an image


@dataclass(frozen=True)
class Verdict:
    """A person's answer to a fix; raises a ValueError if it is invalid."""

    fix: str
    answer: str  # accept, reject, skip or undo, which cancels the previous answer
    label: str | None = None  # with accept: instead of the proposed label
    box: Box | None = None  # with accept: instead of the proposed box; xyxy pixels
    who: str | None = None
    when: str | None = None  # ISO 8601, UTC
    mode: str = "queue"  # how the fix was selected; "sample" is at random

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise ValueError(f"verdict is {self.answer!r}; expected {' or '.join(ANSWERS)}")
        if self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; expected {' or '.join(MODES)}")
        for name in ("fix", "label", "who", "when"):
            _check_text(name, getattr(self, name))
        if not self.fix:
            raise ValueError("fix is empty or missing")
        if self.answer != ACCEPT and (self.label is not None or self.box is not None):
            raise ValueError(f"{self.answer} has a label or a box; only accept may")
        if self.box is not None:
            object.__setattr__(self, "box", _check_box(self.box))

    @property
    def is_plain(self) -> bool:
        """Whether the verdict keeps the proposed label and box."""
        return self.label is None and self.box is None

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data for a line of the file, without empty values."""
        values: dict[str, Any] = {"fix": self.fix, "verdict": self.answer, "label": self.label}
        values |= {"box": self.box, "who": self.who, "when": self.when, "mode": self.mode}
        return {name: value for name, value in values.items() if value is not None}


def parse_verdict(values: Any) -> Verdict:
    """Return the verdict of a line's JSON; raise a ValueError if it is invalid."""
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    optional = {name: values.get(name) for name in ("label", "box", "who", "when")}
    mode = values.get("mode")
    return Verdict(
        values.get("fix") or "",
        values.get("verdict") or "",
        **optional,
        mode="queue" if mode is None else mode,
    )


def append_verdicts(run_path: Path, verdicts: Sequence[Verdict]) -> int:
    """Append verdicts to the file of a run with one write; return the number of bytes.

    When it returns they are synced to disk and survive a power cut.
    """
    if not verdicts:
        return 0
    path = run_path / VERDICTS_FILE
    lines = b"".join(
        add_json_digest(json.dumps(verdict.to_json()).encode()) for verdict in verdicts
    )
    with wrap_os_errors(path):
        with path.open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            is_torn = size > 0 and file.read(1) != b"\n"
            data = b"\n\n" + lines if is_torn else lines
            written = file.write(data)  # appends, even if the file has grown since
            os.fsync(file.fileno())
        if size == 0:  # the file is new, so its name has to be synced as well
            sync_folder(run_path)
    if written != len(data):
        raise OutputError(f"{path}: cannot be written (the disk is full); free some space")
    return len(data)


def read_verdicts(run_path: Path) -> list[Verdict]:
    """Read all verdicts of a run in the order of the answers; an empty list without a file."""
    path = run_path / VERDICTS_FILE
    try:
        data = read_limited(path, "record_bytes")
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason})") from error
    return list(_parse_lines(path, verify_json_lines(path, data, REMEDY)))


def latest_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    """Return the verdict that counts for each fix: the last one that was not undone.

    A skip does not change the verdict before it. The result has the order in which the verdicts
    were given.
    """
    answers: dict[str, list[int]] = {}  # by fix: numbers of the verdicts that were not undone
    for number, verdict in enumerate(verdicts):
        of_fix = answers.setdefault(verdict.fix, [])
        if verdict.answer != UNDO:
            of_fix.append(number)
        elif of_fix:
            of_fix.pop()
    informative = (
        [k for k in numbers if verdicts[k].answer != SKIP] for numbers in answers.values()
    )
    return {
        verdicts[k].fix: verdicts[k]
        for k in sorted(numbers[-1] for numbers in informative if numbers)
    }


def _parse_lines(path: Path, lines: Sequence[bytes]) -> Iterator[Verdict]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            if _is_torn(lines, number):
                continue
            raise _line_error(path, number, f"not JSON: {error}") from error
        try:
            yield parse_verdict(values)
        except ValueError as error:
            raise _line_error(path, number, error) from error


def _is_torn(lines: Sequence[bytes], number: int) -> bool:
    """Return whether a line, counted from 1, is the last one or is followed by an empty line."""
    following = lines[number:]
    return not following or (len(following) > 1 and not following[0].strip())


def _line_error(path: Path, number: int, reason: object) -> DataError:
    return DataError(f"{path}: line {number} is not a verdict ({reason}); correct or remove it")


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.60}; expected a text")
    if value is not None and len(value) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"{name} has more than {MAX_TEXT_CHARACTERS:,} characters")


def _check_box(box: Any) -> Box:
    """Return a box as four valid numbers."""
    is_list = isinstance(box, list | tuple) and len(box) == 4
    if not is_list or any(isinstance(side, bool) or not _is_number(side) for side in box):
        raise ValueError(f"box is {box!r:.60}; expected four numbers: x1, y1, x2, y2 in pixels")
    x1, y1, x2, y2 = (float(side) for side in box)
    if not (x1 < x2 and y1 < y2):
        raise ValueError(f"box {[x1, y1, x2, y2]} has no area")
    return x1, y1, x2, y2


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_COORDINATE and math.isfinite(value)
