"""What the pages about the peers name: functions, tests and settings that exist."""

import pkgutil
import re
from dataclasses import is_dataclass

import pytest

from boxmend.methods.table import METHODS
from boxmend.runs.settings import TrainSettings
from boxmend.runs.settings.presets import PAPER_METHODS
from tests import ROOT
from tests.test_method_page import functions_in

PAGES = {page.stem: page.read_text() for page in (ROOT / "docs" / "methods").glob("*.md")}
PEERS = sorted(set(METHODS) - PAPER_METHODS - {"baseline", "mend"})


def list_names(pattern: str) -> list[tuple[str, str]]:
    """All that a pattern finds on the pages, with the page."""
    return [
        (name, result)
        for name, text in sorted(PAGES.items())
        for result in sorted(set(re.findall(pattern, " ".join(text.split()))))
    ]


def test_every_peer_has_a_page_that_says_whose_method_it_is_and_what_is_ours() -> None:
    assert set(PAGES) == {*PEERS, "index"}
    for name in PEERS:
        assert f"`--method {name}` is a re-implementation" in PAGES[name]
        assert "\n## What is ours\n" in PAGES[name]
        assert "\n## What it costs\n" in PAGES[name]
        assert f"({name}.md)" in PAGES["index"]


@pytest.mark.parametrize(("page", "name"), list_names(r"`((?:detector|methods)(?:\.\w+)+)`"))
def test_what_is_named_exists(page: str, name: str) -> None:
    assert pkgutil.resolve_name(f"boxmend.{name}"), page


@pytest.mark.parametrize(("page", "file"), list_names(r"`(test_\w+\.py)`"))
def test_a_file_of_tests_that_is_named_exists(page: str, file: str) -> None:
    assert len(list((ROOT / "tests").rglob(file))) == 1, page


def test_a_test_that_is_named_exists() -> None:
    proofs = list_names(r"`test_\w+\.py`: \*[^*]+\*")
    assert len(proofs) > 10
    for page, proof in proofs:
        file, sentence = proof.removeprefix("`").removesuffix("*").split("`: *")
        (path,) = (ROOT / "tests").rglob(file)
        listed = {name.lower() for name in functions_in(path)}
        assert f"test_{sentence.replace(' ', '_')}".lower() in listed, page


@pytest.mark.parametrize(("page", "option"), list_names(r"`--([a-z][a-z.-]*)"))
def test_an_option_that_is_named_exists(page: str, option: str) -> None:
    settings = TrainSettings()
    known = {"val", "out", "most", *vars(settings)}
    for part, value in vars(settings).items():
        if is_dataclass(value):
            known |= {f"{part}.{name}" for name in vars(value)}
    assert option.replace("-", "_") in known, page


def test_the_sources_are_named_where_the_methods_are() -> None:
    for name in PEERS:
        path = ROOT / "src/boxmend/methods/peers" / f"{name.replace('-', '_')}.py"
        opening = path.read_text().split('"""')[1]
        assert "re-implementation" in opening, name
        assert re.search(r"\b(19|20)\d\d\b", opening), name
