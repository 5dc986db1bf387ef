"""What the page about evaluation shows is what is there."""

import json
import re
from pathlib import Path

import pytest

import boxmend
from boxmend.training.evaluation import Evaluation
from tests import ROOT
from tests.training.evaluation.scored_files import KEYS, two_images

PAGE = (ROOT / "docs" / "evaluation.md").read_text()


def test_every_figure_has_its_row() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", PAGE, re.MULTILINE)
    named = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    assert {*KEYS, "images", "detections", "annotations", "by_label"} <= named


def test_the_file_of_the_page_and_its_python_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (listed,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    box = json.loads(listed)[0]["bbox"]
    data = two_images(
        tmp_path,
        images=[{"id": 42, "file_name": "a.jpg", "width": 640, "height": 480}],
        annotations=[{"id": 1, "image_id": 42, "category_id": 18, "bbox": box}],
        categories=[{"id": 18, "name": "cat"}],
    )
    monkeypatch.chdir(tmp_path)
    Path("found.json").write_text(listed)
    Path("annotations").mkdir()
    data.rename("annotations/instances_val2017.json")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.partition("# Mending")[0], re.DOTALL)
    lines = [line for line in code.splitlines() if "runs/voc" not in line]
    names: dict[str, object] = {"boxmend": boxmend}
    exec("\n".join(lines), names)
    scores = names["scores"]
    assert isinstance(scores, Evaluation)
    assert scores.by_label["cat"]["AP50"] == pytest.approx(1.0)
