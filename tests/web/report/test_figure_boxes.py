"""The figure of boxes on images: what is chosen, where lines lie, and files that are no images."""

import base64
import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from boxmend.data.types import Box
from boxmend.web.report.figures.boxes import boxes
from boxmend.web.report.figures.examples import examples
from boxmend.web.report.record import Figure, RunRecord
from tests.fabricated_runs import BOXES, DISCARDED, KEPT, RELABELLED
from tests.web.report.drawn_records import made_dataset, made_record, made_run, seen, telling_record
from tests.web.report.read_drawings import found, numbers, texts

FAR: Box = (10, 10, 30, 30)  # half of the first of BOXES


def draw_figure(record: RunRecord) -> Figure:
    figure = boxes(record)
    assert figure is not None
    return figure


def outlines(figure: Figure, color: str) -> list[list[float]]:
    rects = [one for one in found(figure.svg, "rect") if one.get("stroke") == color]
    return [numbers(rect, "x", "y", "width", "height") for rect in rects]


def test_the_three_boxes_of_an_annotation_are_listed_and_drawn_to_scale(tmp_path: Path) -> None:
    figure = draw_figure(telling_record(tmp_path))
    assert [row[:4] for row in figure.rows] == [
        (11, "0.png", "truck", "bus"),
        (13, "1.png", "van", "van"),
    ]
    assert figure.rows[0][4:6] == pytest.approx((0.8, 0.5))
    assert figure.rows[0][6:] == (40, 20, 60, 40, 40, 20, 64, 40, 40, 20, 60, 30)
    red, yellow, white = (outlines(figure, one)[0] for one in ("#ff4d4d", "#ffd400", "#ffffff"))
    scale = red[2] / 20  # the annotated box is 20 wide
    assert red[3] == pytest.approx(20 * scale, abs=0.02)
    assert yellow == pytest.approx([red[0], red[1], 24 * scale, 20 * scale], abs=0.02)
    assert white == pytest.approx([red[0], red[1], 20 * scale, 10 * scale], abs=0.02)
    assert "truck → bus" in texts(figure.svg)


def test_every_line_has_a_dark_one_under_it_and_a_dash_of_its_own(tmp_path: Path) -> None:
    figure = draw_figure(telling_record(tmp_path))
    rects = [one for one in found(figure.svg, "rect") if one.get("stroke")]
    assert [rect.get("stroke") for rect in rects[:3]] == ["#101418"] * 3
    places = [numbers(rect, "x", "y", "width", "height") for rect in rects[:6]]
    assert places[:3] == places[3:]  # below all: boxes in the same place show through the dashes
    dashes = [rect.get("stroke-dasharray") for rect in rects[3:6]]
    assert len(set(dashes)) == 3


def test_the_image_is_embedded_and_shows_what_surrounds_the_boxes(tmp_path: Path) -> None:
    dataset = made_dataset([(300, 200, 500, 300)], [0], folder=tmp_path)
    picture = Image.new("RGB", (1000, 800), (200, 30, 30))
    picture.paste((30, 30, 200), (300, 200, 500, 300))
    picture.save(tmp_path / "0.png")
    visits = [seen(0, 0, RELABELLED, 1, confidence=0.9, box=(300, 200, 500, 300))]
    figure = draw_figure(made_record(visits, dataset=dataset))
    element = found(figure.svg, "image")[0]
    kind, _, data = element.attrib["href"].partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        assert image.format == "JPEG"
        assert max(image.size) == 320
        pixels = np.asarray(image.convert("RGB")).astype(np.int64)
    left, top, width, height = numbers(element, "x", "y", "width", "height")
    (x, y, wide, high), *_ = outlines(figure, "#ffffff")

    def is_blue(at_x: float, at_y: float) -> bool:
        row, column = (at_y - top) / height * len(pixels), (at_x - left) / width * 320
        red, _, blue = pixels[int(row), int(column)]
        return bool(blue > red)

    # In the drawing the box is where the blue of the picture is: three units inside of the middle
    # of each side, and not three units outside.
    center_x, center_y = x + wide / 2, y + high / 2
    for by, expected in ((-3, True), (3, False)):
        assert is_blue(x - by, center_y) is expected
        assert is_blue(x + wide + by, center_y) is expected
        assert is_blue(center_x, y - by) is expected
        assert is_blue(center_x, y + high + by) is expected


