"""boxmend check: findings with names, and repairs with messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from boxmend.cli import run
from tests.cli.cli_answers import answer, coco


def test_check_finds_nothing_in_the_drawn_dataset(
    toys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, result = answer(capsys, "check", toys)
    assert status == 0
    assert (result["errors"], result["warnings"], result["findings"]) == (0, 0, [])
    assert result["statistics"]["images"] == 30
    assert run(["check", str(toys)]) == 0
    assert "0 errors, 0 warnings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"bbox": [10, 10, 50, 5]}, "box-outside"),
        ({"bbox": [10, 10, -5, 5]}, "box-flipped"),
        ({"bbox": [10, 10, 0, 5]}, "box-empty"),
        ({"bbox": [float("nan"), 10, 4, 5]}, "box-not-finite"),
        ({"category_id": 9}, "unknown-category"),
        ({"image_id": 9}, "unknown-image"),
    ],
)
def test_check_names_file_and_annotation_of_every_error(
    changes: dict[str, Any], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path, **changes)
    status, result = answer(capsys, "check", path, "--no-open-images")
    assert status == 1
    (finding,) = [one for one in result["findings"] if one["severity"] == "error"]
    assert (finding["kind"], finding["annotation_id"]) == (kind, 7)
    assert finding["file"] == str(path)
    assert run(["check", str(path), "--no-open-images"]) == 1
    assert f"error {kind}: {path}, annotation 7" in capsys.readouterr().out


def test_check_lists_missing_images_unless_it_opens_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    status, result = answer(capsys, "check", path)
    assert status == 1
    assert [finding["kind"] for finding in result["findings"]] == ["missing-image"]
    assert answer(capsys, "check", path, "--no-open-images")[0] == 0


def broken_coco(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Make a file with a good annotation, two that --fix repairs and one that it does not."""
    path = coco(tmp_path)
    document = json.loads(path.read_text())
    (good,) = document["annotations"]
    document["annotations"] = [
        good,
        good | {"id": 8, "bbox": [10, 10, 50, 5]},
        good | {"id": 9, "bbox": [30, 30, 5, 5]},
        good | {"id": 10, "category_id": 5, "bbox": [1, 1, 2, 2]},
    ]
    path.write_text(json.dumps(document))
    return path, document


def test_fix_clips_and_drops_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, document = broken_coco(tmp_path)
    del document["annotations"][3]
    path.write_text(json.dumps(document))
    before = path.read_bytes()
    out = tmp_path / "fixed"
    status, result = answer(capsys, "check", path, "--no-open-images", "--fix", "--out", out)
    assert (status, result["errors"]) == (0, 0)
    actions = {one["annotation_id"]: one["action"] for one in result["repairs"]}
    assert actions == {8: "clipped", 9: "dropped"}
    written = json.loads((out / path.name).read_text())
    assert {one["id"]: one["bbox"] for one in written["annotations"]} == {
        7: [1, 2, 3, 4],
        8: [10, 10, 10, 5],
    }
    assert path.read_bytes() == before
    assert run(["check", str(out), "--no-open-images"]) == 0


def test_fix_writes_no_copy_that_is_still_broken_and_names_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = broken_coco(tmp_path)
    out = tmp_path / "fixed"
    line = ["check", str(path), "--no-open-images", "--fix", "--out", str(out)]
    assert run(line) == 1
    answered = capsys.readouterr()
    assert not out.exists()
    assert "nothing was written: --fix cannot repair 1 error, such as error unknown-category" in (
        answered.err
    )
    assert "add --drop-malformed" in answered.err
    assert "clipped" not in answered.out
    status, result = answer(capsys, *line)
    assert (status, result["errors"], "saved" in result) == (1, 3, False)


def test_drop_malformed_leaves_out_what_is_broken_and_lists_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = broken_coco(tmp_path)
    out = tmp_path / "fixed"
    line = ["check", str(path), "--no-open-images", "--fix", "--drop-malformed", "--out", str(out)]
    assert run(line) == 0
    answered = capsys.readouterr()
    assert f"left out: {path}, annotation 10: its category_id is 5" in answered.out
    assert "2 annotations repaired, 1 broken left out" in answered.err
    assert [one["id"] for one in json.loads((out / path.name).read_text())["annotations"]] == [7, 8]
    assert run(["check", str(out), "--no-open-images"]) == 0


def test_what_no_entry_has_cannot_be_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, document = broken_coco(tmp_path)
    document["categories"] *= 2
    path.write_text(json.dumps(document))
    out = tmp_path / "fixed"
    line = ["check", str(path), "--no-open-images", "--fix", "--drop-malformed", "--out", str(out)]
    assert run(line) == 1
    assert "Correct them by hand" in capsys.readouterr().err
    assert not out.exists()


def test_drop_malformed_needs_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(coco(tmp_path)), "--drop-malformed"]) == 2
    assert "add --fix --out DIR" in capsys.readouterr().err


def test_duplicate_ids_are_findings_of_check_and_refused_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    document = json.loads(path.read_text())
    document["annotations"] *= 2
    path.write_text(json.dumps(document))
    status, result = answer(capsys, "check", path, "--no-open-images")
    assert status == 1
    assert "duplicate-id" in {finding["kind"] for finding in result["findings"]}
    assert run(["convert", str(path), "--to", "voc", "--out", str(tmp_path / "out")]) == 3
    message = capsys.readouterr().err
    assert "annotation 7" in message
    assert str(path) in message
