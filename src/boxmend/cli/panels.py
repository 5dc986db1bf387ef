"""The help of a command with many options, in panels by what they are about."""

import io
import re
import textwrap
from collections.abc import Mapping, Sequence

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel, PlainFormatter
from rich.console import Console, ConsoleOptions
from rich.text import Text

LONG_FRACTION = re.compile(r"0\.\d{8,}")


class Panels:
    """A formatter for cyclopts that deals the options out to panels by their names.

    An option `--mend.gamma` belongs to the panel that lists `mend.*`, one that none lists to the
    panel that cyclopts put it in. On a terminal panels are framed, elsewhere plain text.
    """

    def __init__(self, titles: Mapping[str, Sequence[str]], *, is_terminal: bool):
        self._title_of = {name: title for title, names in titles.items() for name in names}
        self._titles = tuple(titles)
        self._is_terminal = is_terminal
        self._base = DefaultFormatter() if is_terminal else PlainFormatter()

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print the panel in parts."""
        parts: dict[str, list[HelpEntry]] = {}
        for entry in panel.entries:
            title = self._title(entry, str(panel.title))
            parts.setdefault(title, []).append(_plain(entry))
        order = [title for title in parts if title not in self._titles]
        for title in (*order, *(title for title in self._titles if title in parts)):
            part = panel.copy(title=title, entries=parts[title])
            if self._is_terminal:
                self._base(console, options, part)
            else:
                print_plain(console, part)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        """Print the line of usage."""
        self._base.render_usage(console, options, usage)

    def render_description(
        self, console: Console, options: ConsoleOptions, description: object
    ) -> None:
        """Print what the command does, paragraph by paragraph."""
        for paragraph in _text(description, ends="\n\n"):
            console.print(paragraph, markup=False, highlight=False)
            console.print()

    def _title(self, entry: HelpEntry, otherwise: str) -> str:
        for option in entry.positive_names:
            name = option.removeprefix("--")
            for known in (name, f"{name.split('.')[0]}.*"):
                if known in self._title_of:
                    return self._title_of[known]
        return otherwise


def print_plain(console: Console, panel: HelpPanel) -> None:
    """Print a panel as text: each option on a line of its own, what it means below."""
    lines = [f"{panel.title}:"]
    for entry in panel.entries:
        labels = getattr(entry, "display_labels_with_metavar", entry.all_options)  # cyclopts 5
        lines.append(f"  {', '.join(labels)}")
        lines += textwrap.wrap(
            _meaning(entry), 78, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.print()


def _meaning(entry: HelpEntry) -> str:
    parts = [str(entry.description)]
    if entry.choices:
        parts.append(f"[{' | '.join(entry.choices)}]")
    if entry.required:
        parts.append("[required]")
    elif entry.default is not None:
        parts.append(f"[default: {entry.default}]")
    return " ".join(part for part in parts if part)


def _plain(entry: HelpEntry) -> HelpEntry:
    """The entry without the line ends of its docstring and without a default that says nothing."""
    default = None if entry.default in ("False", "()", "[]") else entry.default
    if default is not None and LONG_FRACTION.fullmatch(str(default)):
        default = f"{float(str(default)):.4g}"  # a third
    return entry.copy(description=Text(_text(entry.description)[0]), default=default)


def _text(description: object, ends: str | None = None) -> list[str]:
    """What a description says, in the parts that `ends` separates.

    Other line ends are taken out: they are those of the docstring.
    """
    console = Console(file=io.StringIO(), width=10_000, color_system=None)
    with console.capture() as captured:
        console.print(description or "", end="", markup=False, highlight=False)
    lines = "\n".join(line.rstrip() for line in captured.get().splitlines())
    parts = lines.split(ends) if ends else [lines]
    return [" ".join(part.split()) for part in parts]
