"""Tasks and configuration for Label Studio; percents by hand for images of 200 x 100 pixels."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from boxmend import __version__
from boxmend.repair.export import ExportOptions, export
from boxmend.runs.ledger import Judgement
from tests.repair.export.exported_runs import Drawn, drawn_run, exported, json_of, seen


def tasks_in(folder: Path, **options: Any) -> list[Any]:
    tasks: list[Any] = json_of(exported(folder, "label-studio", **options) / "tasks.json")
    return tasks


def regions_of(task: Any) -> dict[int, Any]:
    """Regions by annotation id, joined as whoever reads verdicts back would."""
    ids = {one["region"]: one["annotation_id"] for one in task["data"]["boxmend"]}
    assert len(ids) == len(task["predictions"][0]["result"])
    return {ids[region["id"]]: region for region in task["predictions"][0]["result"]}


def test_boxes_are_percents_of_their_image(tmp_path: Path) -> None:
    unsure, other = tasks_in(tmp_path)
    value = regions_of(other)[10]["value"]
    # (20, 10, 80, 50): 20 of 200, 10 of 100, 60 of 200, 40 of 100
    assert value == {
        "x": 10.0,
        "y": 10.0,
        "width": 30.0,
        "height": 40.0,
        "rotation": 0,
        "rectanglelabels": ["truck"],
    }
    # moved to (100, 20, 150, 60): 50 of 200 wide now
    moved = regions_of(other)[11]["value"]
    assert [moved[key] for key in ("x", "y", "width", "height")] == [50.0, 20.0, 25.0, 40.0]
    # (10, 50, 30, 90)
    doubted = regions_of(unsure)[13]["value"]
    assert [doubted[key] for key in ("x", "y", "width", "height")] == [5.0, 50.0, 10.0, 40.0]
    assert doubted["rectanglelabels"] == ["van"]


def test_a_region_has_what_label_studio_asks_for(tmp_path: Path) -> None:
    region = regions_of(tasks_in(tmp_path)[1])[10]
    assert region["type"] == "rectanglelabels"
    assert (region["from_name"], region["to_name"]) == ("label", "image")
    assert (region["original_width"], region["original_height"]) == (200, 100)
    assert region["score"] == 0.875
    assert region["meta"] == {"text": ["label: truck instead of van in 1 of 1 visits"]}


def test_the_most_suspicious_image_comes_first_with_its_lowest_score(tmp_path: Path) -> None:
    first, second = tasks_in(tmp_path)
    assert [task["data"]["file_name"] for task in (first, second)] == ["b.png", "a.png"]
    assert [task["data"]["suspicion"] for task in (first, second)] == [0.9, 0.75]
    assert [task["data"]["suspects"] for task in (first, second)] == [1, 2]
    assert first["predictions"][0]["score"] == 0.25
    assert second["predictions"][0]["score"] == 0.5  # of 0.875 and 0.5
    assert second["predictions"][0]["model_version"] == f"boxmend {__version__}"


def test_what_was_before_stands_in_the_data_of_the_task(tmp_path: Path) -> None:
    originals = {one["annotation_id"]: one for one in tasks_in(tmp_path)[1]["data"]["boxmend"]}
    assert originals[10] == {
        "region": "annotation-0",
        "annotation_id": 10,
        "status": "suspect",
        "old_label": "van",
        "old_box": [20, 10, 80, 50],
        "label": "truck",
        "box": [20, 10, 80, 50],
        "score": 0.875,
        "doubt": 0.75,
        "suspicion": 0.75,
        "reason": "label: truck instead of van in 1 of 1 visits",
    }
    assert (originals[11]["old_box"], originals[11]["box"]) == (
        [100, 20, 140, 60],
        [100, 20, 150, 60],
    )
    assert originals[12] == {
        "region": "annotation-2",
        "annotation_id": 12,
        "status": "ignored",
        "old_label": "bus",
        "old_box": [0, 0, 200, 100],
    }


def test_other_annotations_come_along_without_a_score_or_not_at_all(tmp_path: Path) -> None:
    whole = regions_of(tasks_in(tmp_path / "whole")[0])
    assert sorted(whole) == [13, 14, 15]
    assert "score" not in whole[14]
    assert whole[14]["meta"] == {"text": ["as annotated"]}
    alone = regions_of(tasks_in(tmp_path / "alone", whole_images=False)[0])
    assert sorted(alone) == [13]


def test_the_configuration_has_every_label_and_the_names_that_regions_use(tmp_path: Path) -> None:
    view = ElementTree.parse(exported(tmp_path, "label-studio") / "config.xml").getroot()
    image, control = view.find("Image"), view.find("RectangleLabels")
    assert image is not None
    assert control is not None
    assert image.attrib["name"] == control.attrib["toName"] == "image"
    assert image.attrib["value"] == "$image"
    assert control.attrib["name"] == "label"
    assert [label.attrib["value"] for label in control] == ["van", "truck", "bus"]


def test_images_are_local_files_by_default(tmp_path: Path) -> None:
    address = urlsplit(tasks_in(tmp_path)[0]["data"]["image"])
    assert address.path == "/data/local-files/"
    assert parse_qs(address.query) == {"d": [str(tmp_path / "data/images/b.png").lstrip("/")]}


def test_copies_in_the_output_are_addressed_where_they_lie(tmp_path: Path) -> None:
    address = tasks_in(tmp_path, images_as="copy")[0]["data"]["image"]
    path = Path("/" + parse_qs(urlsplit(address).query)["d"][0])
    assert path == tmp_path / "out/images/b.png"
    assert path.is_file()
    assert not path.is_symlink()


def test_a_prefix_takes_the_place_of_local_files(tmp_path: Path) -> None:
    drawn = Drawn(file_names=("x y/a#1?.png", "ä%20.png"))
    run = drawn_run(tmp_path, drawn)
    options = ExportOptions(image_prefix="https://host/photos/")
    out = export(run, tmp_path / "out", "label-studio", options=options).out
    addresses = {one["data"]["image"] for one in json_of(out / "tasks.json")}
    assert addresses == {
        "https://host/photos/x%20y/a%231%3F.png",
        "https://host/photos/%C3%A4%2520.png",
    }
    assert {unquote(address).split("photos/")[1] for address in addresses} == set(drawn.file_names)


@pytest.mark.parametrize("box", [[-50, -20, 400, 300], [150, 90, 100, 100]])
def test_a_box_beyond_the_image_is_cut_at_its_border(tmp_path: Path, box: list[float]) -> None:
    drawn = Drawn()
    drawn.boxes[4] = box
    out = exported(tmp_path, "label-studio", drawn)
    value = regions_of(json_of(out / "tasks.json")[0])[14]["value"]
    assert [value[key] for key in ("x", "y", "width", "height")] == (
        [0.0, 0.0, 100.0, 100.0] if box[0] < 0 else [75.0, 90.0, 25.0, 10.0]
    )


def test_a_dollar_is_no_variable(tmp_path: Path) -> None:
    out = exported(tmp_path, "label-studio", Drawn(names=("$image", "a$b", "c")))
    control = ElementTree.parse(out / "config.xml").getroot().find("RectangleLabels")
    assert control is not None
    assert [label.attrib["value"] for label in control] == ["\uff04image", "a\uff04b", "c"]
    written = json_of(out / "export.json")["labels"]
    assert written[0] == {"label": 0, "label_name": "$image", "written_as": "\uff04image"}


def test_suspects_stand_on_top_of_the_regions(tmp_path: Path) -> None:
    run = drawn_run(tmp_path, visits=[seen(2), seen(4, Judgement.DISCARDED, 3.0)])
    task = json_of(export(run, tmp_path / "out", "label-studio").out / "tasks.json")[0]
    assert [region["id"] for region in task["predictions"][0]["result"]] == [
        *("annotation-4", "annotation-3", "annotation-5")
    ]
    assert task["data"]["boxmend"][0]["region"] == "annotation-4"