def test_relabelled_and_sure_ones_come_first_each_image_once_and_new_labels_by_turns() -> None:
    dataset = made_dataset([BOXES[0]] * 10, [0] * 10)  # two annotations an image
    visits = [
        seen(0, 0, RELABELLED, 1, confidence=0.6),
        seen(0, 1, RELABELLED, 2, confidence=0.5),  # the same image as the one before
        seen(0, 2, RELABELLED, 1, confidence=0.9),
        seen(0, 4, RELABELLED, 2, confidence=0.7),
        seen(0, 6, KEPT, confidence=0.99, box=FAR),  # moved only
        seen(0, 8, DISCARDED, confidence=0.9, box=FAR),  # of unknown class
        seen(0, 9, KEPT, confidence=0.99, box=(10, 10, 30, 48)),  # hardly moved
    ]
    # A score is the confidence, times 1 for a label or 0.5 for a box of half the overlap, times
    # 20 / 32 for the narrow side: rows 2, 4, 0, 1, 6. Rows 0 and 1 repeat a new label and
    # wait; then row 0 is taken, and row 1 is on its image.
    assert list(examples(made_run(dataset, visits))) == [2, 4, 6, 0]


def test_visits_that_disagree_count_less() -> None:
    dataset = made_dataset([BOXES[0]] * 4, [0] * 4)
    visits = [
        seen(epoch, row, RELABELLED, label, confidence=0.9)
        for epoch in range(6)
        for row, label in ((0, 1 + epoch % 2), (2, 1))
    ]
    assert list(examples(made_run(dataset, visits))) == [2, 0]


def test_at_most_six_are_shown_and_always_the_same(tmp_path: Path) -> None:
    dataset = made_dataset([BOXES[0]] * 20, [0] * 20, folder=tmp_path)
    visits = [seen(0, row, RELABELLED, 1 + row % 2, confidence=0.9) for row in range(20)]
    record = made_record(visits, dataset=dataset)
    first, second = draw_figure(record), draw_figure(record)
    assert len(first.rows) == len(found(first.svg, "image")) == 6
    assert first == second


@pytest.mark.parametrize("kind", ["missing", "empty", "text", "truncated", "folder", "pipe"])
def test_images_that_cannot_be_read_are_passed_over(kind: str, tmp_path: Path) -> None:
    record = telling_record(tmp_path)
    path = tmp_path / "0.png"
    whole = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes({"empty": b"", "text": b"no image", "truncated": whole[:40]}[kind])
    assert [row[1] for row in draw_figure(record).rows] == ["1.png"]


def test_where_no_image_can_be_read_there_is_no_figure() -> None:
    assert boxes(telling_record()) is None  # no folder is known
    assert boxes(made_record([])) is None


def test_an_image_that_exif_would_turn_is_shown_as_stored(tmp_path: Path) -> None:
    dataset = made_dataset([(10, 10, 60, 30)], [0], folder=tmp_path)
    picture = Image.new("RGB", (100, 40), (0, 160, 0))
    exif = picture.getexif()
    exif[0x0112] = 6  # a quarter turn
    path = tmp_path / "turned.jpg"
    picture.save(path, exif=exif)
    dataset = replace(dataset, images=replace(dataset.images, paths=[str(path)]))
    record = made_record([seen(0, 0, RELABELLED, 1, confidence=0.9)], dataset=dataset)
    element = found(draw_figure(record).svg, "image")[0]
    data = base64.b64decode(element.attrib["href"].partition(",")[2])
    with Image.open(io.BytesIO(data)) as image:
        assert image.width > image.height
        assert 0x0112 not in image.getexif()


def test_boxes_that_are_not_finite_are_not_shown(tmp_path: Path) -> None:
    dataset = made_dataset(folder=tmp_path)
    nan = float("nan")
    visits = [seen(0, 0, RELABELLED, 1, confidence=0.9, matched=(nan, nan, nan, nan))]
    assert boxes(made_record(visits, dataset=dataset)) is None
