"""Write the pages of the site: those of docs/, with each notebook as a Markdown page.

    python tools/site_pages.py build/docs

`make docs` calls this. The pictures in the outputs of a notebook become files beside its page. The
alternative text of a picture is in the metadata of its cell, under `alt`.
"""

import base64
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from run_notebooks import COMMAND, read_notebook

ROOT = Path(__file__).resolve().parent.parent
EXTENSIONS = {"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg"}
LINK_TO_NOTEBOOK = re.compile(r"(\]\((?!https?:)[^)#\s]+)\.ipynb(#[^)\s]*)?\)")


def write_pages(docs: Path, out: Path) -> None:
    """Copy a folder of pages to OUT, which is replaced, and add a page for each notebook."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(docs, out)
    for page in sorted(out.rglob("*.md")):
        page.write_text(_link_pages(page.read_text(encoding="utf-8")), encoding="utf-8")
    for path in sorted(out.rglob("*.ipynb")):
        text, pictures = render(read_notebook(path), path.stem)
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        for name, content in pictures.items():
            (path.parent / name).write_bytes(content)


def render(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_link_pages(source))
            if len(parts) == 1:
                parts.append(f"*This page is a notebook: [{name}.ipynb]({name}.ipynb).*")
            continue
        parts.append(_render_code(source))
        for output in cell["outputs"]:
            parts.extend(_render_output(output, cell["metadata"], name, pictures))
    return "\n\n".join(parts) + "\n", pictures


def _link_pages(text: str) -> str:
    return LINK_TO_NOTEBOOK.sub(r"\1.md\2)", text)


def _render_code(source: str) -> str:
    """Return a block of Python, or of shell commands if the cell has nothing else."""
    if not COMMAND.sub("", source).strip():
        return "```sh\n" + COMMAND.sub(r"\1", source) + "\n```"
    return f"```python\n{source}\n```"


def _render_output(
    output: dict[str, Any], metadata: dict[str, Any], name: str, pictures: dict[str, bytes]
) -> Iterator[str]:
    """Yield the Markdown of an output; add its picture to `pictures`."""
    if output["output_type"] == "stream":
        yield _fence(output["text"])
        return
    for kind, content in output["data"].items():
        if kind in EXTENSIONS:
            file = f"{name}-{len(pictures) + 1}{EXTENSIONS[kind]}"
            is_text = kind == "image/svg+xml"
            pictures[file] = "".join(content).encode() if is_text else base64.b64decode(content)
            yield f"![{metadata['alt']}]({file})"
        elif kind == "text/html":
            lines = [line for line in _unstyle("".join(content)).split("\n") if line.strip()]
            yield '<div style="overflow-x: auto">\n' + "\n".join(lines) + "\n</div>"
        else:
            yield _fence(content)


def _unstyle(html: str) -> str:
    """Return HTML without the styles of pandas, so that the site formats its tables."""
    without_styles = re.sub(r"<style.*?</style>", "", html, flags=re.DOTALL)
    return re.sub(r"<(table|tr)\b[^>]*>", r"<\1>", without_styles)


def _fence(lines: list[str]) -> str:
    return "```text\n" + "".join(lines).rstrip("\n") + "\n```"


if __name__ == "__main__":
    write_pages(ROOT / "docs", Path(sys.argv[1]))
