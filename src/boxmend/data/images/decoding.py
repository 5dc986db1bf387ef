"""Opening image files for decoding: known formats only, whole, and within the limits.

An image file is hostile until it is decoded. Every decoder in boxmend goes through `opened`, so
the number of pixels that all threads, or all worker processes, decode at the same time is limited.
"""

import ctypes
import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing.context import SpawnContext
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageFile

from boxmend.data.files.limits import describe_excess, get_limit
from boxmend.data.files.reading import read_limited

# No format that starts another program to decode it (EPS) or is no picture of pixels.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
COSTLY_FORMATS = ("WEBP", "AVIF", "JPEG2000")
LARGE_PIXELS = 2**25  # whose memory is worth the time to trim it
STRIP_PIXELS = 2**22  # converted at once
WITH_PALETTE = ("P", "PA")  # their transparency survives only a detour over RGBA
SIXTEEN_BITS = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow itself would clip, not scale


class TooManyPixelsError(OSError):
    """The header of an image claims more pixels than the limit."""


class PixelBudget:
    """Counts the pixels that are being decoded and makes further images wait."""

    def __init__(self, condition: Any, used: Any):
        self._condition = condition
        self._used = used  # .value: pixels in flight

    @contextmanager
    def holding(self, pixels: int) -> Iterator[None]:
        """Wait until this many pixels are free, and hold them; a larger image waits for all."""
        most = get_limit("pixels_in_flight")
        pixels = min(pixels, most)
        with self._condition:
            self._condition.wait_for(lambda: self._used.value + pixels <= most)
            self._used.value += pixels
        try:
            yield
        finally:
            with self._condition:
                self._used.value -= pixels
                self._condition.notify_all()


_budget = PixelBudget(threading.Condition(), SimpleNamespace(value=0))
_SWITCH = threading.Lock()
_strict_users = 0  # threads that decode now; Pillow's switches are shared by all
_former_switches: tuple[bool, int | None] = (False, None)


def shared_budget(context: SpawnContext) -> PixelBudget:
    """Return a budget for the worker processes of a pool; each passes it to `use_budget`."""
    return PixelBudget(context.Condition(), context.Value("q", 0, lock=False))


def use_budget(budget: PixelBudget) -> None:
    """Count the pixels of this process in another budget from now on."""
    global _budget
    _budget = budget


def read_image(path: str) -> bytes:
    """Return the bytes of an image file; an OSError says what it is instead."""
    return read_limited(path, "image_bytes")


@contextmanager
def opened(source: bytes | BinaryIO) -> Iterator[Image.Image]:
    """Open an image for decoding within the block; safe to call from many threads at once.

    Waits while other images take up the pixels in flight. A TooManyPixelsError (an OSError) says
    that the header claims more than the limit; decoders raise nearly anything on bytes that lie.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    with strictly(), Image.open(file, formats=known_formats()) as image:
        width, height = image.size
        weight = _weight(image)
        if message := describe_excess("image_pixels", weight * width * height):
            times = f" in {image.format}, which count {weight} times" if weight > 1 else ""
            claim = f"its header claims {width} x {height} pixels{times}"
            raise TooManyPixelsError(f"{claim}; {message}")
        with _budget.holding(weight * width * height):
            try:
                yield image
            finally:
                image.close()  # and so free its memory before others are let in
                _trim_memory(width * height)


def _weight(image: Image.Image) -> int:
    """Return how many times 4 bytes a pixel takes while it is decoded and converted to RGB."""
    if image.format in COSTLY_FORMATS:
        return 4  # buffers of the decoder, measured with WebP: 15 bytes
    if image.info.get("progressive"):
        return 3  # two bytes more for each coefficient, measured: 9 bytes, of CMYK 11
    return 1 if image.mode in ("RGB", "L", "1", *SIXTEEN_BITS) else 2  # a second copy


def _trim_memory(pixels: int) -> None:
    """Return the memory of a large image to the system; glibc keeps it for the same thread."""
    if pixels > LARGE_PIXELS and sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


@contextmanager
def strictly() -> Iterator[None]:
    """Let Pillow refuse truncated images, and leave its limit of pixels to the caller."""
    global _strict_users, _former_switches
    with _SWITCH:
        if _strict_users == 0:
            _former_switches = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS
            ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = False, None
        _strict_users += 1
    try:
        yield
    finally:
        with _SWITCH:
            _strict_users -= 1
            if _strict_users == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = _former_switches


def rgb_of(image: Image.Image) -> Image.Image:
    """Convert a decoded image to RGB, or to L where it is grey with 16 bits.

    Large images are converted in strips, so that no third copy of them is in memory.
    """
    if image.mode == "RGB":
        return image
    if image.width * image.height <= STRIP_PIXELS:
        return _converted(image)
    whole = Image.new("L" if image.mode in SIXTEEN_BITS else "RGB", image.size)
    rows = max(STRIP_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        whole.paste(_converted(strip), (0, top))
    return whole


def _converted(image: Image.Image) -> Image.Image:
    if image.mode in SIXTEEN_BITS:
        return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in WITH_PALETTE:
        image = image.convert("RGBA")
    return image.convert("RGB")


@cache
def known_formats() -> list[str]:
    """Name the image formats that are opened, as Pillow calls them."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]
