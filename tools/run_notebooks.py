"""Execute notebooks and store their outputs.

    python tools/run_notebooks.py docs/tutorials/*.ipynb

Each notebook runs in a process and in an empty folder of its own. As in Jupyter, a line that starts
with `!` is a shell command, and the value of the last line is shown. The outputs contain what a
cell prints, and the value as HTML, as a picture or as text, whichever comes first.

The tests execute the notebooks again and compare texts with the stored ones. A cell whose output
differs between machines, such as a training, has the tag `varies`. One thread computes, since the
number of threads changes how sums are rounded.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

TAG_OF_VARYING_OUTPUT = "varies"
ENCODERS = {  # what makes an output, by the type of the output; the first available one is used
    "text/html": "_repr_html_",
    "image/svg+xml": "_repr_svg_",
    "image/png": "_repr_png_",
    "image/jpeg": "_repr_jpeg_",
}
COMMAND = re.compile(r"^!((?:\\\n|.)*)", re.MULTILINE)
JPEG_QUALITY = 85
Notebook = dict[str, Any]
Output = dict[str, Any]


def read_notebook(path: Path) -> Notebook:
    """Return the JSON of a notebook."""
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def write_notebook(path: Path, notebook: Notebook) -> None:
    """Write a notebook with the indentation and the order of keys that Jupyter uses."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def code_cells(notebook: Notebook) -> list[dict[str, Any]]:
    """Return the cells of a notebook that have code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def execute(notebook: Notebook) -> Notebook:
    """Return a copy of a notebook with new outputs; raise a RuntimeError if a cell fails."""
    copied: Notebook = json.loads(json.dumps(notebook))
    cells = code_cells(copied)
    sources = ["".join(cell["source"]) for cell in cells]
    commands = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--cells"],
            input=json.dumps(sources),
            capture_output=True,
            encoding="utf-8",
            cwd=folder,
            env={**os.environ, "PATH": commands, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"},
        )
    if answer.returncode:
        raise RuntimeError(answer.stderr.strip())
    for number, (cell, outputs) in enumerate(
        zip(cells, json.loads(answer.stdout), strict=True), start=1
    ):
        cell["outputs"] = [
            {**output, "execution_count": number}
            if output["output_type"] == "execute_result"
            else output
            for output in outputs
        ]
        cell["execution_count"] = number
    return copied


def run_cells(sources: list[str]) -> list[list[Output]]:
    """Execute cells one after another in one namespace; return the outputs of each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [list(_run_cell(source, names, number)) for number, source in enumerate(sources, 1)]


def _run_cell(source: str, names: dict[str, Any], number: int) -> Iterator[Output]:
    names["_run_command"] = _run_command
    tree = ast.parse(_replace_commands(source), f"<cell {number}>")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        exec(compile(tree, f"<cell {number}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    if text := printed.getvalue():
        yield {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    if value is not None and not source.rstrip().endswith(";"):
        yield {"output_type": "execute_result", "data": _represent(value), "metadata": {}}


def _replace_commands(source: str) -> str:
    """Return a cell with calls for its shell commands; a backslash continues a command."""
    return COMMAND.sub(lambda found: f"_run_command({found[1]!r})", source)


def _run_command(command: str) -> None:
    answer = subprocess.run(
        command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    print(answer.stdout, end="")
    if answer.returncode:
        raise RuntimeError(f"exit status {answer.returncode}: {command}\n{answer.stdout}")


def _represent(value: object) -> dict[str, str | list[str]]:
    for kind, name in ENCODERS.items():
        encode = getattr(value, name, None)
        encoded = encode() if encode is not None else None
        if isinstance(encoded, bytes):
            kind, encoded = _shrink(kind, encoded)
            return {kind: base64.b64encode(encoded).decode()}
        if encoded is not None:
            return {kind: str(encoded).splitlines(keepends=True)}
    return {"text/plain": repr(value).splitlines(keepends=True)}


def _shrink(kind: str, content: bytes) -> tuple[str, bytes]:
    """Return a picture as JPEG if it has less than half of its size then, as photographs have."""
    with Image.open(io.BytesIO(content)) as picture:
        smaller = io.BytesIO()
        picture.convert("RGB").save(smaller, "JPEG", quality=JPEG_QUALITY, optimize=True)
    is_small = 2 * smaller.tell() < len(content)
    return ("image/jpeg", smaller.getvalue()) if is_small else (kind, content)


def main(arguments: list[str]) -> None:
    """Execute the notebooks at these paths, or with `--cells` the cells on stdin."""
    if arguments == ["--cells"]:
        sys.stdout.write(json.dumps(run_cells(json.load(sys.stdin))))
        return
    for path in map(Path, arguments):
        write_notebook(path, execute(read_notebook(path)))
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
