"""The runner of mutants, on a tiny package; and the committed lists, which fit the source."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

TOOL = ROOT / "tools" / "mutants.py"

SOURCE = """def larger(a, b):
    if a == b:
        return a
    return a if a > b else b
"""
TESTS = """import os
import pytest
from boxmend.sums import larger

def test_larger():
    assert larger(1, 2) == 2

@pytest.mark.slow
def test_slow():
    assert larger(2, 1) == 2
"""
KILLED = ("return a if a > b", "return a if a < b", "")
SURVIVING = ("if a == b", "if a == 3", "")
HANGING = ("return a if a > b else b", "while a != b: pass", "")


def project(folder: Path, *mutants: tuple[str, str, str], test: str = "test_sums.py") -> Path:
    """A project with one source file, one test file, and these mutants as old, new, reason."""
    entries = [
        f'[[mutant]]\nfile = "sums.py"\nold = "{old}"\nnew = "{new}"\ntests = ["tests/{test}"]\n'
        + (f'survives = "{reason}"\n' if reason else "")
        for old, new, reason in mutants
    ]
    for name, text in {
        "src/boxmend/__init__.py": "",
        "src/boxmend/sums.py": SOURCE,
        "tests/test_sums.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow: takes long"]\n',
        "tools/mutants/sums.toml": "\n".join(entries),
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def run(root: Path, *arguments: str) -> tuple[int, str]:
    options = ["--root", str(root), "--preload", "pytest,xdist", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(TOOL), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    return done.returncode, done.stdout + done.stderr


def test_survivors_are_printed_and_the_tree_stays_as_it_was(tmp_path: Path) -> None:
    root = project(tmp_path, KILLED, SURVIVING)
    before = {path: path.read_bytes() for path in root.rglob("*.py")}
    status, text = run(root)
    assert status == 1
    assert "survived: sums/sums.py: if a == b -> if a == 3" in text
    assert "2 mutants: 1 killed, 1 survived, 0 explained, 0 not run; 50.0% killed" in text
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}.keys() == {
        *before,
        root / "pyproject.toml",
        root / "tools/mutants/sums.toml",
    }
    assert all(path.read_bytes() == data for path, data in before.items())


def test_explained_survivors_are_no_failure_unless_they_are_too_many(tmp_path: Path) -> None:
    explained = (*SURVIVING[:2], "equal values are the same")
    root = project(tmp_path, explained, KILLED)
    status, text = run(root, "--only", "if a == b")
    assert status == 0
    assert "explained: sums/sums.py: if a == b -> if a == 3 (equal values are the same)" in text
    assert run(root)[0] == 1  # 50 % are killed


def test_only_killed_mutants_are_a_success(tmp_path: Path) -> None:
    status, text = run(project(tmp_path, KILLED), "--jobs", "1")
    assert status == 0, text
    assert "1 mutants: 1 killed, 0 survived, 0 explained, 0 not run; 100.0% killed" in text


def test_tests_that_fail_without_a_mutant_end_the_run(tmp_path: Path) -> None:
    root = project(tmp_path, KILLED)
    (root / "tests/test_sums.py").write_text(TESTS.replace("== 2", "== 5"))
    status, text = run(root)
    assert status == 1
    assert "tests/test_sums.py fails on the unchanged source" in text
    assert "killed" not in text


def test_a_mutant_whose_tests_are_all_slow_is_an_error(tmp_path: Path) -> None:
    status, text = run(project(tmp_path, KILLED, test="test_sums.py::test_slow"))
    assert status == 1
    assert "1 not run" in text


@pytest.mark.parametrize(
    ("mutant", "test", "problem"),
    [
        (("return a", "return b", ""), "test_sums.py", "the text occurs 2 times in sums.py"),
        (("return c", "return b", ""), "test_sums.py", "the text occurs 0 times in sums.py"),
        (("if a == b", "if a == b", ""), "test_sums.py", "changes nothing"),
        (KILLED, "test_gone.py", "no such tests: tests/test_gone.py"),
    ],
)
def test_outdated_entries_are_errors(
    tmp_path: Path, mutant: tuple[str, str, str], test: str, problem: str
) -> None:
    status, text = run(project(tmp_path, mutant, test=test))
    assert status == 1
    assert problem in text


def test_a_mutant_that_never_ends_is_killed(tmp_path: Path) -> None:
    status, text = run(project(tmp_path, HANGING), "--timeout", "3")
    assert status == 0, text
    assert "1 killed" in text


def test_all_committed_mutants_fit_the_source() -> None:
    tool: dict[str, Any] = runpy.run_path(str(TOOL))
    mutants = tool["read_mutants"](ROOT / "tools" / "mutants")
    assert len(mutants) > 0
    assert tool["find_outdated"](mutants, ROOT) == []
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in mutants}) == len(mutants)


def test_no_committed_mutant_uses_an_undefined_name(tmp_path: Path) -> None:
    """A NameError would fail any test, also one that does not notice the change."""
    tool: dict[str, Any] = runpy.run_path(str(TOOL))
    mutants = tool["read_mutants"](ROOT / "tools" / "mutants")
    for number, one in enumerate(mutants):
        text = (ROOT / "src/boxmend" / one.file).read_text("utf-8")
        (tmp_path / f"m{number:04}.py").write_text(text.replace(one.old, one.new), "utf-8")
    command = ["ruff", "check", "--isolated", "--no-cache", "--select", "F821"]
    command += ["--output-format", "concise", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, timeout=300
    )
    problems = [line for line in done.stdout.splitlines() if ".py:" in line]
    names = [mutants[int(Path(line.split(":")[0]).stem[1:])].name for line in problems]
    assert names == []
    assert done.returncode == 0, done.stdout + done.stderr
