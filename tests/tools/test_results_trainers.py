"""The section of docs/results.md about other trainers, on lines made up by hand."""

import re
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boxmend.bench.grids.cells import Cell
from boxmend.bench.grids.results import Data, Result, append_result
from tests import ROOT
from tests.bench.grid_results import result

TOOLS = ROOT / "tools"
YOLO, FCOS = "yolov8n-voc320", "fcos-voc320"
ADDRESSES = {"train": ["VOC:trainval"], "val": ["VOC:test"]}
CLEAN = (None, None)
FORTY = ("symmetric:0.4", "uniform:0.4")
LABELS = ("symmetric:0.4", None)
CHANGES = {
    "changes": {
        "labels": {"noise_before": 0.4, "noise_after": 0.125},
        "boxes": {"mean_iou_before": 0.6, "mean_iou_after": 0.75},
    }
}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tool as it is when it is called."""
    monkeypatch.syspath_prepend(str(TOOLS))
    return runpy.run_path(str(TOOLS / "results_page.py"))


def line(
    method: str,
    ap50: float,
    noise: tuple[str | None, str | None] = FORTY,
    seed: int = 0,
    seconds: float = 100.0,
    **others: Any,
) -> Result:
    """A line as the benchmarks of other trainers write it."""
    cell = Cell(*noise, method, tuple(others.get("variant", {}).items()), seed)
    one = result(method, ap50, noise=noise, seed=seed, cell=cell.name, seconds=seconds)
    fields = {
        "scale": YOLO,
        "settings": {"epochs": "100", "imgsz": "320", "prescreen": cell.method},
        "data": msgspec.structs.replace(one.data, addresses=ADDRESSES),
        "scores": one.scores | {"coco_ap": ap50 / 2, "coco_ap75": ap50 / 4},
        "mending": CHANGES if method == "mender" else None,
    }
    return msgspec.structs.replace(one, **(fields | others))


def project(folder: Path, *lines: Result, name: str = "other-trainers") -> Path:
    """A project with these lines."""
    (folder / "docs").mkdir(exist_ok=True)
    for one in lines:
        append_result(folder / "results" / f"{name}.jsonl", one)
    return folder


def section(text: str) -> str:
    """The section about other trainers."""
    return text.partition("## Mending in other trainers\n")[2].partition("\n## ")[0]


def three_seeds(mender: tuple[float, float, float], seconds: float = 120.0) -> list[Result]:
    """Clean 0.7 and baseline 0.5 at 40/40, each in 100 seconds; lines 1 to 9."""
    return [
        one
        for seed in range(3)
        for one in (
            line("baseline", 0.7, CLEAN, seed),
            line("baseline", 0.5, FORTY, seed),
            line("mender", mender[seed], FORTY, seed, seconds),
        )
    ]


def test_without_lines_there_is_no_section(tool: dict[str, Any], tmp_path: Path) -> None:
    other = msgspec.structs.replace(line("baseline", 0.7, CLEAN), scale="voc320")
    alone = tool["page"](project(tmp_path, other, name="voc320"))
    assert "other trainers" not in alone.lower()
    failed = line("mender", 0.5, error="no memory", scores={})
    text = tool["page"](project(tmp_path, failed))
    assert not section(text)
    assert "(#mending-in-other-trainers)" not in text
    row = "| other-trainers:1 | `label40-box40-mender-0` |"
    assert re.search(rf"{re.escape(row)}.*\| failed \|\n", text.partition("## Lines\n")[2])


def test_lines_of_other_trainers_change_no_other_part(tool: dict[str, Any], tmp_path: Path) -> None:
    other = msgspec.structs.replace(line("baseline", 0.7, CLEAN), scale="voc320")
    before = tool["page"](project(tmp_path, other, name="voc320"))
    after = tool["page"](project(tmp_path, *three_seeds((0.6, 0.6, 0.6))))
    rest = after.replace(f"## Mending in other trainers\n{section(after)}\n", "")
    rest = rest.replace(f"{tool['OTHER_TRAINERS_LINK']}\n\n", "")
    rest = rest[: rest.index("\n\nYOLOv8n:\n\n")] + "\n"
    assert rest == before


def test_a_trainer_has_figures_shares_and_lines(tool: dict[str, Any], tmp_path: Path) -> None:
    text = section(tool["page"](project(tmp_path, *three_seeds((0.58, 0.6, 0.62)))))
    assert (
        "\n### YOLOv8n\n\nYOLOv8n starts from random weights and trains for 100 epochs on images "
        "of 320 pixels (`benchmarks/ultralytics_training.py`).\n"
    ) in text
    assert "### FCOS" not in text
    assert "The lines differ" not in text
    figures, metrics, annotations = text.partition("### YOLOv8n")[2].split("| lines |\n")[1:]
    # The deviation is 2.0, so the standard error 2 / sqrt(3) = 1.15.
    assert "| `clean` | 70.0 ± 0.0 (3) | 70.0 ± 0.0 (3) | other-trainers:1, 4, 7 |" in figures
    assert "| `baseline` | 50.0 ± 0.0 (3) |  | other-trainers:2, 5, 8 |" in figures
    assert "| `mender` | **60.0** ± 1.2 (3) |  | other-trainers:3, 6, 9 |" in figures
    # Won back: (0.6 - 0.5) / (0.7 - 0.5) = 50 %, with an error of 1.15 / 20 = 5.8 %.
    row = re.search(r"\| label 40, box 40 \| `mender` \|.*\n", metrics)
    assert row is not None
    assert row[0].startswith("| label 40, box 40 | `mender` | **60.0** ± 1.2 (3) | **30.0** ± 0.6")
    assert row[0].endswith("| 50.0 ± 5.8 (3) | 50.0 ± 5.8 (3) | other-trainers:3, 6, 9 |\n")
    assert (
        "| label 40, box 40 | `mender` | 40.0 | 12.5 | 60.0 | 75.0 | 1.20 ± 0.00 (3) | "
        "other-trainers:2-3, 5-6, 8-9 |"
    ) in annotations
    assert len(annotations.strip().splitlines()) == 2  # neither clean nor baseline has a row


def test_targets_are_those_that_have_lines(tool: dict[str, Any], tmp_path: Path) -> None:
    clean = line("mender", 0.694, CLEAN, seconds=130.0)
    slow = line("mender", 0.4, seconds=900.0, variant={"prescreen": "off"})  # has no target
    lines = [*three_seeds((0.6 + 1e-9,) * 3), clean, slow]
    text = section(tool["page"](project(tmp_path, *lines)))
    rows = [row for row in text.splitlines() if row.startswith(("| reached", "| missed"))]
    assert rows == [
        "| reached | YOLOv8n: `mender` recovers the loss at 40/40 | 50 % or more | "
        "50.0 ± 0.0 % (3) | other-trainers:1-9 |",
        "| reached, so far | YOLOv8n: `mender` does no harm on clean data | "
        "a loss of at most 0.7 AP50 | -0.6 AP50 (1) | other-trainers:1, 10 |",
        # (120 + 120 + 120 + 130) / 400 = 1.225; the rests are -2.5, three times, and 7.5:
        # a deviation of 5, over sqrt(4) and 100, is an error of 2.5 %.
        "| reached | YOLOv8n: a training with `mender` takes little more time than `baseline` | "
        "less than 35 % more | +22.5 ± 2.5 % (4) | other-trainers:1-3, 5-6, 8-10 |",
    ]


def test_targets_are_missed_just_below_their_limits(tool: dict[str, Any], tmp_path: Path) -> None:
    lines = [
        line("baseline", 0.7, CLEAN),
        line("baseline", 0.5),
        line("mender", 0.599, seconds=135.0),
        line("baseline", 0.5, LABELS),
        line("mender", 0.619, LABELS, seconds=135.0),
        line("mender", 0.692, CLEAN, seconds=135.0),
    ]
    text = section(tool["page"](project(tmp_path, *lines)))
    measured = re.findall(r"\| missed, so far \| .*? \| .*? \| (.*?) \|", text)
    assert measured == ["49.5 % (1)", "59.5 % (1)", "-0.8 AP50 (1)", "+35.0 ± 0.0 % (3)"]
    assert "| reached" not in text


def test_variants_have_rows_but_no_targets(tool: dict[str, Any], tmp_path: Path) -> None:
    off = {"prescreen": "off"}
    lines = [
        line("baseline", 0.7, CLEAN),
        line("baseline", 0.5),
        line("mender", 0.55, variant=off, seconds=110.0),
    ]
    assert lines[2].cell == "label40-box40-mender~prescreen-off-0"
    text = section(tool["page"](project(tmp_path, *lines)))
    assert "| `mender, prescreen off` | **55.0** (1) |  | other-trainers:3 |" in text
    assert "| 25.0 (1) | 25.0 (1) | other-trainers:3 |" in text
    row = "| `mender, prescreen off` | 40.0 | 12.5 | 60.0 | 75.0 | 1.10 (1) | other-trainers:2-3 |"
    assert row in text
    assert "| reached" not in text
    assert "| missed" not in text
    text = section(tool["page"](project(tmp_path, line("mender", 0.6))))
    names = re.findall(r"^\| `(.*?)`", text, re.MULTILINE)
    assert names == ["clean", "baseline", "mender", "mender, prescreen off"]


def test_time_is_compared_on_equal_hardware_only(tool: dict[str, Any], tmp_path: Path) -> None:
    lines = [line("baseline", 0.5), line("mender", 0.6, hardware="another GPU")]
    text = section(tool["page"](project(tmp_path, *lines)))
    assert "- The lines differ in hardware: one GPU in label40-box40-baseline-0;" in text
    assert "| `mender` | 40.0 | 12.5 | 60.0 | 75.0 |  | other-trainers:2 |" in text
    assert "more time" not in text


def test_differing_settings_of_the_training_are_named(tool: dict[str, Any], tmp_path: Path) -> None:
    equal = section(tool["page"](project(tmp_path, line("baseline", 0.5))))
    slower = {"epochs": "100", "imgsz": "320", "lr": 0.1, "prescreen": "FILE", "every": 3}
    text = section(tool["page"](project(tmp_path, line("mender", 0.6, settings=slower))))
    assert "The lines differ" not in equal
    assert [each for each in text.splitlines() if each.startswith("- The lines differ")] == [
        "- The lines differ in settings.lr: (not set) in label40-box40-baseline-0; "
        "0.1 in label40-box40-mender-0."
    ]


def test_trainers_do_not_mix(tool: dict[str, Any], tmp_path: Path) -> None:
    settings = {"epochs": "12", "imgsz": "320"}
    fcos = [
        msgspec.structs.replace(one, scale=FCOS, settings=settings)
        for one in three_seeds((0.65, 0.65, 0.65))
    ]
    page = tool["page"](project(tmp_path, *fcos, *three_seeds((0.6, 0.6, 0.6))))
    yolo, other = section(page).partition("\n### FCOS\n")[::2]
    assert "| `mender` | **60.0** ± 0.0 (3) |  | other-trainers:12, 15, 18 |" in yolo
    assert "| `mender` | **65.0** ± 0.0 (3) |  | other-trainers:3, 6, 9 |" in other
    assert "from a ResNet-50 trained on ImageNet classification and trains for 12 epochs" in other
    listed = page.partition("\n## Lines\n")[2]
    yolo, other = listed.partition("\n\nYOLOv8n:\n\n")[2].split("\n\nFCOS:\n\n")
    assert re.findall(r"other-trainers:\d+", yolo) == [f"other-trainers:{n}" for n in range(10, 19)]
    assert re.findall(r"other-trainers:\d+", other) == [f"other-trainers:{n}" for n in range(1, 10)]


def test_versions_of_the_code_are_marked(tool: dict[str, Any], tmp_path: Path) -> None:
    lines = [line("mender", 0.6, seed=seed, code=code) for seed, code in enumerate(("a1", "b2"))]
    text = section(tool["page"](project(tmp_path, *lines)))
    assert "| `mender` | 60.0 ± 0.0 (2†) | other-trainers:1-2 |" in text
    assert "| label 40, box 40 | `mender` † | 40.0 |" in text


def test_lines_on_other_splits_are_in_no_table(tool: dict[str, Any], tmp_path: Path) -> None:
    one = line("mender", 0.6)
    data = Data("a" * 64, "b" * 64, "c" * 64, {"train": ["VOC:train"], "val": ["VOC:val"]})
    text = tool["page"](project(tmp_path, msgspec.structs.replace(one, data=data)))
    assert not section(text)
    row = f"| other-trainers:1 | `{one.cell}` | {YOLO} | VOC:train to VOC:val | 60.0 |"
    assert row in text.partition("## Lines on other data\n")[2]


def test_added_lines_have_no_paths(tmp_path: Path) -> None:
    tool = runpy.run_path(str(TOOLS / "add_results.py"))
    settings = {
        "voc": "/data/me/VOC",
        "prescreen": "/data/me/resnet50.safetensors",
        "labels": "symmetric:0.4",
        "epochs": 100,
        "trainer": {"cache": "/data/me/cache"},
    }
    short = tool["shorten_paths"](line("mender", 0.6, settings=settings))
    assert short.settings == {
        "voc": "VOC",
        "prescreen": "resnet50.safetensors",
        "labels": "symmetric:0.4",
        "epochs": 100,
        "trainer": {"cache": "cache"},
    }
    assert short.scores == line("mender", 0.6).scores
