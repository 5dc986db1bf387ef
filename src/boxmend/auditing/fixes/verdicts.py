"""What people say of fixes: `verdicts.jsonl` in the folder of a run, only ever appended to.

One JSON object a line, which ends with its digest (see `data.files.digests`). Each call adds its
lines by one write at the end of the file, so that two windows do not overwrite each other, and a
kill tears the last line at most. A torn line is passed over: the last one, and one that an empty
line follows, which the next write puts there.
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
LONGEST = 10_000  # characters of a text; ids of fixes hold label names
REMEDY = "remove that line, or put a copy of the file back"
FARTHEST = 1e7  # pixels from the corner of an image


@dataclass(frozen=True)
class Verdict:
    """What somebody answered about a fix; a ValueError tells what is wrong with it."""

    fix: str
    answer: str  # accept, reject, skip, or undo: the answer before does not count
    label: str | None = None  # with accept: this one, not the proposed one
    box: Box | None = None  # with accept: this one; xyxy pixels
    who: str | None = None
    when: str | None = None  # ISO 8601, UTC
    mode: str = "queue"  # how the fix was come upon; "sample" is at random

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
            object.__setattr__(self, "box", _checked_box(self.box))

    @property
    def is_plain(self) -> bool:
        """Whether it takes the fix, or does not, just as it was proposed."""
        return self.label is None and self.box is None

    def to_json(self) -> dict[str, Any]:
        """The verdict as a line of the file has it, without what is not told."""
        told: dict[str, Any] = {"fix": self.fix, "verdict": self.answer, "label": self.label}
        told |= {"box": self.box, "who": self.who, "when": self.when, "mode": self.mode}
        return {name: value for name, value in told.items() if value is not None}


def verdict_of(told: Any) -> Verdict:
    """A verdict from a line's JSON; a ValueError where it is none."""
    if not isinstance(told, dict):
        raise ValueError("no JSON object")
    rest = {name: told.get(name) for name in ("label", "box", "who", "when")}
    mode = told.get("mode")
    return Verdict(
        told.get("fix") or "",
        told.get("verdict") or "",
        **rest,
        mode="queue" if mode is None else mode,
    )


def append_verdicts(run_path: Path, verdicts: Sequence[Verdict]) -> int:
    """Add verdicts at the end of the file of a run, all by one write; returns its bytes.

    They are on disk when it returns, and survive a power cut.
    """
    if not verdicts:
        return 0
    path = run_path / VERDICTS_FILE
    lines = b"".join(add_json_digest(json.dumps(one.to_json()).encode()) for one in verdicts)
    with wrap_os_errors(path):
        with path.open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            is_torn = size > 0 and file.read(1) != b"\n"
            data = b"\n\n" + lines if is_torn else lines
            written = file.write(data)  # at the end, wherever that is by now
            os.fsync(file.fileno())
        if size == 0:  # the file is new, so its name has to be synced as well
            sync_folder(run_path)
    if written != len(data):
        raise OutputError(f"{path}: could not be written (the disk is full)")
    return len(data)


def read_verdicts(run_path: Path) -> list[Verdict]:
    """All verdicts of a run in the order in which they were given; none where there is no file."""
    path = run_path / VERDICTS_FILE
    try:
        data = read_limited(path, "record_bytes")
    except FileNotFoundError:
        return []
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path}: cannot be read ({reason})") from error
    return list(_parsed(path, verify_json_lines(path, data, REMEDY)))


def latest_verdicts(verdicts: Sequence[Verdict]) -> dict[str, Verdict]:
    """The verdict that counts of each fix that has one: the last, as far as it was not undone.

    To skip a fix says nothing about it, and leaves what was said before. They are in the order in
    which they were given.
    """
    answers: dict[str, list[int]] = {}  # by fix: the numbers of the verdicts that were not undone
    for number, one in enumerate(verdicts):
        of_fix = answers.setdefault(one.fix, [])
        if one.answer != UNDO:
            of_fix.append(number)
        elif of_fix:
            of_fix.pop()
    said = ([k for k in of if verdicts[k].answer != SKIP] for of in answers.values())
    return {verdicts[k].fix: verdicts[k] for k in sorted(of[-1] for of in said if of)}


def _parsed(path: Path, lines: Sequence[bytes]) -> Iterator[Verdict]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError) as error:
            if _is_torn(lines, number):
                continue
            raise _damaged(path, number, f"no JSON: {error}") from error
        try:
            yield verdict_of(told)
        except ValueError as error:
            raise _damaged(path, number, error) from error


def _is_torn(lines: Sequence[bytes], number: int) -> bool:
    """Whether a line, counted from 1, is the last and unended, or has an empty line behind it."""
    behind = lines[number:]
    return not behind or (len(behind) > 1 and not behind[0].strip())


def _damaged(path: Path, number: int, what: object) -> DataError:
    return DataError(f"{path}: line {number} is no verdict ({what}); mend or remove that line")


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r:.60}; expected a text")
    if value is not None and len(value) > LONGEST:
        raise ValueError(f"{name} has more than {LONGEST:,} characters")


def _checked_box(box: Any) -> Box:
    """The box as four numbers that a box can have."""
    is_list = isinstance(box, list | tuple) and len(box) == 4
    if not is_list or any(isinstance(one, bool) or not _is_number(one) for one in box):
        raise ValueError(f"box is {box!r:.60}; expected four numbers: x1, y1, x2, y2 in pixels")
    x1, y1, x2, y2 = (float(one) for one in box)
    if not (x1 < x2 and y1 < y2):
        raise ValueError(f"box {[x1, y1, x2, y2]} has no area")
    return x1, y1, x2, y2


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float):
        return False
    return abs(value) <= FARTHEST and math.isfinite(value)
