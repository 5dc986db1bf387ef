"""One image file to RGB pixels, whatever the file holds; a bad one is named, never a crash.

Pixels are taken as stored: annotations are in them, so an EXIF rotation is not applied. What is
transparent shows the colour that is stored under it.
"""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, UnidentifiedImageError

from boxmend.errors import DataError
from boxmend.photos import MAX_PIXELS, known_formats, read_image

Pixels = NDArray[np.uint8]  # [H, W, 3]
WITH_PALETTE = ("P", "PA")  # their transparency survives only a detour over RGBA
SIXTEEN_BITS = ("I", "I;16", "I;16L", "I;16B", "I;16N")  # Pillow itself would clip, not scale

_SWITCH = threading.Lock()
_strict_users = 0  # threads that decode now; the switch below is shared by all
_was_lenient = False


def decode(path: str) -> Pixels:
    """Decode an image file into RGB [H, W, 3]; safe to call from many threads at once.

    Raises DataError that names the file where it is missing, no regular file, truncated, no
    known image format, or claims more pixels than memory should hold.
    """
    try:
        data = _read(path)
        with _strictly_whole(), Image.open(io.BytesIO(data), formats=known_formats()) as image:
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise OSError(f"its header claims {width} x {height} pixels")
            image.load()
            return _rgb(image)
    except UnidentifiedImageError:
        raise DataError(f"{path}: no image format that is known") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(f"{path}: there is not enough memory to decode it") from None
    except Exception as error:  # decoders raise nearly anything on bytes that lie
        raise DataError(f"{path}: {error or type(error).__name__}") from error


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resample [H, W, 3] bilinearly, antialiased where it shrinks; the same size is not touched."""
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    return np.array(image)


def _rgb(image: Image.Image) -> Pixels:
    if image.mode in SIXTEEN_BITS:
        grey = (np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode in WITH_PALETTE:
        image = image.convert("RGBA")
    return np.array(image.convert("RGB"))


def _read(path: str) -> bytes:
    if not path:
        raise OSError("no folder is known that holds the image")
    data = read_image(path)
    if not data:
        raise OSError("the file is empty")
    return data


@contextmanager
def _strictly_whole() -> Iterator[None]:
    """Keep a caller's wish to load truncated images out of the way while any thread decodes."""
    global _strict_users, _was_lenient
    with _SWITCH:
        if _strict_users == 0:
            _was_lenient = ImageFile.LOAD_TRUNCATED_IMAGES
            ImageFile.LOAD_TRUNCATED_IMAGES = False
        _strict_users += 1
    try:
        yield
    finally:
        with _SWITCH:
            _strict_users -= 1
            if _strict_users == 0:
                ImageFile.LOAD_TRUNCATED_IMAGES = _was_lenient
