"""The scores of a file of detections, from files to figures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import boxmend
from boxmend.auditing.predictions import read_coco_results
from boxmend.errors import DataError, UsageError
from boxmend.training.evaluation import evaluate, score
from tests.training.evaluation.scored_files import (
    AT_50,
    COCO_KEYS,
    DETECTIONS,
    EXPECTED,
    KEYS,
    as_json,
    by_pycocotools,
    random_files,
    two_images,
)


def test_two_images_and_three_detections_worked_out_by_hand(tmp_path: Path) -> None:
    path = as_json(tmp_path / "found.json", DETECTIONS)
    evaluation = boxmend.evaluate(predictions=path, data=two_images(tmp_path)).to_json()
    assert list(evaluation) == [*KEYS, "images", "detections", "annotations", "by_label"]
    assert {key: evaluation[key] for key in KEYS} == pytest.approx(EXPECTED, abs=1e-12)
    assert (evaluation["images"], evaluation["detections"], evaluation["annotations"]) == (2, 3, 2)
    assert list(evaluation["by_label"]) == ["cat", "dog"]
    assert evaluation["by_label"]["cat"] == pytest.approx(
        {
            "AP": EXPECTED["AP"],
            "AP50": AT_50,
            "voc_ap50_11point": 28 / 33,
            "voc_ap50_area": 5 / 6,
            "annotations": 2,
            "detections": 3,
        }
    )
    nothing = dict.fromkeys(("AP", "AP50", "voc_ap50_11point", "voc_ap50_area"))
    assert evaluation["by_label"]["dog"] == nothing | {"annotations": 0, "detections": 0}
    json.dumps(evaluation, allow_nan=False)


def test_names_instead_of_numbers_make_no_difference(tmp_path: Path) -> None:
    names = {9: "nine.jpg", 4: "four"}
    listed = [
        detection | {"image_id": names[detection["image_id"]], "category_id": "cat"}
        for detection in DETECTIONS
    ]
    path = as_json(tmp_path / "found.json", {"predictions": listed})
    evaluation = evaluate(predictions=path, data=[two_images(tmp_path)])
    assert evaluation.figures == pytest.approx(EXPECTED, abs=1e-12)


def test_an_id_of_two_joined_files_is_refused_unless_a_name_goes_with_it(tmp_path: Path) -> None:
    mine = two_images(tmp_path / "mine")
    theirs = two_images(
        tmp_path / "theirs",
        images=[{"id": 9, "file_name": "other.jpg"}, {"id": 5, "file_name": "four.jpg"}],
        annotations=[{"id": 1, "image_id": 9, "category_id": 5, "bbox": [10, 10, 20, 20]}],
    )
    joined = boxmend.load(mine, theirs)
    assert joined.images.ids[0] == 9  # the id is kept for the first of the two

    def rows(**values: Any) -> list[int]:
        path = as_json(tmp_path / "found.json", [DETECTIONS[0] | values])
        return list(read_coco_results(path, joined).image_rows)

    for identity in (9, "9"):
        with pytest.raises(
            DataError, match=r"detection 0 .*image_id .* means more than one image;"
        ):
            rows(image_id=identity)
    assert (rows(file_name="nine.jpg"), rows(file_name="other.jpg")) == ([0], [2])
    assert rows(image_id=4) == [1]
    with pytest.raises(DataError, match=r"file_name .four\.jpg. means more than one image; give"):
        rows(image_id=9, file_name="four.jpg")
    assert rows(image_id=4, file_name="four.jpg") == [1]


def test_boxes_by_corners_or_in_fractions_give_a_note(tmp_path: Path) -> None:
    data = two_images(tmp_path)
    # Of a box 400, 300 to 600, 400 the corners end at 1000 and 700 in an image of 640 x 480.
    by_corners = [detection | {"bbox": [400, 300, 600, 400]} for detection in DETECTIONS[:1]]
    evaluation = evaluate(
        predictions=as_json(tmp_path / "a.json", by_corners * 2 + DETECTIONS), data=data
    )
    assert evaluation.notes == [
        "2 of 5 boxes end far outside their images: bbox must be x, y, width and height in "
        "pixels of the stored image, not two corners"
    ]
    some = as_json(tmp_path / "b.json", by_corners + DETECTIONS * 2)
    assert evaluate(predictions=some, data=data).notes == []  # 1 of 7: less than a fifth
    fractions = [detection | {"bbox": [0.5, 0.25, 0.5, 0.5]} for detection in DETECTIONS]
    (note,) = evaluate(predictions=as_json(tmp_path / "c.json", fractions), data=data).notes
    assert "all boxes are within the first pixel" in note
    unknown = [{"id": 9, "file_name": "nine.jpg"}, {"id": 4, "file_name": "four.jpg"}]
    data = two_images(tmp_path, images=unknown)  # images of unknown size
    for name in ("a.json", "c.json"):
        assert evaluate(predictions=tmp_path / name, data=data).notes == []
    assert evaluate(predictions=as_json(tmp_path / "d.json", []), data=data).notes == []


# Also by area: half of these files give none, and then it is width times height.
@pytest.mark.parametrize("seed", range(12))
def test_the_figures_are_those_of_pycocotools_on_the_same_files(tmp_path: Path, seed: int) -> None:
    truth, result = random_files(tmp_path, seed)
    expected = by_pycocotools(truth, result)
    evaluation = evaluate(predictions=result, data=truth)
    assert {key: evaluation.figures[key] for key in COCO_KEYS} == pytest.approx(expected, abs=1e-9)
    assert 0.05 < (evaluation.figures["AP"] or 0) < 0.95
    document = json.loads(truth.read_text())
    for annotation in document["annotations"]:
        annotation["area"] = annotation["bbox"][2] * annotation["bbox"][3]
    expected = by_pycocotools(as_json(truth, document), result)
    for one in document["annotations"]:
        del one["area"]
    evaluation = evaluate(predictions=result, data=as_json(truth, document))
    assert {key: evaluation.figures[key] for key in COCO_KEYS} == pytest.approx(expected, abs=1e-9)


def test_formats_other_than_coco_are_scored_alike(tmp_path: Path) -> None:
    boxmend.synthesize(tmp_path / "coco", images=12)
    clean = boxmend.load(tmp_path / "coco")
    rng = np.random.default_rng(0)
    moved = clean.boxes + rng.normal(0, 2, clean.boxes.shape)
    entries = [
        {
            "image_id": clean.images.file_names[row],
            "category_name": clean.label_names[label],
            "bbox": [x1, y1, max(x2 - x1, 1), max(y2 - y1, 1)],
            "score": rng.random(),
        }
        for row, label, (x1, y1, x2, y2) in zip(
            clean.image_rows.tolist(), clean.labels.tolist(), moved.tolist(), strict=True
        )
    ]
    path = as_json(tmp_path / "found.json", entries)
    figures = [evaluate(predictions=path, data=tmp_path / "coco").figures]
    for name in ("voc", "yolo"):
        clean.save(tmp_path / name, format=name, allow_lossy=True)
        figures.append(evaluate(predictions=path, data=tmp_path / name).figures)
    assert 0.2 < (figures[0]["AP"] or 0) < 0.9
    assert figures[1] == pytest.approx(figures[0], abs=0.02)  # VOC has whole pixels
    assert figures[2] == pytest.approx(figures[0], abs=1e-6)


# A difficult dog found once, before the dog that is asked for: ignored, AP 1. As an ordinary one:
# T T. As a crowd for VOC's rule: ignored alike.
@pytest.mark.parametrize("flag", ["difficult", "iscrowd"])
def test_difficult_and_crowd_boxes_are_not_asked_for(tmp_path: Path, flag: str) -> None:
    box, far = [0, 0, 50, 50], [200, 200, 50, 50]
    entries = [
        {"id": 1, "image_id": 9, "category_id": 2, "bbox": box, flag: 1},
        {"id": 2, "image_id": 9, "category_id": 2, "bbox": far},
        {"id": 3, "image_id": 9, "category_id": 5, "bbox": far, flag: 1},
    ]
    data = two_images(tmp_path, annotations=entries)
    hits = [{"image_id": 9, "category_id": 2, "bbox": one, "score": 0.5} for one in (box, far)]
    evaluation = evaluate(predictions=as_json(tmp_path / "found.json", hits), data=data)
    assert evaluation.figures["AP"] == pytest.approx(1.0)
    assert evaluation.figures["voc_ap50_area"] == evaluation.figures["voc_ap50_11point"] == 1.0
    assert evaluation.num_annotations == 3
    assert evaluation.by_label["cat"]["AP"] is None
    assert evaluation.by_label["cat"]["voc_ap50_area"] is None
    assert evaluation.by_label["cat"]["annotations"] == 1


def test_nothing_to_be_found_gives_null_and_no_detection_gives_zero(tmp_path: Path) -> None:
    path = as_json(tmp_path / "found.json", DETECTIONS)
    empty = two_images(tmp_path / "empty", annotations=[])
    evaluation = evaluate(predictions=path, data=empty).to_json()
    assert {evaluation[key] for key in KEYS} == {None}
    nothing = as_json(tmp_path / "nothing.json", [])
    evaluation = evaluate(predictions=nothing, data=two_images(tmp_path)).to_json()
    assert (
        evaluation["AP"],
        evaluation["AR_100"],
        evaluation["voc_ap50_area"],
        evaluation["AP_medium"],
    ) == (0, 0, 0, None)
    bare = two_images(tmp_path / "bare", annotations=[], images=[], categories=[])
    evaluation = evaluate(predictions=nothing, data=bare).to_json()
    assert {evaluation[key] for key in KEYS} == {None}
    assert evaluation["by_label"] == {}


def test_images_of_several_datasets_are_distinguished_by_name(tmp_path: Path) -> None:
    one = two_images(tmp_path / "one")
    other = two_images(
        tmp_path / "other",
        images=[{"id": 9, "file_name": "more.jpg"}],
        annotations=[{"id": 1, "image_id": 9, "category_id": 5, "bbox": [5, 5, 40, 40]}],
        categories=[{"id": 5, "name": "dog"}],
    )
    hit = {"file_name": "more.jpg", "category_name": "dog", "bbox": [5, 5, 40, 40], "score": 1}
    evaluation = evaluate(predictions=as_json(tmp_path / "found.json", [hit]), data=[one, other])
    assert evaluation.by_label["dog"]["AP"] == pytest.approx(1.0)
    assert evaluation.by_label["cat"]["AP"] == 0.0
    unclear = {"image_id": 4, "category_id": 5, "bbox": [5, 5, 40, 40], "score": 1}
    with pytest.raises(DataError, match="no class with category_id 5"):  # cat here, dog there
        evaluate(predictions=as_json(tmp_path / "other.json", [unclear]), data=[one, other])


def test_scores_of_a_changed_dataset_are_those_of_its_columns(tmp_path: Path) -> None:
    dataset = boxmend.load(two_images(tmp_path))
    dataset.boxes[1] = [0, 0, 100, 82]  # as the third detection has it; 8,200 pixels: medium
    predictions = read_coco_results(as_json(tmp_path / "found.json", DETECTIONS), dataset)
    evaluation = score(predictions, dataset)
    assert evaluation.figures["AP"] == pytest.approx(AT_50)
    assert evaluation.figures["AP_medium"] == pytest.approx(1.0)
    assert evaluation.figures["AP_large"] is None


def test_annotations_of_no_known_image_or_class_are_not_asked_for(tmp_path: Path) -> None:
    dataset = boxmend.load(two_images(tmp_path))
    dataset.image_rows[1] = -1
    predictions = read_coco_results(as_json(tmp_path / "found.json", DETECTIONS[:1]), dataset)
    evaluation = score(predictions, dataset)
    assert evaluation.figures["AP"] == pytest.approx(1.0)
    assert (
        evaluation.num_annotations == evaluation.by_label["cat"]["annotations"] == 2
    )  # they are there
    dataset.labels[0] = -1
    assert score(predictions, dataset).figures["AP"] is None


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({}, UsageError, "give either a run or --predictions"),
        ({"run": "r", "predictions": "p"}, UsageError, "give either a run or --predictions"),
        ({"predictions": "p", "data": ()}, UsageError, "no data to score on"),
        ({"predictions": "nowhere.json"}, UsageError, "nowhere.json: no such file"),
        ({"predictions": "p", "detections_out": "o"}, UsageError, "--detections-out writes"),
        ({"predictions": "p", "data": "nowhere"}, UsageError, "nowhere: no such file or folder"),
    ],
)
def test_wrong_use_is_refused(
    tmp_path: Path, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        evaluate(**({"data": two_images(tmp_path)} | arguments))


def test_scoring_a_file_imports_no_torch_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = as_json(tmp_path / "found.json", DETECTIONS)
    tokens = ["evaluate", "--predictions", str(path), "--data", str(two_images(tmp_path))]
    before = sorted(tmp_path.iterdir())
    code = f"import sys; from boxmend.cli import run; run({tokens}); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "voc_ap50_area" in done.stdout
    assert sorted(tmp_path.iterdir()) == before
