"""Decoding within the limits: pixels of one image, and of all images decoded at once."""

import io
import multiprocessing
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from boxmend.data.images import decoding
from boxmend.data.images.decoding import (
    PixelBudget,
    TooManyPixelsError,
    convert_to_rgb,
    make_shared_budget,
    open_image,
)
from boxmend.data.images.reading import inspect_image


def encode_image(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def plain(mode: str = "RGB") -> Image.Image:
    return Image.new(mode, (20, 10))


@pytest.mark.parametrize(
    ("data", "weight"),
    [
        (encode_image(plain(), "PNG"), 1),
        (encode_image(plain(), "JPEG"), 1),
        (encode_image(plain("L"), "PNG"), 1),
        (encode_image(plain("I;16"), "PNG"), 1),
        (encode_image(plain("P"), "PNG"), 2),
        (encode_image(plain("RGBA"), "PNG"), 2),
        (encode_image(plain("CMYK"), "JPEG"), 2),
        (encode_image(plain(), "JPEG", progressive=True), 3),
        (encode_image(plain(), "WEBP"), 4),
    ],
)
def test_an_image_above_the_limit_is_refused_and_costly_formats_count_more(
    data: bytes, weight: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_IMAGE_PIXELS", str(200 * weight))
    with open_image(data) as image:
        assert image.size == (20, 10)
    monkeypatch.setenv("BOXMEND_MAX_IMAGE_PIXELS", str(200 * weight - 1))
    words = f"20 x 10 pixels.*; {200 * weight} pixels are more than .*BOXMEND_MAX_IMAGE_PIXELS"
    with pytest.raises(TooManyPixelsError, match=words), open_image(data):
        pass


def test_pixels_that_are_decoded_at_once_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXMEND_MAX_PIXELS_IN_FLIGHT", "450")  # two images of 200 pixels
    data = encode_image(plain(), "PNG")
    inside, most = 0, 0
    lock, barrier = threading.Lock(), threading.Barrier(2)

    def decode() -> None:
        nonlocal inside, most
        for _ in range(20):
            with open_image(data):
                with lock:
                    inside += 1
                    most = max(most, inside)
                barrier.wait(timeout=10)  # two are let in at the same time
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert (most, inside) == (2, 0)


def test_an_image_above_the_pixels_in_flight_is_decoded_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_PIXELS_IN_FLIGHT", "10")
    entered = threading.Event()

    def decode() -> None:
        with open_image(encode_image(plain(), "PNG")):
            entered.set()

    thread = threading.Thread(target=decode)
    with open_image(encode_image(plain(), "PNG")):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(timeout=10)
    assert entered.is_set()


def test_an_image_that_fails_frees_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXMEND_MAX_PIXELS_IN_FLIGHT", "10")
    for _ in range(2):  # the second would wait for ever
        with pytest.raises(ValueError, match="broken"), open_image(encode_image(plain(), "PNG")):
            raise ValueError("broken")


def test_worker_processes_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("spawn")
    budget = make_shared_budget(context)
    monkeypatch.setattr(decoding, "_budget", decoding._budget)
    monkeypatch.setenv("BOXMEND_MAX_PIXELS_IN_FLIGHT", "250")
    with budget.reserve(100):
        process = context.Process(target=_hold, args=(budget, 100))
        process.start()
        process.join(timeout=60)
        assert process.exitcode == 0
        assert budget._used.value == 100
    assert budget._used.value == 0


def _hold(budget: PixelBudget, pixels: int) -> None:
    decoding.use_budget(budget)
    assert budget._used.value == pixels
    with open_image(encode_image(Image.new("RGB", (10, 10)), "PNG")):
        assert budget._used.value == 2 * pixels


def test_settings_of_pillow_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 7)
    with open_image(encode_image(plain(), "PNG")) as image:
        assert not ImageFile.LOAD_TRUNCATED_IMAGES
        image.load()
    assert (ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS) == (True, 7)


@pytest.mark.parametrize("mode", ["L", "P", "LA", "RGBA", "CMYK", "I;16", "I", "1"])
def test_large_images_are_converted_in_strips_with_the_same_result(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.random.default_rng(0).integers(0, 256, (13, 7, 4), np.uint8)
    if mode in ("I", "I;16"):
        image = Image.fromarray(values[:, :, 0].astype(np.uint16) * 255)
        image = image if mode == "I;16" else image.convert("I")
    elif mode == "P":
        image = Image.fromarray(values[:, :, 0]).convert("P")
        image.putpalette(values.tobytes()[:192] * 4)
        image.info["transparency"] = 3
    else:
        image = Image.fromarray(values[:, :, :3]).convert(mode)
    assert image.mode == mode
    whole = convert_to_rgb(image)
    monkeypatch.setattr(decoding, "STRIP_PIXELS", 15)  # two rows
    assert (np.asarray(convert_to_rgb(image)) == np.asarray(whole)).all()


def test_an_image_above_a_raised_limit_of_pillow_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 5)  # Pillow would refuse from 11 pixels on
    plain().save(tmp_path / "a.png")
    assert inspect_image(str(tmp_path / "a.png")).problem is None
