"""The images to predict on, and their ids and names."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import boxmend
from boxmend.errors import DataError, UsageError
from boxmend.training.prediction.images import gather_images
from tests.training.prediction.prediction_runs import drawn


def coco(folder: Path, images: list[dict[str, Any]], **more: Any) -> Path:
    path = folder / "instances_val.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": [], "categories": []} | more))
    return path


def test_a_folder_is_searched_with_all_folders_in_it_in_order(tmp_path: Path) -> None:
    for name in ("b.JPG", "a.png", "sub/deep/c.png", "sub/b.webp", ".hidden/d.png", "._a.png"):
        drawn(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    gathered = gather_images([tmp_path])
    assert gathered.file_names == ["a.png", "b.JPG", "sub/b.webp", "sub/deep/c.png"]
    assert gathered.ids.tolist() == [1, 2, 3, 4]
    assert gathered.paths[3] == str(tmp_path / "sub/deep/c.png")


def test_a_file_that_is_named_is_taken_whatever_its_ending(tmp_path: Path) -> None:
    path = tmp_path / "picture.bin"
    path.write_bytes(drawn(tmp_path / "a.png").read_bytes())
    assert gather_images([path]).file_names == ["picture.bin"]


def test_names_that_are_there_twice_become_paths(tmp_path: Path) -> None:
    for name in ("x/1.png", "y/1.png", "y/2.png"):
        drawn(tmp_path / name)
    gathered = gather_images([tmp_path / "x", tmp_path / "y"])
    assert gathered.file_names == [f"{tmp_path}/x/1.png", f"{tmp_path}/y/1.png", "2.png"]
    assert gathered.ids.tolist() == [1, 2, 3]


def test_images_of_a_dataset_keep_ids_and_names(tmp_path: Path) -> None:
    drawn(tmp_path / "a.png")
    data = coco(tmp_path, [{"id": 9, "file_name": "a.png"}, {"id": 4, "file_name": "gone.png"}])
    for address in (data, tmp_path, f"{tmp_path}:val"):
        gathered = gather_images([address])
        assert gathered.ids.tolist() == [9, 4]
        assert gathered.file_names == ["a.png", "gone.png"]


def test_a_dataset_without_annotations_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "image_info_test.json"
    path.write_text(json.dumps({"images": [{"id": 9, "file_name": "a.png"}]}))
    assert gather_images([path]).ids.tolist() == [9]


def test_wrong_annotations_of_a_dataset_do_not_matter(tmp_path: Path) -> None:
    data = coco(
        tmp_path,
        [{"id": 9, "file_name": "a.png", "width": 5, "height": 5}],
        annotations=[{"id": 1, "image_id": 77, "category_id": 5, "bbox": [1, 2]}],
    )
    with pytest.raises(DataError):
        boxmend.load(data)
    assert gather_images([data]).ids.tolist() == [9]


def test_ids_of_several_inputs_are_kept_apart(tmp_path: Path) -> None:
    data = coco(tmp_path / "data", [{"id": 2, "file_name": "z.png"}])
    for name in ("x/1.png", "x/2.png", "y/3.png"):
        drawn(tmp_path / name)
    gathered = gather_images([tmp_path / "x", data, tmp_path / "y"])
    assert gathered.file_names == ["1.png", "2.png", "z.png", "3.png"]
    assert gathered.ids.tolist()[:2] == [1, 2]
    assert len(set(gathered.ids.tolist())) == 4


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"contains no images \(\.jpg, \.jpeg, \.png"):
        gather_images([tmp_path])


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no images given; name image files, folders of images"):
        gather_images([])
    with pytest.raises(UsageError, match=r"nowhere.png: no such file or folder"):
        gather_images([tmp_path / "nowhere.png"])
    with pytest.raises(DataError, match="no dataset found"):
        gather_images([f"{tmp_path}:val"])


@pytest.mark.skipif(sys.platform == "darwin", reason="its names are Unicode")
def test_a_name_that_is_no_text_can_be_written(finished: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.png"
    Path(os.fsdecode(path)).write_bytes(drawn(tmp_path / "x" / "a.png").read_bytes())
    predictions = boxmend.predict(finished, [os.fsdecode(path)])
    predictions.save(tmp_path / "out.json")
    names = {load["file_name"] for load in json.loads((tmp_path / "out.json").read_bytes())}
    assert names == {"\udcff.png"}
