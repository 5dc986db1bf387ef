"""Open image files for decoding: only known formats, complete files, and within the limits.

An image file may be hostile. All decoding in boxmend goes through `open_image`, which limits the
number of pixels that all threads, or all worker processes, decode at the same time.
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

# Formats that need another program (EPS) or hold no pixels are left out.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "BMP", "DIB", "TIFF", "GIF", "PPM", "AVIF", "JPEG2000")
COSTLY_FORMATS = ("WEBP", "AVIF", "JPEG2000")
TRIM_ABOVE_PIXELS = 2**25  # above this, trimming the memory is worth its time
STRIP_PIXELS = 2**22  # large images are converted in strips of this size
PALETTE_MODES = ("P", "PA")  # they keep their transparency only if converted by way of RGBA
SIXTEEN_BIT_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow clips these, not scales


class TooManyPixelsError(OSError):
    """The header of an image claims more pixels than the limit."""


class PixelBudget:
    """A count of the pixels being decoded; images beyond the limit wait."""

    def __init__(self, condition: Any, used: Any):
        self._condition = condition
        self._used = used  # .value: pixels being decoded

    @contextmanager
    def reserve(self, pixels: int) -> Iterator[None]:
        """Wait until this many pixels are free and reserve them; oversized images wait for all."""
        limit = get_limit("pixels_in_flight")
        pixels = min(pixels, limit)
        with self._condition:
            self._condition.wait_for(lambda: self._used.value + pixels <= limit)
            self._used.value += pixels
        try:
            yield
        finally:
            with self._condition:
                self._used.value -= pixels
                self._condition.notify_all()


_budget = PixelBudget(threading.Condition(), SimpleNamespace(value=0))
_SETTINGS_LOCK = threading.Lock()
_strict_users = 0  # threads that decode now; Pillow's settings are global
_former_settings: tuple[bool, int | None] = (False, None)


def make_shared_budget(context: SpawnContext) -> PixelBudget:
    """Return a budget for the worker processes of a pool; each passes it to `use_budget`."""
    return PixelBudget(context.Condition(), context.Value("q", 0, lock=False))


def use_budget(budget: PixelBudget) -> None:
    """Count the pixels of this process in another budget."""
    global _budget
    _budget = budget


def read_image(path: str) -> bytes:
    """Return the bytes of an image file; raise an OSError if it is not a regular file."""
    return read_limited(path, "image_bytes")


@contextmanager
def open_image(source: bytes | BinaryIO) -> Iterator[Image.Image]:
    """Open an image for decoding within the block; many threads may call it at once.

    Wait while other images use up the pixel budget. Raise a TooManyPixelsError (an OSError) if the
    header claims more pixels than the limit. On damaged bytes, decoders raise errors of any type.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    with decode_strictly(), Image.open(file, formats=list_known_formats()) as image:
        width, height = image.size
        weight = _count_pixel_weight(image)
        if message := describe_excess("image_pixels", weight * width * height):
            times = f" in {image.format}, which count {weight} times" if weight > 1 else ""
            claim = f"its header claims {width} x {height} pixels{times}"
            raise TooManyPixelsError(f"{claim}; {message}")
        with _budget.reserve(weight * width * height):
            try:
                yield image
            finally:
                image.close()  # frees its memory before other images start
                _trim_memory(width * height)


def _count_pixel_weight(image: Image.Image) -> int:
    """Return the memory per pixel while the image is decoded and converted, in units of 4 bytes."""
    if image.format in COSTLY_FORMATS:
        return 4  # the decoder's buffers: 15 bytes, measured with WebP
    if image.info.get("progressive"):
        return 3  # two more bytes per coefficient: 9 bytes measured, 11 for CMYK
    return 1 if image.mode in ("RGB", "L", "1", *SIXTEEN_BIT_MODES) else 2  # a second copy


def _trim_memory(pixels: int) -> None:
    """Return the memory of a large image to the system; glibc would keep it for this thread."""
    if pixels > TRIM_ABOVE_PIXELS and sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none
        if trim is not None:
            trim(0)


@contextmanager
def decode_strictly() -> Iterator[None]:
    """Make Pillow refuse truncated images and lift its own pixel limit during the block."""
    global _strict_users, _former_settings
    with _SETTINGS_LOCK:
        if _strict_users == 0:
            _former_settings = ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS
            ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = False, None
        _strict_users += 1
    try:
        yield
    finally:
        with _SETTINGS_LOCK:
            _strict_users -= 1
            if _strict_users == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = _former_settings


def convert_to_rgb(image: Image.Image) -> Image.Image:
    """Convert a decoded image to RGB, or to L if it is grey with 16 bits.

    Large images are converted in strips to avoid a third copy in memory.
    """
    if image.mode == "RGB":
        return image
    if image.width * image.height <= STRIP_PIXELS:
        return _convert(image)
    whole = Image.new("L" if image.mode in SIXTEEN_BIT_MODES else "RGB", image.size)
    rows = max(STRIP_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        whole.paste(_convert(strip), (0, top))
    return whole


def _convert(image: Image.Image) -> Image.Image:
    if image.mode in SIXTEEN_BIT_MODES:
        return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
    if image.mode in PALETTE_MODES:
        image = image.convert("RGBA")
    return image.convert("RGB")


@cache
def list_known_formats() -> list[str]:
    """Return Pillow's names of the image formats that boxmend opens."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]
