"""The tutorials: their code runs, gives the stored outputs, and becomes pages of the site."""

import base64
import io
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import ROOT

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))
MAX_NOTEBOOK_BYTES = 300_000
NUMBER = r"\d+(?:\.\d+)?(?:e-\d+)?"
PIXEL = base64.b64encode(b"\x89PNG, more or less").decode()
IDS = [path.stem for path in TUTORIALS]


@pytest.fixture
def running() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "tools/run_notebooks.py"))


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return runpy.run_path(str(ROOT / "tools/site_pages.py"))


def code_cell(source: str, *outputs: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": source.splitlines(keepends=True),
        "metadata": metadata,
        "outputs": list(outputs),
        "execution_count": None,
    }


def stored_texts(cell: dict[str, Any]) -> list[str]:
    """Return what a cell printed and showed as text, and that it showed a picture."""
    texts = []
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text")})
        pictures = [kind for kind in data if kind.startswith("image/")]
        texts += ["picture"] if pictures else ["".join(text) for text in data.values()]
    return texts


def test_the_four_tutorials_exist() -> None:
    assert IDS == ["find-and-fix", "mend-yolo", "review-together", "train-on-noise"]


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=IDS)
def test_a_tutorial_gives_its_stored_outputs(path: Path, running: dict[str, Any]) -> None:
    if path.stem == "mend-yolo":
        pytest.importorskip("ultralytics", reason="needs boxmend[ultralytics]")
    notebook = running["read_notebook"](path)
    again = running["execute"](notebook)
    cells = zip(running["code_cells"](notebook), running["code_cells"](again), strict=True)
    for cell, new_cell in cells:
        may_vary = running["TAG_OF_VARYING_OUTPUT"] in cell["metadata"].get("tags", ())
        assert_alike(cell, new_cell, compares_numbers=not may_vary)
    if path.stem == "train-on-noise":
        assert_that_mend_is_ahead(running["code_cells"](again))


def assert_alike(cell: dict[str, Any], new_cell: dict[str, Any], compares_numbers: bool) -> None:
    """Compare outputs; numbers may differ a little, since processors round differently."""
    what = "".join(cell["source"]) + "\n(`make tutorials` stores new outputs)"
    texts, new_texts = ("\n".join(stored_texts(one)) for one in (cell, new_cell))
    assert re.sub(NUMBER, "0", new_texts) == re.sub(NUMBER, "0", texts), what
    if compares_numbers:
        numbers = [float(number) for number in re.findall(NUMBER, texts)]
        new_numbers = [float(number) for number in re.findall(NUMBER, new_texts)]
        assert new_numbers == pytest.approx(numbers, rel=0.02, abs=0.01), what


def assert_that_mend_is_ahead(cells: list[dict[str, Any]]) -> None:
    texts = "".join(text for cell in cells for text in stored_texts(cell))
    scores = dict(re.findall(r"(baseline|mend) +AP50 ([\d.]+)", texts))
    assert float(scores["mend"]) > float(scores["baseline"]) + 0.1
    shares = dict(re.findall(r"(noisy|mended) +(\d+)% wrong labels", texts))
    assert int(shares["mended"]) < int(shares["noisy"]) - 5


@pytest.mark.parametrize("path", TUTORIALS, ids=IDS)
def test_a_tutorial_has_outputs_pictures_and_no_paths_of_a_machine(path: Path) -> None:
    assert path.stat().st_size < MAX_NOTEBOOK_BYTES
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["cells"][0]["source"][0].startswith("# ")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    pictures = [cell for cell in cells if "picture" in stored_texts(cell)]
    assert len(pictures) >= 2
    assert all(len(cell["metadata"]["alt"]) > 20 for cell in pictures)
    assert [text for cell in cells for text in stored_texts(cell) if "/tmp" in text] == []


def test_outputs_with_other_words_or_numbers_differ() -> None:
    def cell(text: str) -> dict[str, Any]:
        return code_cell("x", {"output_type": "stream", "text": [text]})

    assert_alike(cell("63 of 260, 5.5e-07"), cell("64 of 260, 0.0001"), compares_numbers=True)
    assert_alike(cell("63 of 260"), cell("3 of 2"), compares_numbers=False)
    for other in ("63 of 270", "63 or 260", "63 of 260, 1"):
        with pytest.raises(AssertionError, match="make tutorials"):
            assert_alike(cell("63 of 260"), cell(other), compares_numbers=True)


