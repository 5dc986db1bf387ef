"""The layout of `--help`: plain text of at most 80 columns, options grouped by topic."""

import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from cyclopts.help import HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions
from rich.text import Text

MAX_COLUMNS = 80
MIN_NAME_COLUMNS = 8
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
DESCRIPTION_INDENT = " " * 6
LONG_FRACTION = re.compile(r"0\.\d{8,}")
EMPTY_DEFAULTS = ("()", "[]", '""', "None")
TITLES = {"Parameters": "Options"}  # of cyclopts


class HelpLayout:
    """A help formatter for cyclopts: one line per command, options with indented descriptions.

    `panels` maps the title of a panel to the names of its options; `mend.*` stands for all options
    that begin with `mend.`. Options without a panel stay in the one that cyclopts chose.
    """

    def __init__(self, panels: Mapping[str, Sequence[str]] | None = None):
        panels = panels or {}
        self._title_of = {name: title for title, names in panels.items() for name in names}
        self._titles = tuple(panels)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one panel, split by topic."""
        entries_of: dict[str, list[HelpEntry]] = {}
        for entry in panel.entries:
            title = self._title(entry, TITLES.get(str(panel.title), str(panel.title)))
            entries_of.setdefault(title, []).append(entry)
        titles = [title for title in entries_of if title not in self._titles]
        titles += [title for title in self._titles if title in entries_of]
        for title in titles:
            console.print()
            _print_line(console, Text(f"{title}:", "bold"))
            if panel.format == "command":
                _print_commands(console, entries_of[title])
            else:
                _print_options(console, entries_of[title])

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        """Print the usage line."""
        if usage:
            text = f"Usage: {_plain_text(usage).strip()}"
            for line in _wrap(text.replace("Usage: Usage: ", "Usage: ")):
                _print_line(console, line)

    def render_description(
        self, console: Console, options: ConsoleOptions, description: object
    ) -> None:
        """Print what the command does, paragraph by paragraph; indented lines stay as they are."""
        for paragraph in _plain_text(description).strip().split("\n\n"):
            console.print()
            for line in _paragraph_lines(paragraph):
                _print_line(console, line)

    def _title(self, entry: HelpEntry, default: str) -> str:
        """Return the title of the panel that lists the option, or the default."""
        for option in entry.positive_names:
            name = option.removeprefix("--")
            for pattern in (name, f"{name.split('.')[0]}.*"):
                if pattern in self._title_of:
                    return self._title_of[pattern]
        return default


def _print_commands(console: Console, entries: Sequence[HelpEntry]) -> None:
    """Print one line per command, with the summaries aligned."""
    labels = [", ".join(entry.all_options) for entry in entries]
    width = max(MIN_NAME_COLUMNS, *map(len, labels))
    for label, entry in zip(labels, entries, strict=True):
        summary = " ".join(_plain_text(entry.description).split())
        indent = " " * (width + 4)
        first, *others = _wrap(summary, indent)
        line = Text("  ").append(label, "cyan").append(first[len(label) + 2 :])
        _print_line(console, line)
        for other in others:
            _print_line(console, other)


def _print_options(console: Console, entries: Sequence[HelpEntry]) -> None:
    """Print each option on a line of its own, with its description below."""
    for entry in entries:
        labels = getattr(entry, "display_labels_with_metavar", entry.all_options)  # cyclopts 5
        _print_line(console, Text("  ").append(", ".join(labels), "cyan"))
        for line in _wrap(_description(entry), DESCRIPTION_INDENT):
            _print_line(console, line)


def _print_line(console: Console, line: str | Text) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _description(entry: HelpEntry) -> str:
    """Return what an option means, its choices, and its default."""
    parts = [" ".join(_plain_text(entry.description).split())]
    if entry.choices:
        parts.append(_unbroken(f"[{' | '.join(entry.choices)}]"))
    default = _default(entry)
    if entry.required:
        parts.append("[required]")
    elif default:
        parts.append(_unbroken(f"[default: {default}]"))
    return " ".join(part for part in parts if part)


def _unbroken(text: str) -> str:
    """Return a short text with spaces at which lines are not broken."""
    fits = len(text) <= MAX_COLUMNS - len(DESCRIPTION_INDENT)
    return text.replace(" ", NO_BREAK_SPACE) if fits else text


def _default(entry: HelpEntry) -> str:
    """Return the default as text; an empty text where showing it would not help."""
    default = str(entry.default)
    if default in ("True", "False"):
        has_negative = bool(entry.negative_names)
        return ("on" if default == "True" else "off") if has_negative else ""
    if default in EMPTY_DEFAULTS:
        return ""
    if LONG_FRACTION.fullmatch(default):  # such as a third
        return f"{float(default):.4g}"
    return default


def _paragraph_lines(paragraph: str) -> Iterator[str]:
    """Yield the lines of a paragraph: prose is wrapped, indented lines are kept."""
    prose: list[str] = []
    for line in paragraph.splitlines():
        if line.startswith("  "):
            yield from _wrap(" ".join(prose))
            prose = []
            yield line.rstrip()
        else:
            prose.append(line)
    yield from _wrap(" ".join(prose))


def _wrap(text: str, indent: str = "") -> list[str]:
    lines = textwrap.wrap(
        text.replace(" %", f"{NO_BREAK_SPACE}%"),
        MAX_COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,  # option names have hyphens
    )
    return [line.replace(NO_BREAK_SPACE, " ") for line in lines]


def _plain_text(description: object) -> str:
    """Return a description of cyclopts as text, with its line ends but without styles."""
    console = Console(file=io.StringIO(), width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(description or "", end="", markup=False, highlight=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
