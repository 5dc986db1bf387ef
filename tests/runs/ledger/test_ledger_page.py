"""The page about the ledger names its columns, all of them, in their order."""

import re

from boxmend.runs.ledger import COLUMNS, Judgement
from tests import ROOT

PAGE = (ROOT / "docs" / "ledger.md").read_text()


def test_the_page_explains_every_column_in_order() -> None:
    section = PAGE.split("## Columns")[1].split("##")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    named = [re.findall(r"`(\w+)`", cell) for cell in cells]
    expected: list[str] = []
    for cell, names in zip(cells, named, strict=True):
        if ".." in cell:
            first, last = COLUMNS.index(names[0]), COLUMNS.index(names[1])
            expected += COLUMNS[first : last + 1]
        else:
            expected += names
    assert tuple(expected) == COLUMNS


def test_the_page_names_every_verdict() -> None:
    (row,) = re.findall(r"^\| `verdict` \| (.*) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`([a-z]+)`", row)) == {one.name.lower() for one in Judgement}
