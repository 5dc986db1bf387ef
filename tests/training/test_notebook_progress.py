"""The progress of a training below the cell of a notebook."""

import io
import sys
from types import ModuleType
from typing import Any

import pytest
import rich.console
from rich.console import Console

from boxmend.training import progress
from boxmend.training.progress import show_in_notebook


class Notebook:
    """What IPython.display is used for: displays, and updates of them."""

    def __init__(self) -> None:
        self.shown: list[Any] = []
        self.updates: list[str] = []

    def display(self, content: Any, **options: Any) -> "Notebook":
        self.shown.append((content, options))
        return self

    def update(self, content: Any) -> None:
        self.updates.append(text_of(content))


def text_of(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made, module = Notebook(), ModuleType("IPython.display")
    module.display = made.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(progress, "monotonic", iter(range(100)).__next__)
    return made


def test_a_notebook_has_one_panel_that_is_updated(notebook: Notebook) -> None:
    show = show_in_notebook(4)
    assert show is not None
    show({"plan": {"epochs": 4, "steps": 40}})
    show({"step": 10, "epoch": 1, "loss": 1.5})
    show({"note": "one image is unreadable"})
    show({"summary": {"steps": 40}})
    (panel, options), note = notebook.shown
    assert options == {"display_id": True}
    assert "text/html" in panel._repr_mimebundle_((), ())  # which notebooks show
    assert note == ({"text/plain": "one image is unreadable"}, {"raw": True})
    assert "step 10 of 40" in notebook.updates[-1]
    assert "loss 1.500" in notebook.updates[-1]


def test_a_panel_is_updated_at_most_twice_a_second(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "monotonic", iter(k / 10 for k in range(100)).__next__)
    show = show_in_notebook(1)
    assert show is not None
    for step in range(20):
        show({"step": step})
    assert 1 < len(notebook.updates) < 10
    show({"summary": {}})
    assert "step 19" in notebook.updates[-1]


def test_outside_of_notebooks_nothing_is_shown() -> None:
    assert show_in_notebook(4) is None
