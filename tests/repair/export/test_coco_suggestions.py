"""Suggestions as COCO, read back by boxmend's own reader."""

from pathlib import Path

import numpy as np

from boxmend.data.formats import load
from boxmend.repair.export import export
from tests.fabricated_runs import run_on
from tests.repair.export.exported_runs import VISITS, Drawn, exported, json_of


def test_our_own_reader_sees_the_suggestions(tmp_path: Path) -> None:
    out = exported(tmp_path, "coco", images_as="copy")
    dataset = load(str(out))
    assert dataset.annotation_ids.tolist() == [10, 11, 12, 13, 14, 15]
    assert dataset.label_names == ("van", "truck", "bus")
    assert [dataset.label_names[label] for label in dataset.labels] == [
        *("truck", "truck", "bus", "van", "truck", "bus")
    ]
    np.testing.assert_array_equal(dataset.boxes[:2], [[20, 10, 80, 50], [100, 20, 150, 60]])
    assert dataset.is_crowd.tolist() == [False, False, True, False, False, False]
    assert [Path(path).is_file() for path in dataset.images.paths] == [True, True]


def test_an_annotation_has_score_and_what_was_before(tmp_path: Path) -> None:
    document = json_of(exported(tmp_path, "coco") / "instances_suggested.json")
    assert document["annotations"][1] == {
        "id": 11,
        "image_id": 1,
        "category_id": 5,  # as in the source
        "bbox": [100, 20, 50, 40],
        "area": 2000,
        "iscrowd": 0,
        "score": 0.5,
        "boxmend": {
            "annotation_id": 11,
            "status": "suspect",
            "old_label": "truck",
            "old_box": [100, 20, 140, 60],
            "label": "truck",
            "box": [100, 20, 150, 60],
            "score": 0.5,
            "doubt": 0.0,
            "suspicion": 0.2,
            "reason": "label: truck kept in 1 of 1 visits, doubt 0.00; "
            "box: moved, IoU 0.80 with the annotated one",
        },
    }
    assert "score" not in document["annotations"][4]
    assert document["annotations"][4]["boxmend"]["status"] == "other"


def test_categories_and_images_keep_their_ids(tmp_path: Path) -> None:
    document = json_of(exported(tmp_path, "coco") / "instances_suggested.json")
    assert document["categories"] == [
        {"id": 3, "name": "van"},
        {"id": 5, "name": "truck"},
        {"id": 9, "name": "bus"},
    ]
    assert document["images"][1] == {"id": 2, "file_name": "b.png", "width": 200, "height": 100}


def test_a_dataset_of_another_format_gets_numbers(tmp_path: Path) -> None:
    load(Drawn().write(tmp_path)).save(tmp_path / "voc", format="voc", allow_lossy=True)
    voc = load(tmp_path / "voc")
    run = run_on(voc, tmp_path / "run", [str(tmp_path / "voc")], VISITS)
    document = json_of(export(run, tmp_path / "out", "coco").out / "instances_suggested.json")
    assert [category["id"] for category in document["categories"]] == [1, 2, 3]
    assert [image["id"] for image in document["images"]] == [1, 2]
    assert [annotation["id"] for annotation in document["annotations"]] == [1, 2, 3, 4, 5, 6]
    ids = [annotation["boxmend"]["annotation_id"] for annotation in document["annotations"]]
    assert ids == voc.annotation_ids.tolist() == [f"{k}:{p}" for k in "ab" for p in range(3)]


def test_two_files_with_other_categories_get_numbers_of_their_own(tmp_path: Path) -> None:
    for name, names in (("one", ("van", "truck", "bus")), ("two", ("bus", "van", "tram"))):
        (tmp_path / name).mkdir()
        Drawn(names=names).write(tmp_path / name)
    addresses = [str(tmp_path / name / "instances_train.json") for name in ("one", "two")]
    run = run_on(load(*addresses), tmp_path / "run", addresses, VISITS)
    document = json_of(export(run, tmp_path / "out", "coco").out / "instances_suggested.json")
    assert [(category["id"], category["name"]) for category in document["categories"]] == [
        *((1, "van"), (2, "truck"), (3, "bus"), (4, "tram"))
    ]
