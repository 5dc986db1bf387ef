"""boxmend convert: there and back, lossy only when allowed, never outside its folder."""

from pathlib import Path

import numpy as np
import pytest

import boxmend
from boxmend.cli import run
from tests.cli.cli_answers import answer, coco


def test_converting_there_and_back_keeps_boxes_to_a_hundredth(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    previous = toys
    for step, target in enumerate(["voc", "yolo", "coco"]):
        out = tmp_path / f"{step}-{target}"
        status, result = answer(capsys, "convert", previous, "--to", target, "--out", out)
        assert status == 0, result
        assert (result["format"], result["lost"]) == (target, [])
        previous = out
    status, result = answer(capsys, "diff", toys, previous)
    assert status in (0, 1)  # ids are others; boxes and labels are not
    for split in ("train", "val"):
        old, new = boxmend.load(f"{toys}:{split}"), boxmend.load(f"{previous}:{split}")
        assert old.images.file_names == new.images.file_names
        np.testing.assert_allclose(new.boxes, old.boxes, atol=0.01)
        assert np.array_equal(new.labels, old.labels)


def test_a_lossy_conversion_stops_unless_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path, iscrowd=1, segmentation=[[1, 2, 4, 2, 4, 6]])
    out = tmp_path / "voc"
    tokens = ["convert", path, "--to", "voc", "--out", out]
    status, message = answer(capsys, *tokens)
    assert status == 3
    assert "crowd" in message
    assert "segmentation" in message
    assert "--allow-lossy" in message
    assert not out.exists()
    status, result = answer(capsys, *tokens, "--allow-lossy")
    assert status == 0
    assert len(result["lost"]) == 2


@pytest.mark.parametrize("images_as", ["link", "copy", "none"])
def test_images_are_linked_copied_or_left(images_as: str, toys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    tokens = ["convert", f"{toys}:train", "--to", "coco", "--images-as", images_as]
    assert run([*tokens, "--out", str(out)]) == 0
    images = list(out.rglob("*.png"))
    assert len(images) == (0 if images_as == "none" else 24)
    assert all(path.is_symlink() == (images_as == "link") for path in images)
    assert (out / "instances_train.json").read_bytes() == (
        toys / "instances_train.json"
    ).read_bytes()


def test_a_name_that_climbs_out_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = coco(tmp_path)
    path.write_text(path.read_text().replace("a.jpg", "../../a.jpg"))
    assert run(["convert", str(path), "--to", "yolo", "--out", str(tmp_path / "out")]) == 3
    assert "../../a.jpg" in capsys.readouterr().err
    assert run(["check", str(path)]) == 1
    assert "unsafe-name" in capsys.readouterr().out