def test_cells_share_names_print_and_show_their_last_value(running: dict[str, Any]) -> None:
    sources = ["x = 2\nprint('x is', x)\nx + 1", "x;", "import sys\nsys.stderr.write('a\\nb')", "x"]
    assert running["run_cells"](sources) == [
        [
            {"output_type": "stream", "name": "stdout", "text": ["x is 2\n"]},
            {"output_type": "execute_result", "data": {"text/plain": ["3"]}, "metadata": {}},
        ],
        [],
        [
            {"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]},
            {"output_type": "execute_result", "data": {"text/plain": ["3"]}, "metadata": {}},
        ],
        [{"output_type": "execute_result", "data": {"text/plain": ["2"]}, "metadata": {}}],
    ]


def test_a_value_is_shown_as_html_or_as_a_picture_if_it_has_one(running: dict[str, Any]) -> None:
    sources = [
        "class A:\n    def _repr_html_(self):\n        return '<b>\\n</b>'\nA()",
        "class B(str):\n    _repr_html_ = staticmethod(lambda: None)\nB('b')",
        "from PIL import Image\nImage.new('L', (2, 3))",
    ]
    html, text, picture = [output["data"] for (output,) in running["run_cells"](sources)]
    assert html == {"text/html": ["<b>\n", "</b>"]}
    assert text == {"text/plain": ["'b'"]}
    assert list(picture) == ["image/png"]
    assert open_picture(picture["image/png"]).size == (2, 3)


def test_a_picture_is_stored_as_jpeg_if_that_saves_half(running: dict[str, Any]) -> None:
    source = "from PIL import Image\nImage.effect_noise((60, 40), 20).convert('RGB')"
    ((output,),) = running["run_cells"]([source])
    picture = open_picture(output["data"]["image/jpeg"])
    assert (picture.size, picture.format) == ((60, 40), "JPEG")


def open_picture(encoded: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(encoded)))


def test_a_notebook_runs_in_a_folder_of_its_own_and_keeps_its_source(
    running: dict[str, Any],
) -> None:
    cells = [code_cell("!echo one > file\n!cat \\\n  file; ls"), code_cell("open('file').read()")]
    notebook = {"cells": [{"cell_type": "markdown", "source": ["# T"]}, *cells]}
    again = running["execute"](notebook)
    assert [stored_texts(cell) for cell in again["cells"][1:]] == [["one\nfile\n"], ["'one\\n'"]]
    assert [cell["execution_count"] for cell in again["cells"][1:]] == [1, 2]
    assert [cell["source"] for cell in again["cells"]] == [c["source"] for c in notebook["cells"]]
    assert [cell["outputs"] for cell in cells] == [[], []]
    assert not Path("file").exists()


@pytest.mark.parametrize("source", ["1 / 0", "!echo no; exit 3"])
def test_a_cell_that_fails_is_an_error_with_its_reason(
    running: dict[str, Any], source: str
) -> None:
    with pytest.raises(RuntimeError, match=r"ZeroDivisionError|exit status 3: echo no; exit 3"):
        running["execute"]({"cells": [code_cell("x = 1"), code_cell(source)]})


def test_a_notebook_is_written_as_jupyter_does(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    notebook = {"nbformat": 4, "metadata": {}, "cells": [code_cell("print('é')")]}
    path.write_text(json.dumps(notebook))
    program = [sys.executable, str(ROOT / "tools/run_notebooks.py"), str(path)]
    subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
    text = path.read_text(encoding="utf-8")
    assert re.findall(r'^( *)"(\w+)":', text, re.MULTILINE)[:4] == [
        (" ", "cells"),
        ("   ", "cell_type"),
        ("   ", "execution_count"),
        ("   ", "metadata"),
    ]
    assert '"é\\n"' in text
    assert text.endswith("}\n")


def test_a_notebook_becomes_a_page_with_files_for_its_pictures(
    tmp_path: Path, pages: dict[str, Any]
) -> None:
    docs, out = tmp_path / "docs", tmp_path / "out"
    (docs / "more").mkdir(parents=True)
    (docs / "index.md").write_text("[a](more/a.ipynb#part) [b](https://x/b.ipynb) `c.ipynb`\n")
    result = {"output_type": "execute_result", "metadata": {}}
    table = {"text/html": ["<style scoped>\n", "th {}</style>", '<table border="1">\n', "</table>"]}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# A\n", "[b](b.ipynb)"]},
        code_cell(
            "!boxmend \\\n  info\n!ls", {"output_type": "stream", "text": ["one\n", "two\n"]}
        ),
        code_cell("x", {**result, "data": {"image/png": PIXEL}}, alt="A pixel"),
        code_cell("y", {**result, "data": table}),
        code_cell("z", {**result, "data": {"text/plain": ["3"]}}),
    ]
    (docs / "more/a.ipynb").write_text(json.dumps({"cells": cells}))
    (out / "old").mkdir(parents=True)
    pages["write_pages"](docs, out)
    assert not (out / "old").exists()
    assert (out / "index.md").read_text() == (
        "[a](more/a.md#part) [b](https://x/b.ipynb) `c.ipynb`\n"
    )
    assert (out / "more/a-1.png").read_bytes() == base64.b64decode(PIXEL)
    assert (out / "more/a.ipynb").exists()
    assert (out / "more/a.md").read_text().split("\n\n") == [
        "# A\n[b](b.md)",
        "*This page is a notebook: [a.ipynb](a.ipynb).*",
        "```sh\nboxmend \\\n  info\nls\n```",
        "```text\none\ntwo\n```",
        "```python\nx\n```",
        "![A pixel](a-1.png)",
        "```python\ny\n```",
        '<div style="overflow-x: auto">\n<table>\n</table>\n</div>',
        "```python\nz\n```",
        "```text\n3\n```\n",
    ]
