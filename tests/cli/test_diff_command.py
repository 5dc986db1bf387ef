"""boxmend diff: the differences and the exit status."""

from pathlib import Path

import pytest

import boxmend
from boxmend.cli import run
from tests.cli.cli_answers import answer


def test_diff_exits_with_one_where_anything_differs(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", str(toys), str(toys)]) == 0
    assert "same" in capsys.readouterr().out
    dataset = boxmend.load(f"{toys}:val")
    dataset.labels[0] = (dataset.labels[0] + 1) % 6
    dataset.boxes[1] += 1
    dataset.save(tmp_path / "other")
    status, result = answer(capsys, "diff", f"{toys}:val", tmp_path / "other")
    assert status == 1
    assert (result["label_changed"], result["box_changed"]) == (1, 1)
    kinds = {
        difference["annotation_id"]: difference["kinds"] for difference in result["differences"]
    }
    assert kinds == {
        int(dataset.annotation_ids[0]): ["label"],
        int(dataset.annotation_ids[1]): ["box"],
    }
    assert run(["diff", f"{toys}:val", str(tmp_path / "other")]) == 1
    assert " -> " in capsys.readouterr().out
