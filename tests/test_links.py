"""The links of README and documentation lead to files and headings that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(DOCS.rglob("*.ipynb")),
]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)")


def read_text(page: Path) -> str:
    """Return the text of a page, or of the Markdown cells of a notebook, without code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings: lower case, with dashes for spaces, without signs."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", words).strip().lower().replace(" ", "-") for words in headings}


def dead_links(page: Path) -> list[str]:
    """Return the links of a page to a file or a heading that does not exist."""
    dead = []
    for file, anchor in LINK.findall(read_text(page)):
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(read_text(target))):
            dead.append(f"{file}#{anchor}" if anchor else file)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    text = "# A, b & `c`\n[a](page.md#a-b--c) [b](#b) [c](none.md) [d](none.md#d) [e](https://e)\n"
    (tmp_path / "page.md").write_text(text + "```\n# B\n[in code](none.md)\n```\n")
    assert dead_links(tmp_path / "page.md") == ["#b", "none.md", "none.md#d"]


def test_a_dead_link_of_a_notebook_is_found(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "[a](#title) [b](none.md)"]},
        {"cell_type": "code", "source": ["x[0](1)"]},
    ]
    (tmp_path / "page.ipynb").write_text(json.dumps({"cells": cells}))
    assert dead_links(tmp_path / "page.ipynb") == ["none.md"]


def test_the_menu_of_the_site_has_four_parts_and_every_page_once() -> None:
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    assert [next(iter(part)) for part in menu] == [
        "Start",
        "Tutorials",
        "How-to guides",
        "Reference",
    ]
    pages = [str(page.relative_to(DOCS).with_suffix(".md")) for page in PAGES[2:]]
    assert sorted(list_pages(menu)) == sorted(pages)


def test_the_front_page_links_to_every_page_but_those_of_single_methods() -> None:
    linked = {file for file, _ in LINK.findall(read_text(DOCS / "index.md"))}
    pages = {str(page.relative_to(DOCS)) for page in PAGES[2:]}
    methods = {page for page in pages if page.startswith("methods/")} - {"methods/index.md"}
    assert pages - linked - methods == {"index.md"}


def list_pages(part: Any) -> list[str]:
    """Return the pages of a part of the menu."""
    if isinstance(part, str):
        return [part]
    entries = part.values() if isinstance(part, dict) else part
    return [page for entry in entries for page in list_pages(entry)]
