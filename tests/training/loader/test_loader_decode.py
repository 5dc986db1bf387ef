"""Decoding: every mode that files come in, and every way in which they are none."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from boxmend.errors import DataError
from boxmend.training.loader.decode import Pixels, decode, resize

RGB = np.array(
    [[[255, 0, 0], [0, 255, 0], [0, 0, 255]], [[9, 99, 199], [255, 255, 255], [0, 0, 0]]], np.uint8
)
GREY = np.array([[0, 100, 255], [7, 8, 9]], np.uint8)
AS_RGB = np.repeat(GREY[:, :, None], 3, 2)
ALPHA = np.array([[0, 128, 255], [0, 0, 255]], np.uint8)
CMYK = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [0, 0, 0, 255]]], np.uint8)
FROM_CMYK = np.array([[[255, 255, 255], [0, 255, 255], [0, 0, 0]]], np.uint8)
SIXTEEN = np.array([[0, 255, 256], [32768, 65280, 65535]], np.uint16)
FROM_SIXTEEN = np.repeat(np.array([[0, 0, 1], [128, 255, 255]], np.uint8)[:, :, None], 3, 2)
ONE_BIT = np.array([[True, False, True], [False, False, True]])


def palette() -> Image.Image:
    image = Image.fromarray(np.array([[0, 1, 2], [3, 4, 5]], np.uint8)).convert("P")
    image.putpalette(RGB.reshape(-1).tolist())
    return image


MODES: dict[str, tuple[Image.Image, str, dict[str, object], Pixels]] = {
    "RGB": (Image.fromarray(RGB), "png", {}, RGB),
    "grey": (Image.fromarray(GREY), "png", {}, AS_RGB),
    "palette": (palette(), "png", {}, RGB),
    "palette gif": (palette(), "gif", {}, RGB),
    "palette, one colour transparent": (palette(), "png", {"transparency": 1}, RGB),
    "palette, alpha in bytes": (palette(), "png", {"transparency": bytes([0, 99, 255])}, RGB),
    "RGBA": (Image.fromarray(np.dstack([RGB, ALPHA])), "png", {}, RGB),
    "LA": (Image.fromarray(np.dstack([GREY, ALPHA]), "LA"), "png", {}, AS_RGB),
    "CMYK": (Image.fromarray(CMYK, "CMYK"), "tiff", {}, FROM_CMYK),
    "16 bit png": (Image.fromarray(SIXTEEN), "png", {}, FROM_SIXTEEN),
    "16 bit tiff": (Image.fromarray(SIXTEEN), "tiff", {}, FROM_SIXTEEN),
    "16 bit pgm": (Image.fromarray(SIXTEEN), "ppm", {}, FROM_SIXTEEN),
    "1 bit": (
        Image.fromarray(ONE_BIT),
        "png",
        {},
        np.repeat(ONE_BIT[:, :, None] * np.uint8(255), 3, 2),
    ),
}


@pytest.mark.parametrize("name", MODES)
def test_every_mode_becomes_rgb(name: str, tmp_path: Path) -> None:
    image, format, options, expected = MODES[name]
    path = tmp_path / f"image.{format}"
    image.save(path, format, **options)
    pixels = decode(str(path))
    assert pixels.dtype == np.uint8
    assert pixels.shape == expected.shape
    assert pixels.tolist() == expected.tolist()


def test_an_exif_rotation_is_not_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees
    Image.new("RGB", (48, 32)).save(tmp_path / "turned.jpg", exif=exif)
    assert decode(str(tmp_path / "turned.jpg")).shape == (32, 48, 3)


def encode_image(format: str) -> bytes:
    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((48, 32)).save(buffer, format)
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" * 100))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


BROKEN = {
    "empty": (b"", "the file is empty"),
    "no image": (b"hello, world", "its image format is not known"),
    "cut jpeg": (encode_image("JPEG")[:-40], "truncated"),
    "cut png": (encode_image("PNG")[:70], "truncated"),
    "bomb": (bomb(50_000, 50_000), "pixels"),
    "page description": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "its image format is not known"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_message_names_a_broken_file(name: str, tmp_path: Path) -> None:
    data, message = BROKEN[name]
    path = tmp_path / "broken.img"
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"broken\.img: .*{message}"):
        decode(str(path))


def missing(path: Path) -> None:
    """Leave nothing there."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (missing, "No such file"),
        (Path.mkdir, "a folder"),
        (os.mkfifo, "a pipe, not a regular file"),
    ],
)
def test_the_message_names_a_path_that_is_not_a_file(
    make: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    make(tmp_path / "thing.png")
    with pytest.raises(DataError, match=rf"thing\.png: {message}"):
        decode(str(tmp_path / "thing.png"))


def test_an_impossible_path_is_reported() -> None:
    with pytest.raises(DataError, match="null"):
        decode("a\0b.png")


def test_the_callers_pillow_settings_are_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    path = tmp_path / "cut.jpg"
    path.write_bytes(encode_image("JPEG")[:-40])

    def fails(_: int) -> bool:
        with pytest.raises(DataError):
            decode(str(path))
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fails, range(64)))
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True


def test_resizing_averages_what_it_shrinks_and_leaves_alone_what_fits() -> None:
    stripes = np.zeros((8, 64, 3), np.uint8)
    stripes[:, ::2] = 200
    small = resize(stripes, 8, 8)
    assert small.shape == (8, 8, 3)
    assert abs(small[:, 1:-1].astype(int) - 100).max() <= 1  # without antialiasing 0 or 200
    assert resize(stripes, 64, 8) is stripes
    assert resize(stripes, 128, 16).shape == (16, 128, 3)
