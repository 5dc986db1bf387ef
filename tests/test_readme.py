"""README.md and the first pages: their commands, examples and figures are true."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmend
from boxmend.cli import COMMANDS, command_line, run
from boxmend.data.synth.detections import simulate_detections
from tests import ROOT

README = (ROOT / "README.md").read_text()
COMMANDS_PAGE = (ROOT / "docs/commands.md").read_text()
START_PAGE = (ROOT / "docs/start.md").read_text()
RESULTS_PAGE = (ROOT / "docs/results.md").read_text()
MAX_LINES = 150
SETTINGS = {  # rows of the README's table: the columns of the results page
    "40 %, 40 %": "label 40, box 40",
    "20 %, 20 %": "label 20, box 20",
    "40 %, 0 %": "label 40, box 0",
    "0 %, 40 %": "label 0, box 40",
    "0 %, 0 %": "label 0, box 0",
}


def read_table(lines: list[str]) -> dict[str, dict[str, str]]:
    """Return the rows of a Markdown table by their first cell, each by the header."""
    header, _, *rows = ([cell.strip() for cell in ln.strip("|").split("|")] for ln in lines)
    return {row[0].strip("`"): dict(zip(header, row, strict=True)) for row in rows}


def find_table(text: str, start: str) -> dict[str, dict[str, str]]:
    """Return the first table after a text."""
    lines = text[text.index(start) :].split("\n")
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    last = next(n for n, line in enumerate(lines) if n > first and not line.startswith("|"))
    return read_table(lines[first:last])


def commands_in(text: str) -> list[str]:
    """Return the boxmend commands of the blocks of shell commands, without comments."""
    blocks = re.findall(r"^ *```sh\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split("#")[0].strip() for block in blocks for line in block.split("\n")]
    return [line for line in lines if line.startswith("boxmend ")]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES


def test_the_make_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_table_of_commands_has_every_command() -> None:
    named = set(re.findall(r"^\| `boxmend ([a-z]+)", COMMANDS_PAGE, re.MULTILINE))
    assert named == set(COMMANDS)


def test_the_readme_names_the_commands_that_need_no_data() -> None:
    rows = re.findall(r"^- `boxmend ([a-z]+)` shows \*\*the (\w+)\*\*", README, re.MULTILINE)
    assert rows == [("quickstart", "audit"), ("demo", "training")]
    assert {name for name, _ in rows} <= set(COMMANDS)


def test_commands_of_the_table_run(tmp_path: Path) -> None:
    data = tmp_path / "toys"
    assert run(["synth", "--images", "10", "--out", str(data)]) == 0
    rows = re.findall(r"^\| `(boxmend (?:check|convert|noise)[^`]*)`", COMMANDS_PAGE, re.MULTILINE)
    assert len(rows) == 3
    for line in rows:
        text = line.replace("DATA…", f"{data}:train").replace("coco\\|voc\\|yolo", "voc")
        out = tmp_path / f"out-{len(text)}"
        assert run(shlex.split(text.replace("DIR", str(out)))[1:]) == 0, text


@pytest.mark.parametrize("command", commands_in(README) + commands_in(START_PAGE))
def test_commands_of_the_first_pages_parse(command: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "boxmend"
    command_line().parse_args(arguments, exit_on_error=False, print_error=False)


@pytest.mark.slow
def test_the_python_of_the_readme_writes_a_repaired_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_wrong_labels(number=60)
    (example, *_) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len([line for line in example.splitlines() if line]) == 6
    names: dict[str, Any] = {}
    exec(example, names)
    assert "wrong label" in capsys.readouterr().out
    changes = boxmend.load("mended/data.yaml:train").labels != names["dataset"].labels
    assert 0 < changes.sum() == len(names["audit"].mended(precision=0.9).changes)


def write_wrong_labels(number: int) -> None:
    """Write data.yaml with wrong labels, and predictions.json with those that a detector sees."""
    boxmend.synthesize("toys", images=500, format="yolo")
    dataset = boxmend.load("toys/data.yaml:train")
    names = dataset.images.file_names
    found = simulate_detections(0, [int(Path(name).stem) - 1 for name in names], 96)
    results = [
        {
            "file_name": names[image],
            "category_name": dataset.label_names[label],
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            "score": score,
        }
        for image, label, score, (x1, y1, x2, y2) in zip(
            found.image_rows.tolist(),
            found.labels.tolist(),
            found.scores.tolist(),
            found.boxes.tolist(),
            strict=True,
        )
    ]
    Path("predictions.json").write_text(json.dumps(results))
    dataset.labels[: 9 * number : 9] = (dataset.labels[: 9 * number : 9] + 1) % 6
    dataset.save("noisy")
    Path("data.yaml").write_text(Path("noisy/data.yaml").read_text() + "path: noisy\n")


def test_the_table_of_results_agrees_with_the_page_of_results() -> None:
    accuracy = find_table(RESULTS_PAGE, "AP50 by the area rule. The paper's")
    won_back = find_table(RESULTS_PAGE, "Share of the lost accuracy that is recovered")
    table = find_table(README, "| wrong labels, box noise |")
    assert table.keys() == SETTINGS.keys()
    for noise, column in SETTINGS.items():
        row = table[noise]
        for name, method in (("clean", "clean"), ("noisy", "baseline"), ("`mend`", "mend")):
            figures = re.findall(r"[\d.]+", accuracy[method][column])
            assert row[name] == (figures[0] if figures else ""), (noise, name)
        shares = {
            method: float(cells[column].split()[0])
            for method, cells in won_back.items()
            if cells[column]
        }
        if not shares:
            assert (row["won back"], row["best other"]) == ("", "")
            continue
        best = max(share for method, share in shares.items() if method != "mend")
        assert abs(percent(row["won back"]) - shares["mend"]) <= 0.5
        assert abs(percent(row["best other"]) - best) <= 0.5


def percent(cell: str) -> float:
    return float(cell.removesuffix(" %"))


def test_the_python_of_the_formats_page_changes_only_the_names_of_the_sofas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for year, name in (("VOC2007", "000001"), ("VOC2012", "2008_000001")):
        folder = tmp_path / year
        (folder / "Annotations").mkdir(parents=True)
        (folder / "ImageSets/Main").mkdir(parents=True)
        (folder / "ImageSets/Main/trainval.txt").write_text(f"{name}\n")
        objects = "".join(
            f"<object><name>{label}</name><bndbox><xmin>1</xmin><ymin>1</ymin>"
            "<xmax>9</xmax><ymax>9</ymax></bndbox></object>"
            for label in ("sofa", "chair")
        )
        text = f"<annotation><filename>{name}.jpg</filename>{objects}</annotation>"
        (folder / "Annotations" / f"{name}.xml").write_text(text)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/formats.md").read_text()
    (example,) = re.findall(r"```python\n(.*?no-sofas.*?)```", page, re.DOTALL)
    exec(example, {})
    for year, name in (("VOC2007", "000001"), ("VOC2012", "2008_000001")):
        before = (tmp_path / year / "Annotations" / f"{name}.xml").read_text()
        after = (tmp_path / "no-sofas" / year / "Annotations" / f"{name}.xml").read_text()
        assert after == before.replace("sofa", "chair")
    mended = boxmend.load(tmp_path / "no-sofas/VOC2007")
    assert np.array_equal(mended.boxes, [[0, 0, 9, 9]] * 2)
