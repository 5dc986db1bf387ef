"""docs/results.md is what its tool writes from results/, and names a line for every figure."""

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.results import Data, Result, append_result, read_results
from tests import ROOT
from tests.bench.grid_results import result

TOOLS = ROOT / "tools"
ADDRESSES = {"train": ["VOC:trainval"], "val": ["VOC:test"]}
FORTY = ("symmetric:0.4", "uniform:0.4")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tool as it is when it is called."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return runpy.run_path(str(TOOLS / "results_page.py"))


def cell(method: str, ap50: float, noise: tuple[str | None, str | None], seed: int) -> Result:
    one = result(method, ap50, noise=noise, seed=seed, mending=None)
    word = "label40-box40" if noise == FORTY else "label0-box0"
    data = Data(one.data.train_sha256, one.data.noisy_sha256, one.data.val_sha256, ADDRESSES)
    estimates = {"label_noise": 0.37, "label_noise_low": 0.35, "label_noise_high": 0.4}
    rates = estimates if method == "mend" else None
    return msgspec.structs.replace(one, cell=f"{word}-{method}-{seed}", data=data, estimates=rates)


def world(folder: Path, *lines: Result) -> Path:
    """A project with these lines."""
    for line in lines:
        append_result(folder / "results" / "voc320.jsonl", line)
    (folder / "docs").mkdir()
    return folder


