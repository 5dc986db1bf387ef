"""Sheets of images with boxes: sizes, places and colours."""

from pathlib import Path

import pytest
from PIL import Image

from boxmend.data.images.drawing import GAP_PIXELS, GREEN, RED, Outline, Panel, draw_sheet


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "grey.png"
    Image.new("RGB", (40, 20), (90, 90, 90)).save(path)
    return path


def draw_panel(photo: Path, outline: Outline) -> Image.Image:
    """Draw one panel, ten times as large as the image, and cut it out of its sheet."""
    sheet = draw_sheet([Panel(photo, [outline])], columns=1, side=400)
    return sheet.crop((GAP_PIXELS, GAP_PIXELS, GAP_PIXELS + 400, GAP_PIXELS + 200))


def test_a_sheet_has_room_for_all_panels(photo: Path) -> None:
    picture = draw_sheet([Panel(photo, [])] * 5, columns=2, side=100)
    step = 100 + GAP_PIXELS
    assert picture.size == (2 * step + GAP_PIXELS, 3 * step + GAP_PIXELS)


def test_a_box_is_drawn_where_the_scaled_box_lies(photo: Path) -> None:
    picture = draw_panel(photo, Outline((10, 5, 30, 15), RED))
    assert picture.getpixel((100, 100)) == RED  # left edge of the box
    assert picture.getpixel((299, 100)) == RED  # right edge, half-open
    assert picture.getpixel((200, 51)) == RED  # upper edge
    assert picture.getpixel((200, 100)) == (90, 90, 90)  # inside
    assert picture.getpixel((310, 100)) == (90, 90, 90)  # outside


def test_a_caption_stays_inside_the_image(photo: Path) -> None:
    picture = draw_panel(photo, Outline((38, 0, 40, 2), GREEN, "a rather long caption"))
    row = [picture.getpixel((x, 2)) for x in range(400)]
    assert row.count(GREEN) > 60  # the background of the caption, moved left to fit
