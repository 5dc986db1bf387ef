"""The content of a report, of a training run or of an audit, before its pictures are made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

from boxmend.web.report.record import Figure
from boxmend.web.text import display_text
from boxmend.web.thumbnails import Request, Thumbnails


@dataclass(frozen=True)
class Tile:
    """A key figure, and what it is."""

    number: str
    what: str
    note: str = ""


@dataclass(frozen=True)
class Pattern:
    """How often one label was replaced by another, or would be."""

    called: str
    truly: str
    number: int
    share: float  # of the annotations with the old label
    pair: str  # the value in the gallery's filter


@dataclass(frozen=True)
class SummaryTable:
    """A table of the summary; the first cell of a row is its heading."""

    title: str
    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    links: tuple[str, ...] = ()  # the view of the gallery that each heading leads to, or empty


@dataclass(frozen=True)
class ReportSummary:
    """The first part of the page; its texts are not escaped for HTML."""

    paragraphs: list[str]
    groups: list[tuple[str, list[Tile]]]
    patterns: list[Pattern]
    facts: list[tuple[str, str]]
    tables: tuple[SummaryTable, ...] = ()
    notes: tuple[str, ...] = ()  # about the inputs, as the audit gave them


@dataclass(frozen=True)
class ReportContent:
    """All parts of a report; the gallery's columns need the pictures that are requested."""

    kind: Literal["run", "audit"]
    name: str  # of the folder
    summary: ReportSummary
    figures: list[Figure]
    requests: list[Request]
    columns: Callable[[Iterable[Thumbnails]], dict[str, Any]]
    num_shown: int
    num_left_out: int  # of the gallery, because there are too many
    command: Mapping[str, Any]  # for the button that copies the command


def apply_command(name: str, placeholder: str, *, is_moved: bool, why_none: str = "") -> Any:
    """Return what the page needs to write an `apply` command for the folder of this name.

    People paste the command into a shell. A name with characters that cannot be shown is therefore
    replaced by the placeholder, and any other is quoted. `why_none` says why no command takes what
    the page shows.
    """
    is_plain = display_text(name) == name
    folder = quote(f"./{name}" if name.startswith("-") else name) if is_plain else placeholder
    replaced = [placeholder] if not is_plain else []
    return {
        "folder": folder,
        "data": " --data DATA" if is_moved else "",
        "replaced": replaced + (["DATA"] if is_moved else []),
        "why_none": why_none,
    }