def test_the_page_is_what_the_tool_writes(tool: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert tool["page"](ROOT) == page  # if not: python tools/results_page.py
    for place, content in tool["charts"](ROOT).items():
        assert (ROOT / "docs" / place).read_bytes() == content
        assert f"]({place})" in page
    for anchor in re.findall(r"\]\(#([a-z-]+)\)", page):
        assert f"\n## {anchor.replace('-', ' ').capitalize()}\n" in page


def test_figures_have_errors_shares_and_lines(tool: dict[str, Any], tmp_path: Path) -> None:
    lines = [
        one
        for seed, mend in enumerate((0.50, 0.52, 0.54))
        for one in (
            cell("baseline", 0.7, (None, None), seed),
            cell("baseline", 0.3, FORTY, seed),
            cell("mend", mend, FORTY, seed),
        )
    ]
    text = tool["page"](world(tmp_path, *lines))
    # The deviation is 2.0, so the standard error 2 / sqrt(3) = 1.15.
    assert "| `mend` | **52.0** ± 1.2 (3) |" in text
    assert "| voc320:3, 6, 9 |" in text
    assert re.search(r"\| `mend` \| 55.0 ± 2.9 \(3\) \|.* voc320:1-9 \|\n", text)
    assert (
        "| missed | `mend` recovers the loss at 40/40 | 60 % or more | 55.0 ± 2.9 % (3) |" in text
    )
    assert "| `label40-box40-mend-0` | 40 | 37.0 (35.0 to 40.0) | 40 | ? | voc320:3 |" in text
    assert "9 of 44 with priority 1" in text
    assert "51.0" in text.partition("by the 11-point rule, as")[2]
    assert "None yet" in text


def with_scores(line: Result, ap: float, ap75: float, code: str = "") -> Result:
    scores = line.scores | {"coco_ap": ap, "coco_ap75": ap75}
    return msgspec.structs.replace(line, scores=scores, code=code)


def test_ap_and_ap75_stand_beside_ap50_with_shares_won_back(
    tool: dict[str, Any], tmp_path: Path
) -> None:
    lines = [
        with_scores(cell("baseline", 0.7, (None, None), 0), 0.4, 0.4),
        with_scores(cell("baseline", 0.3, FORTY, 0), 0.1, 0.05),
        with_scores(cell("mend", 0.6, FORTY, 0), 0.25, 0.2),
    ]
    text = tool["page"](world(tmp_path, *lines)).partition("### AP and AP75")[2]
    head = "| noise | method | AP50 | AP | AP75 | won back, AP50 | won back, AP | lines |"
    assert head in text
    noise = "| label 40, box 40"
    assert f"{noise} | `clean` | 70.0 (1) | 40.0 (1) | 40.0 (1) |  |  | voc320:1 |" in text
    # 0.3 of 0.4 lost points of AP50 are won back, and 0.15 of 0.3 lost points of AP.
    mend = (
        "| `mend` | **60.0** (1) | **25.0** (1) | **20.0** (1) | 75.0 (1) | 50.0 (1) | voc320:3 |"
    )
    assert f"{noise} {mend}" in text
    assert "With AP and AP75, where it is not" not in text


def test_lines_without_ap_give_no_table_of_it(tool: dict[str, Any], tmp_path: Path) -> None:
    text = tool["page"](world(tmp_path, cell("mend", 0.5, FORTY, 0)))
    assert "won back, AP" not in text


def test_equal_footing_is_explained_and_shows_shares_by_its_references(
    tool: dict[str, Any], tmp_path: Path
) -> None:
    averaged = {"optimisation.average_decay": 0.998}
    clean, noisy = cell("baseline", 0.72, (None, None), 0), cell("baseline", 0.42, FORTY, 0)
    lines = [
        with_scores(cell("baseline", 0.7, (None, None), 0), 0.4, 0.4),
        with_scores(cell("baseline", 0.3, FORTY, 0), 0.1, 0.05),
        with_scores(cell("mend", 0.6, FORTY, 0), 0.25, 0.2),
        *(
            with_scores(
                msgspec.structs.replace(line, cell=f"{noise}-baseline~average-0", variant=averaged),
                *scores,
            )
            for line, noise, scores in (
                (clean, "label0-box0", (0.4, 0.4)),
                (noisy, "label40-box40", (0.2, 0.1)),
            )
        ),
    ]
    text = tool["page"](world(tmp_path, *lines))
    section = text.partition("### The methods on equal footing")[2].partition("\n## ")[0]
    assert section.startswith("\n\nThe main table compares methods as they are published")
    figures, _, shares = section.partition("Won back:")
    assert "| `baseline, averaged weights` | 42.0 (1) |  |  |  |  | voc320:5 |" in figures
    assert "| `baseline, published recipe` |  |  |  |  |  |  |" in figures  # not run
    assert "references)`" not in figures
    assert "| `mend` | 75.0 (1) |  |  |  |  | voc320:1-3 |" in shares
    assert "| `mend (averaged references)` | 60.0 (1) |  |  |  |  | voc320:3-5 |" in shares
    # By AP, 0.05 of 0.2 lost points; the figures themselves are in the table of all methods.
    row = "| `mend (averaged references)` |  |  |  | 60.0 (1) | 25.0 (1) | voc320:3 |"
    assert f"| label 40, box 40 {row}" in shares
    assert "| label 40, box 40 | `mend` |" not in shares


def test_a_mean_over_versions_of_the_code_is_marked(tool: dict[str, Any], tmp_path: Path) -> None:
    lines = [
        with_scores(cell(method, 0.5, FORTY, seed), 0.2, 0.1, code)
        for method, codes in (("mend", ("", "a1")), ("baseline", ("b2", "b2")), ("br", ("", "")))
        for seed, code in enumerate(codes)
    ]
    text = tool["page"](world(tmp_path, *lines))
    assert "3 of the 6 lines that count do not record it" in text
    assert "| `mend` | **50.0** ± 0.0 (2†) |" in text
    assert "| `baseline` | **50.0** ± 0.0 (2) [53.7] |" in text
    assert "| `br` | **50.0** ± 0.0 (2) [65.9] |" in text
    assert "| `mend` | **50.0** ± 0.0 (2†) | **20.0** ± 0.0 (2†) | **10.0** ± 0.0 (2†) |" in text


def test_a_line_that_was_replaced_or_failed_is_reported(
    tool: dict[str, Any], tmp_path: Path
) -> None:
    failed = msgspec.structs.replace(cell("br", 0.1, FORTY, 0), error="no", scores={})
    later = msgspec.structs.replace(cell("br", 0.45, FORTY, 0), code="0123456789ab")
    lines = cell("br", 0.4, FORTY, 0), later, failed
    text = tool["page"](world(tmp_path, *lines))
    assert "| `br` | 45.0 (1) [65.9] |" in text
    table = text.partition("## Lines")[2].partition("\n| line")[2]
    rows = table.splitlines()[2:]
    assert rows[0].endswith("| replaced by a later one |")
    assert rows[1].endswith("| 0123456789ab |  |")
    assert rows[2].endswith("| failed |")


def test_lines_on_other_data_are_in_no_table(tool: dict[str, Any], tmp_path: Path) -> None:
    one = cell("mend", 0.6, FORTY, 0)
    tuned = msgspec.structs.replace(
        one,
        data=msgspec.structs.replace(
            one.data, addresses={"train": ["VOC:train"], "val": ["VOC:val"]}
        ),
    )
    text = tool["page"](world(tmp_path, tuned))
    assert "0 of 44 with priority 1" in text
    assert "| voc320:1 | `label40-box40-mend-0` | voc320 | VOC:train to VOC:val | 60.0 |" in text


def test_differences_between_lines_are_reported(tool: dict[str, Any], tmp_path: Path) -> None:
    other = msgspec.structs.replace(cell("br", 0.4, FORTY, 0), hardware="a <b>toaster</b>")
    text = tool["page"](world(tmp_path, cell("mend", 0.5, FORTY, 0), other))
    assert "- The lines differ in hardware: " in text
    assert "<b>" not in text


def test_pictures_and_notes_that_are_there_are_shown(tool: dict[str, Any], tmp_path: Path) -> None:
    project = world(tmp_path, cell("mend", 0.5, FORTY, 0))
    folder = project / "docs" / "images" / "results" / "label40-box40-mend-0"
    folder.mkdir(parents=True)
    (folder / "losses.svg").write_text("<svg/>")
    (project / "results" / "tried.md").write_text("## What was tried\n\nA longer warm-up.\n")
    text = tool["page"](project)
    assert "](images/results/label40-box40-mend-0/losses.svg)" in text
    assert "A longer warm-up." in text


def test_lines_are_added_once_and_without_places(tmp_path: Path) -> None:
    tool = runpy.run_path(str(TOOLS / "add_results.py"))
    one, other = cell("mend", 0.5, FORTY, 0), cell("br", 0.4, FORTY, 0)
    placed = msgspec.structs.replace(
        one, data=msgspec.structs.replace(one.data, addresses={"train": ["/home/me/VOC:trainval"]})
    )
    source, target = tmp_path / "results.jsonl", tmp_path / "voc320.jsonl"
    append_result(source, placed)
    append_result(source, msgspec.structs.replace(other, error="no", scores={}))
    assert tool["add_lines"]([source], target) == (1, 1)
    shutil.copy(target, tmp_path / "before.jsonl")
    append_result(source, other)
    assert tool["add_lines"]([source], target) == (1, 2)
    assert target.read_bytes().startswith((tmp_path / "before.jsonl").read_bytes())
    stored = read_results(target).results
    assert [each.cell for each in stored] == [one.cell, other.cell]
    assert stored[0].data.addresses == {"train": ["VOC:trainval"]}
