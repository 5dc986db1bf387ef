"""Samples for FiftyOne; shares by hand for images of 200 x 100 pixels."""

from pathlib import Path
from typing import Any

from boxmend.repair.export import export
from boxmend.runs.ledger import Judgement
from tests.repair.export.exported_runs import drawn_run, exported, json_of, seen


def samples_in(out: Path) -> list[Any]:
    samples: list[Any] = json_of(out / "samples.json")["samples"]
    return samples


def detections(sample: Any, field: str) -> dict[str, Any]:
    assert sample[field]["_cls"] == "Detections"
    return {detection["annotation_id"]: detection for detection in sample[field]["detections"]}


def test_both_fields_have_shares_of_the_image(tmp_path: Path) -> None:
    first = samples_in(exported(tmp_path, "fiftyone"))[0]
    annotated, mended = detections(first, "annotated"), detections(first, "mended")
    # (100, 20, 140, 60) became (100, 20, 150, 60): x 100/200, y 20/100, w 40/200 or 50/200
    assert annotated["11"]["bounding_box"] == [0.5, 0.2, 0.2, 0.4]
    assert mended["11"]["bounding_box"] == [0.5, 0.2, 0.25, 0.4]
    assert (annotated["10"]["label"], mended["10"]["label"]) == ("van", "truck")


def test_a_suggestion_has_confidence_doubt_and_what_was_before(tmp_path: Path) -> None:
    first = samples_in(exported(tmp_path, "fiftyone"))[0]
    assert detections(first, "mended")["10"] == {
        "_cls": "Detection",
        "label": "truck",
        "bounding_box": [0.1, 0.1, 0.3, 0.4],
        "confidence": 0.875,
        "doubt": 0.75,
        "suspicion": 0.75,
        "reason": "label: truck instead of van in 1 of 1 visits",
        "old_label": "van",
        "old_box": [20.0, 10.0, 80.0, 50.0],
        "annotation_id": "10",
    }


def test_all_annotations_are_there_but_only_suspects_have_a_suggestion(tmp_path: Path) -> None:
    first, second = samples_in(exported(tmp_path, "fiftyone"))
    statuses = {key: one["status"] for key, one in detections(first, "annotated").items()}
    assert statuses == {"10": "suspect", "11": "suspect", "12": "ignored"}
    assert set(detections(first, "mended")) == {"10", "11"}
    assert set(detections(second, "annotated")) == {"13", "14", "15"}
    assert set(detections(second, "mended")) == {"13"}
    assert (first["suspicion"], second["suspicion"]) == (0.75, 0.9)


def test_without_the_rest_of_the_image_only_suspects_are_there(tmp_path: Path) -> None:
    second = samples_in(exported(tmp_path, "fiftyone", whole_images=False))[1]
    assert set(detections(second, "annotated")) == {"13"}


def test_files_are_absolute_or_lie_in_the_folder(tmp_path: Path) -> None:
    named = samples_in(exported(tmp_path / "named", "fiftyone"))[0]
    assert named["filepath"] == str(tmp_path / "named/data/images/a.png")
    linked = samples_in(exported(tmp_path / "linked", "fiftyone", images_as="link"))[0]
    assert linked["filepath"] == "images/a.png"
    link = tmp_path / "linked/out/images/a.png"
    assert link.is_symlink()
    assert link.is_file()
    assert linked["metadata"] == {"_cls": "ImageMetadata", "width": 200, "height": 100}


def test_numbers_are_floats_so_that_their_type_is_the_same_everywhere(tmp_path: Path) -> None:
    visits = [seen(0, Judgement.KEPT, 0.0, confidence=1.0), seen(1, Judgement.KEPT, 9.0)]
    out = export(drawn_run(tmp_path, visits=visits), tmp_path / "out", "fiftyone", most=2).out
    result = detections(samples_in(out)[0], "mended")
    for one in result.values():
        for key in ("confidence", "doubt", "suspicion"):
            assert type(one.get(key, 0.0)) is float
    assert "confidence" not in result["11"]  # the method has none, and NaN is no JSON


def test_there_is_no_version_that_would_have_to_fit(tmp_path: Path) -> None:
    out = exported(tmp_path, "fiftyone")
    assert not (out / "metadata.json").exists()
    assert set(json_of(out / "samples.json")) == {"samples"}
