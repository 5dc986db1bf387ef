"""Pictures of annotations: what is cut out, what is kept, and what hostile files do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from boxmend.errors import OutputError
from boxmend.web.thumbnails import Request, make_pictures, pictures_of, remove_others, window

KINDS = ("gone", "text", "torn", "empty", "pipe", "link")


def halves(path: Path, size: tuple[int, int] = (200, 100), **options: Any) -> str:
    """An image whose left half is red and whose right half is blue."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    pixels[:, : size[0] // 2, 0] = 255
    pixels[:, size[0] // 2 :, 2] = 255
    Image.fromarray(pixels).save(path, **options)
    return str(path)


def pixel(picture: Image.Image, x: int, y: int) -> tuple[int, ...]:
    """The colour at a place."""
    result = picture.getpixel((x, y))
    assert isinstance(result, tuple)
    return result


def test_a_window_is_1_6_times_as_large_and_four_to_three() -> None:
    # 60 x 45 is 4:3 already: 96 x 72 around (150, 150).
    assert window((120, 127.5, 180, 172.5), (300, 300)) == (102, 114, 198, 186)
    # 30 x 60: 48 x 96 becomes 128 x 96.
    assert window((135, 120, 165, 180), (300, 300)) == (86, 102, 214, 198)
    # 90 x 15: 144 x 24 becomes 144 x 108.
    assert window((105, 142.5, 195, 157.5), (300, 300)) == (78, 96, 222, 204)


def test_a_window_of_a_tiny_box_shows_its_surroundings() -> None:
    # At least a fifth of the long side, 40 pixels: 53.3 x 40 from (73.3, 80) to (126.7, 120).
    assert window((99, 99, 101, 101), (200, 200)) == (73, 80, 127, 120)
    assert window((99, 49, 101, 51), (200, 100)) == (73, 30, 127, 70)


def test_the_whole_of_an_image_is_made_once_and_small(tmp_path: Path) -> None:
    path = halves(tmp_path / "a.png")
    boxes: list[tuple[float, float, float, float]] = [(10, 40, 30, 55), (170, 40, 190, 55)]
    made = pictures_of(Request(path, boxes), tmp_path, side=256, whole_side=50)
    assert made.size == (200, 100)
    assert made.whole not in made.names
    assert len(made.names) == len(made.windows) == 2
    with Image.open(tmp_path / made.whole) as picture:
        assert picture.size == (50, 25)  # 200 x 100 to a quarter
        assert pixel(picture, 5, 12)[0] > 200  # red on the left
        assert pixel(picture, 45, 12)[2] > 200  # blue on the right
    written = (tmp_path / made.whole).stat().st_mtime_ns
    assert pictures_of(Request(path, boxes), tmp_path, side=256, whole_side=50) == made
    assert (tmp_path / made.whole).stat().st_mtime_ns == written
    assert pictures_of(Request(path, boxes), tmp_path, side=256).whole == ""


def test_a_window_is_moved_into_the_image_and_never_larger_than_it() -> None:
    assert window((0, 0, 60, 45), (300, 300)) == (0, 0, 96, 72)
    assert window((240, 255, 300, 300), (300, 300)) == (204, 228, 300, 300)
    assert window((0, 0, 100, 90), (100, 90)) == (0, 0, 100, 90)
    assert window((float("nan"), 0, 1, 1), (100, 90)) == (0, 0, 100, 90)
    assert window((float("-inf"), 0, 1, 1), (100, 90)) == (0, 0, 100, 90)


sides = st.floats(-1e7, 1e7)


@given(st.tuples(sides, sides, sides, sides), st.tuples(st.integers(1, 5000), st.integers(1, 5000)))
def test_a_window_always_lies_in_the_image(
    box: tuple[float, float, float, float], size: tuple[int, int]
) -> None:
    x1, y1, x2, y2 = window(box, size)
    assert 0 <= x1 < x2 <= size[0]
    assert 0 <= y1 < y2 <= size[1]


def test_pictures_show_their_part_of_the_image(tmp_path: Path) -> None:
    path = halves(tmp_path / "a.png")
    made = pictures_of(Request(path, [(10, 40, 30, 55), (170, 40, 190, 55)]), tmp_path, side=256)
    assert made.problem == ""
    # A fifth of 200 is 40: 53.3 x 40 around (20, 47.5) and (180, 47.5), moved inside.
    assert made.windows == [(0, 27, 54, 68), (146, 27, 200, 68)]
    colors: list[tuple[int, ...]] = []
    for name in made.names:
        with Image.open(tmp_path / name) as picture:
            assert picture.format == "JPEG"
            assert picture.size == (54, 41)  # as stored: never enlarged
            colors.append(pixel(picture, 16, 12))
    assert colors[0][0] > 200 > 50 > colors[0][2]
    assert colors[1][2] > 200 > 50 > colors[1][0]


def test_large_windows_shrink_to_the_side_also_by_the_shortcut_of_jpeg(tmp_path: Path) -> None:
    path = halves(tmp_path / "a.jpg", (2000, 1500))
    boxes = [(100.0, 100.0, 1900.0, 1400.0)]
    made = pictures_of(Request(path, boxes), tmp_path, side=100)
    assert made.windows == [(0, 0, 2000, 1500)]
    with Image.open(tmp_path / made.names[0]) as picture:
        assert picture.size == (100, 75)
        assert pixel(picture, 20, 40)[0] > 200
        assert pixel(picture, 80, 40)[2] > 200


def test_pictures_have_the_stored_pixels_and_no_metadata(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a viewer would turn it by a quarter
    path = halves(tmp_path / "a.jpg", exif=exif, comment=b"taken at home", icc_profile=b"x" * 200)
    made = pictures_of(Request(path, [(0, 0, 200, 100)]), tmp_path, side=256)
    with Image.open(tmp_path / made.names[0]) as picture:
        assert picture.size == (200, 100)
        assert not picture.getexif()
        assert {"comment", "icc_profile", "exif"}.isdisjoint(picture.info)
        assert pixel(picture, 20, 50)[0] > 200


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK", "I;16", "I", "F"])
def test_every_mode_of_pixels_becomes_a_picture(tmp_path: Path, mode: str) -> None:
    ending = "tif" if mode in ("CMYK", "I;16", "I", "F") else "png"
    grey = Image.new("L", (40, 30), 128)
    if mode in ("I;16", "I"):
        image = Image.fromarray(
            np.full((30, 40), 128 * 256, np.uint16 if mode != "I" else np.int32)
        )
    else:
        image = grey.convert(mode)
    image.save(tmp_path / f"a.{ending}")
    made = pictures_of(Request(str(tmp_path / f"a.{ending}"), [(0, 0, 40, 30)]), tmp_path, side=64)
    assert made.problem == ""
    with Image.open(tmp_path / made.names[0]) as picture:
        assert picture.mode == "RGB"
        if mode != "1":
            assert pixel(picture, 20, 15)[0] == pytest.approx(128, abs=4)


def test_what_is_there_is_not_made_again_and_a_new_image_is(tmp_path: Path) -> None:
    path = halves(tmp_path / "a.png")
    request = Request(path, [(10, 40, 30, 55)])
    first = pictures_of(request, tmp_path, side=256)
    written = (tmp_path / first.names[0]).stat().st_mtime_ns
    assert pictures_of(request, tmp_path, side=256) == first
    assert (tmp_path / first.names[0]).stat().st_mtime_ns == written
    os.utime(path, ns=(1, 1))
    assert pictures_of(request, tmp_path, side=256).names != first.names
    assert pictures_of(request, tmp_path, side=128).names != first.names


def test_a_torn_picture_is_made_again(tmp_path: Path) -> None:
    request = Request(halves(tmp_path / "a.png"), [(10, 40, 30, 55)])
    path = tmp_path / pictures_of(request, tmp_path, side=256).names[0]
    whole = path.read_bytes()
    for torn in (b"", whole[:-20]):
        path.write_bytes(torn)
        pictures_of(request, tmp_path, side=256)
        assert path.read_bytes() == whole


def test_files_that_are_no_images_have_a_problem(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("no image")
    whole = Path(halves(tmp_path / "whole.jpg", (400, 300))).read_bytes()
    (tmp_path / "torn.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").write_bytes(b"")
    Image.new("1", (20_000, 20_000)).save(tmp_path / "bomb.png")
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "link.jpg").symlink_to(tmp_path / "secret" / "place.jpg")
    problems = {
        name: pictures_of(Request(name and str(tmp_path / name), [(0, 0, 9, 9)]), tmp_path, side=64)
        for name in ("", *(f"{kind}.jpg" for kind in KINDS), "bomb.png")
    }
    assert all(made.names == [] and made.problem for made in problems.values())
    assert "the folder of the image is unknown" in problems[""].problem
    assert "no such file" in problems["gone.jpg"].problem
    assert problems["link.jpg"].problem == "a broken link"
    assert "truncated" in problems["torn.jpg"].problem
    assert "20000 x 20000 pixels" in problems["bomb.png"].problem
    assert not [path for path in tmp_path.iterdir() if len(path.stem) == 32]


def test_what_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    request = Request(halves(tmp_path / "a.png"), [(10, 40, 30, 55)])
    with pytest.raises(OutputError, match="could not be written"):
        pictures_of(request, tmp_path / "nowhere", side=64)


def test_only_pictures_are_removed(tmp_path: Path) -> None:
    mine = tmp_path / "notes.jpg"
    mine.write_text("mine")
    names = [f"{number:032x}.jpg" for number in range(3)]
    for name in names:
        (tmp_path / name).write_bytes(b"")
    assert remove_others(tmp_path, {names[0]}) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [names[0], "notes.jpg"]


def test_worker_processes_make_the_same_in_order(tmp_path: Path) -> None:
    requests = [
        Request(halves(tmp_path / f"{number}.png", (40 + number, 30)), [(0, 0, 20, 20)])
        for number in range(66)
    ]
    requests[7] = Request(str(tmp_path / "gone.png"), [(0, 0, 20, 20)])
    for name in ("alone", "together"):
        (tmp_path / name).mkdir()
    result: list[tuple[int, int]] = []
    alone = list(make_pictures(requests, tmp_path / "alone", side=64, jobs=1))
    code = (  # workers are spawned, which a test under pytest-xdist had better not do itself
        "import sys, pathlib\n"
        "from boxmend.web.thumbnails import Request, make_pictures\n"
        "if __name__ == '__main__':\n"
        "    folder = pathlib.Path(sys.argv[1])\n"
        "    requests = [Request(str(folder / (f'{k}.png' if k != 7 else 'gone.png')),"
        " [(0, 0, 20, 20)]) for k in range(66)]\n"
        "    made = make_pictures(requests, folder / 'together', side=64, jobs=2)\n"
        "    print(*[','.join(one.names) for one in made], sep='\\n')\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [",".join(one.names) for one in alone]
    assert alone[7].problem == "no such file"
    pictures = {path.name: path.read_bytes() for path in (tmp_path / "together").iterdir()}
    assert pictures == {path.name: path.read_bytes() for path in (tmp_path / "alone").iterdir()}
    list(
        make_pictures(
            requests[:3], tmp_path / "alone", side=64, progress=lambda *n: result.append(n)
        )
    )
    assert result == [(1, 3), (2, 3), (3, 3)]
