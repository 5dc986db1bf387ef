"""What the page about the method names: functions, tests, settings and equations that exist."""

import ast
import pkgutil
import re
from pathlib import Path
from types import ModuleType

import pytest

from boxmend.methods.table import METHODS
from boxmend.runs.settings import TrainSettings
from tests import ROOT

PAGE = (ROOT / "docs" / "method.md").read_text()
TEXT = " ".join(PAGE.split())  # a name may go on in the next line
ROOMS = "detector|methods|runs|training"
EQUATIONS = PAGE[PAGE.index("## Equations") : PAGE.index("## Algorithm 1")]
ROWS = [line.split("|") for line in EQUATIONS.splitlines() if re.match(r"\| \d", line)]
FUNCTIONS = sorted(set(re.findall(rf"`((?:{ROOMS})(?:\.\w+)+)`", PAGE)))
TESTS = sorted(set(re.findall(r"`(test_\w+\.py)`: \*([^*]+)\*", TEXT)))
SETTINGS = sorted(
    set(re.findall(r"`((?:published|mend|optimisation)\.\w+)[` ]", PAGE))
    | set(re.findall(r"`(--[a-z.-]+)[` ]", PAGE))
)


def functions_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_named_exists_and_is_written_in_that_module(name: str) -> None:
    result = pkgutil.resolve_name(f"boxmend.{name}")
    assert not isinstance(result, ModuleType)
    if callable(result):
        assert f"boxmend.{name}".startswith(f"{result.__module__}.")


@pytest.mark.parametrize(("file", "sentence"), TESTS)
def test_a_test_that_is_named_exists(file: str, sentence: str) -> None:
    (path,) = (ROOT / "tests").rglob(file)
    assert f"test_{sentence.replace(' ', '_')}" in functions_in(path)


@pytest.mark.parametrize("written", SETTINGS)
def test_a_setting_that_is_named_exists(written: str) -> None:
    settings = TrainSettings()
    known = set(vars(settings))
    for part in ("published", "mend", "optimisation"):
        known |= {f"{part}.{name}" for name in vars(getattr(settings, part))}
    assert written.removeprefix("--").replace("-", "_") in known


def test_nothing_is_named_in_a_way_that_these_tests_overlook() -> None:
    assert len(re.findall(r"test_\w+\.py", PAGE)) == len(
        re.findall(r"`test_\w+\.py`: \*[^*]+\*", TEXT)
    )
    spans = re.findall(r"`([a-z_]\w*(?:\.\w+)+)[` ]", PAGE.replace(".py`", ""))
    assert set(spans) == set(FUNCTIONS) | {name for name in SETTINGS if name[0] != "-"}
    assert len(FUNCTIONS) > 30


def test_every_equation_has_a_function_and_a_proof_by_its_number() -> None:
    numbers = [int(number) for row in ROWS for number in re.findall(r"\d+", row[1])]
    assert numbers == list(range(1, 20))
    for _, number, says, function, proof, _ in ROWS:
        assert says.strip()
        assert "`" in function or function.strip() == "the same call", number
        assert "test_" in proof or proof.strip().startswith("the same"), number


def test_every_method_is_explained() -> None:
    variants = PAGE[PAGE.index("## Variants") : PAGE.index("## What `mend` changes")]
    named = set(re.findall(r"^\| `([a-z-]+)`", variants, re.MULTILINE))
    peers = {page.stem for page in (ROOT / "docs" / "methods").glob("*.md")} - {"index"}
    assert named | peers == set(METHODS) - {"mend"}
    assert not named & peers


def test_every_setting_of_the_published_method_is_named_or_is_no_question_of_the_paper() -> None:
    published = TrainSettings().published
    named = set(re.findall(r"`published\.(\w+)`", PAGE))
    silent = {"gamma", "num_candidates", "record_losses"}
    assert named | silent >= set(vars(published))


def test_every_link_is_defined_and_leads_to_the_file_of_what_it_names() -> None:
    files = dict(re.findall(r"^\[(\w+)\]: (\S+)$", PAGE, re.MULTILINE))
    used = re.findall(r"\[`([\w.]+)`\]\[(\w+)\]", PAGE)
    assert {link for _, link in used} == set(files)
    for name, link in used:
        path = (ROOT / "docs" / files[link]).resolve()
        module = path.relative_to(ROOT / "src" / "boxmend").with_suffix("")
        assert name.startswith(".".join(module.parts) + "."), name
