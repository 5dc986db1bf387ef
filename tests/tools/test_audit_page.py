"""docs/audit-suite.md and its chart are what their tool writes from results/audit-suite.json."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

TOOLS = ROOT / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tool as it is when it is called."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return runpy.run_path(str(TOOLS / "audit_page.py"))


def test_the_page_and_its_chart_are_made_of_the_figures(tool: dict[str, Any]) -> None:
    for path, content in tool["pages"](ROOT).items():
        assert (ROOT / path).read_bytes() == content, f"run python tools/audit_page.py for {path}"


def test_the_summary_counts_what_is_broken(tool: dict[str, Any], tmp_path: Path) -> None:
    figures = json.loads((ROOT / "results" / "audit-suite.json").read_bytes())
    tables = figures["tables"]
    for row in tables["ranking"]:
        row["verdict"] = "best"
    tables["ranking"][3]["verdict"] = "behind"
    for row in tables["promise"]:
        row["verdict"] = "too few"
    tables["promise"][0] |= {"verdict": "broken", "precision": 0.95, "regime": "symmetric-3"}
    tables["promise"][1]["verdict"] = "held"
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "audit-suite.json").write_text(json.dumps(figures))
    page = next(iter(tool["pages"](tmp_path).values())).decode()
    number = len(tables["ranking"])
    assert f"best or equal in {number - 1} of {number} rankings; behind: " in page
    assert "held in 1 of 2 cases; broken: symmetric-3 at 0.95." in page
