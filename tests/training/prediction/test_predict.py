"""Prediction: what the model sees, in whose pixels, under which ids and names."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import boxmend
from boxmend.detector import PaddedDetections
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.training.loader import resize
from boxmend.training.prediction import predict
from tests.training.prediction.prediction_runs import (
    NAMES,
    NUMBERS,
    SIDE,
    drawn,
    finished_run,
    lively_detector,
    pixels,
)


def detections_in(picture: np.ndarray) -> PaddedDetections:
    """Return the detections of the model in pixels [H, W, 3] that need no scaling."""
    height, width = picture.shape[:2]
    canvas = np.zeros((1, 3, -(-height // 32) * 32, -(-width // 32) * 32), np.uint8)
    canvas[0, :, :height, :width] = picture.transpose(2, 0, 1)
    sizes = torch.tensor([[height, width]])
    return lively_detector().detect(torch.from_numpy(canvas), sizes)


def boxes_of(results: list[dict[str, Any]]) -> np.ndarray:
    """Their boxes, xyxy."""
    boxes = np.array([result["bbox"] for result in results])
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def test_results_are_what_the_detector_finds(finished: Path, tmp_path: Path) -> None:
    path = drawn(tmp_path / "a.png", SIDE, 64)
    results = list(predict(finished, [path]).results())
    expected = detections_in(pixels(SIDE, 64))
    number = int(expected.is_detection.sum())
    assert len(results) == number > 3
    labels = expected.labels[0, :number].tolist()
    assert [result["category_name"] for result in results] == [NAMES[label] for label in labels]
    assert [result["category_id"] for result in results] == [NUMBERS[label] for label in labels]
    assert {(result["image_id"], result["file_name"]) for result in results} == {(1, "a.png")}
    scores = [result["score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_allclose(scores, expected.scores[0, :number], atol=2e-6)
    np.testing.assert_allclose(boxes_of(results), expected.boxes[0, :number], atol=2e-3)


def test_boxes_are_in_pixels_of_the_image_whatever_its_size(finished: Path, tmp_path: Path) -> None:
    path = drawn(tmp_path / "large.png", 4 * SIDE, 4 * 50)
    results = list(predict(finished, [path]).results())
    expected = detections_in(resize(pixels(4 * SIDE, 4 * 50), SIDE, 50))
    result = expected.boxes[0, expected.is_detection[0]]
    assert len(results) == len(result) > 3
    np.testing.assert_allclose(boxes_of(results), 4 * result, atol=5e-3)
    assert (boxes_of(results)[:, 2:] <= [4 * SIDE + 0.001, 200.001]).all()


def test_an_exif_rotation_is_not_applied_as_in_training(finished: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image = Image.fromarray(pixels(SIDE, 64))
    image.save(tmp_path / "turned.png", exif=exif)
    image.save(tmp_path / "upright.png")
    turned, upright = (
        list(predict(finished, [tmp_path / name]).results())
        for name in ("turned.png", "upright.png")
    )
    assert len(turned) > 3
    assert [one | {"file_name": ""} for one in turned] == [
        one | {"file_name": ""} for one in upright
    ]


def test_what_is_found_in_an_image_does_not_depend_on_the_others(
    finished: Path, tmp_path: Path
) -> None:
    sizes = [(96, 64), (64, 96), (300, 60), (96, 61)]
    paths = [drawn(tmp_path / f"{k}.png", *size, seed=k) for k, size in enumerate(sizes)]
    together = list(predict(finished, paths).results())
    assert [one["image_id"] for one in together] == sorted(one["image_id"] for one in together)
    for path in paths:
        alone = list(predict(finished, [path]).results())
        beside = [one for one in together if one["file_name"] == path.name]
        assert [one["category_id"] for one in alone] == [one["category_id"] for one in beside]
        np.testing.assert_allclose(boxes_of(alone), boxes_of(beside), atol=2e-3)


def test_the_file_of_the_model_is_enough(finished: Path, tmp_path: Path) -> None:
    path = drawn(tmp_path / "a.png")
    by_folder = list(predict(finished, [path]).results())
    copy = tmp_path / "mine.safetensors"
    copy.write_bytes((finished / "model.safetensors").read_bytes())
    assert list(predict(copy, [path]).results()) == by_folder


def test_a_run_whose_file_tells_little_is_asked_itself(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "old", card=None)
    results = list(predict(run, [drawn(tmp_path / "a.png")]).results())
    number_of = {result["category_name"]: result["category_id"] for result in results}
    assert number_of.items() <= {"disc": 1, "square": 2, "star": 3}.items()
    assert results


def test_a_threshold_leaves_out_what_scores_less(finished: Path, tmp_path: Path) -> None:
    path = drawn(tmp_path / "a.png")
    scores = [
        result["score"] for result in predict(finished, [path], score_threshold=0.02).results()
    ]
    middle = (scores[1] + scores[2]) / 2
    fewer = predict(finished, [path], score_threshold=middle)
    assert [result["score"] for result in fewer.results()] == scores[:2]
    none = predict(finished, [path], score_threshold=1.0)
    none.save(tmp_path / "none.json")
    assert json.loads((tmp_path / "none.json").read_bytes()) == []


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(finished: Path, threshold: float) -> None:
    with pytest.raises(UsageError, match=r"score_threshold is .*; expected a share from 0 to 1"):
        predict(finished, ["nowhere"], score_threshold=threshold)


def test_what_cannot_be_read_is_named_and_left_out(finished: Path, tmp_path: Path) -> None:
    good = drawn(tmp_path / "in" / "c.png")
    (tmp_path / "in" / "a.jpg").write_text("no image")
    whole = drawn(tmp_path / "whole.png", 90, 90, seed=4).read_bytes()
    (tmp_path / "in" / "b.png").write_bytes(whole[: len(whole) // 2])
    predictions = predict(finished, [tmp_path / "in"])
    assert predictions.num_images == 1
    assert [Path(message.split(": ")[0]).name for message in predictions.skipped] == [
        "a.jpg",
        "b.png",
    ]
    results = list(predictions.results())
    assert {(result["image_id"], result["file_name"]) for result in results} == {(3, "c.png")}
    assert len(results) == len(predict(finished, [good]))


def test_if_no_image_can_be_read_the_message_has_the_first_reason(
    finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jpg").write_text("no image")
    whole = drawn(tmp_path / "sub" / "whole.png").read_bytes()
    (tmp_path / "sub" / "whole.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        DataError, match=r"none of the 2 images can be read.*a\.jpg: its image form"
    ):
        predict(finished, [tmp_path])


def test_progress_counts_the_images(finished: Path, tmp_path: Path) -> None:
    for number in range(10):
        drawn(tmp_path / f"{number}.png", 32 + 6 * number, 64, seed=number)
    counts: list[tuple[int, int]] = []
    predict(finished, [tmp_path], progress=lambda done, total: counts.append((done, total)))
    assert counts[-1] == (10, 10)
    assert counts == sorted(counts)


def test_a_file_that_is_there_is_never_overwritten(finished: Path, tmp_path: Path) -> None:
    predictions = predict(finished, [drawn(tmp_path / "a.png")])
    mine = tmp_path / "mine.json"
    mine.write_text("precious")
    (tmp_path / ".mine.json.boxmend-partial").write_text("of a command that was killed")
    with pytest.raises(OutputError, match=r"mine.json: exists already and is not overwr"):
        predictions.save(mine)
    assert not list(tmp_path.glob(".*"))
    assert mine.read_text() == "precious"
    with pytest.raises(OutputError, match="exists already"):
        predictions.save(tmp_path)
    with pytest.raises(OutputError, match="its folder does not exist"):
        predictions.save(tmp_path / "nowhere" / "out.json")
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "elsewhere.json")  # where nothing is yet
    with pytest.raises(OutputError, match=r"link\.json: exists already"):
        predictions.save(link)
    link.unlink()
    predictions.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_bytes()) == list(predictions.results())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "mine.json", "new.json"]


def test_the_results_are_read_by_pycocotools(finished: Path, tmp_path: Path) -> None:
    from pycocotools.coco import COCO

    data = tmp_path / "instances_test.json"
    images = [{"id": 42, "file_name": "a.png", "width": SIDE, "height": 64}]
    categories = [{"id": k, "name": n} for k, n in zip(NUMBERS, NAMES, strict=True)]
    annotation = {"id": 1, "image_id": 42, "category_id": 7, "bbox": [1, 2, 30, 40], "area": 1200}
    document = {"images": images, "annotations": [annotation], "categories": categories}
    data.write_text(json.dumps(document))
    drawn(tmp_path / "a.png")
    predictions = predict(finished, [data])
    predictions.save(tmp_path / "found.json")
    loaded = COCO(str(data)).loadRes(str(tmp_path / "found.json"))
    assert set(loaded.getImgIds()) == {42}
    assert len(loaded.anns) == len(predictions) > 3


def test_the_name_is_public() -> None:
    assert boxmend.predict is predict
