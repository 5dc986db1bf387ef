"""The help of every command: at most 80 columns, no ragged lines, one example that parses."""

import re
import shlex
from itertools import pairwise

import pytest
from cyclopts.exceptions import CycloptsError

from boxmend.cli import COMMANDS, GROUPS, command_line, run
from boxmend.cli.bench import app as bench_app
from tests import ROOT

BENCH_COMMANDS = tuple(name for name in bench_app if not name.startswith("-"))
COMMAND_LINES = [
    *((name,) for name in COMMANDS),
    *(("bench", name) for name in BENCH_COMMANDS),
]
MAX_COLUMNS = 80


def help_of(capsys: pytest.CaptureFixture[str], *tokens: str) -> str:
    assert run([*tokens, "--help"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def ragged_lines(text: str) -> list[str]:
    """Return lines that end early although the first word of the next line would fit."""
    lines = text.splitlines()
    ragged = []
    for line, following in pairwise(lines):
        is_prose = line.startswith("      ") or not line.startswith(" ")
        indents = [len(row) - len(row.lstrip()) for row in (line, following)]
        is_continued = bool(line and following) and indents[0] == indents[1] and is_prose
        if is_continued and not line.endswith((";", ":")):
            first_part = re.split(r" (?!%|[^\[]*\])", following.strip(), maxsplit=1)[0]
            if len(line) + 1 + len(first_part) <= MAX_COLUMNS:
                ragged.append(line)
    return ragged


@pytest.mark.parametrize("tokens", [(), *COMMAND_LINES], ids=" ".join)
def test_help_fits_80_columns_without_ragged_lines(
    tokens: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, *tokens)
    assert [line for line in text.splitlines() if len(line) > MAX_COLUMNS] == []
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert ragged_lines(text) == []


@pytest.mark.parametrize("tokens", COMMAND_LINES, ids=" ".join)
def test_help_has_one_example_that_parses(
    tokens: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    examples = re.findall(r"^Example: (.*)$", help_of(capsys, *tokens), re.MULTILINE)
    assert len(examples) == 1
    program, *arguments = shlex.split(examples[0])
    assert program == "boxmend"
    assert tuple(arguments[: len(tokens)]) == tokens
    command_line().parse_args(arguments, exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_stays_whole_after_another_command_line(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = help_of(capsys, command)
    assert run(["no-such-command"]) == 2
    capsys.readouterr()
    assert help_of(capsys, command) == before
    assert "\nExample: boxmend" in before


def test_an_example_with_an_unknown_flag_does_not_parse() -> None:
    with pytest.raises(CycloptsError):
        command_line().parse_args(
            ["check", "data.yaml", "--no-such"], exit_on_error=False, print_error=False
        )


def test_ragged_lines_are_noticed() -> None:
    assert ragged_lines("      short line\n      goes on\n") == ["      short line"]
    assert ragged_lines("      " + "long " * 14 + "words\n      goes on\n") == []


def test_the_main_help_lists_every_command_in_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    panels = dict(re.findall(r"^(\w.*):\n((?:  \w.*\n)+)", help_of(capsys), re.MULTILINE))
    for title, commands in GROUPS.items():
        assert re.findall(r"^  (\w+)", panels[title], re.MULTILINE) == list(commands)


def test_the_main_help_starts_with_the_three_commands_of_the_readme(
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = (ROOT / "README.md").read_text()
    block = readme.split("```sh\n")[1].split("```")[0]
    commands = [line.split(" #")[0].strip() for line in block.splitlines()]
    assert re.findall(r"^  (boxmend .*)$", help_of(capsys), re.MULTILINE) == commands
    assert len(commands) == 3


@pytest.mark.parametrize("tokens", COMMAND_LINES, ids=" ".join)
def test_commands_that_print_results_have_a_json_option(
    tokens: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ("--json" in help_of(capsys, *tokens)) == (tokens != ("bench",))
