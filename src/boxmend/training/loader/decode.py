"""One image file to RGB pixels, whatever the file holds; a bad one is named, never a crash.

Pixels are taken as stored: annotations are in them, so an EXIF rotation is not applied. What is
transparent shows the colour that is stored under it.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from boxmend.data.images.decoding import convert_to_rgb, open_image, read_image
from boxmend.errors import DataError

Pixels = NDArray[np.uint8]  # [H, W, 3]
Size = tuple[int, int]  # width, height


def decode(path: str, *, expected: Size | None = None, resize_to: Size | None = None) -> Pixels:
    """Decode an image file into RGB [H, W, 3]; safe to call from many threads at once.

    `resize_to` resamples the image as `resized` does, without a full-sized array in between.
    Raises DataError that names the file where it is missing, no regular file, truncated, no
    known image format, not of the `expected` size, or claims more pixels than the limit.
    """
    try:
        with open_image(_read(path)) as image:
            image.load()
            if expected is not None and image.size != expected:
                sizes = f"{_by(image.size)} pixels where its header says {_by(expected)}"
                raise OSError(f"holds {sizes}")
            return _array(convert_to_rgb(image), resize_to)
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
    return _array(Image.fromarray(pixels), (width, height))


def _array(image: Image.Image, size: Size | None) -> Pixels:
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _by(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _read(path: str) -> bytes:
    if not path:
        raise OSError("no folder is known that holds the image")
    data = read_image(path)
    if not data:
        raise OSError("the file is empty")
    return data
