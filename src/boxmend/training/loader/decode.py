"""Decode an image file to RGB pixels; a bad file raises a DataError with its path.

Pixels are returned as stored, without EXIF rotation, since annotations refer to stored pixels.
Transparent pixels have the colour that is stored for them.
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

    `resize_to` resamples the image as `resize` does, without a full-sized array in between. Raises
    a DataError if the file is missing, not a regular file, truncated, not an image, not of the
    `expected` size, or claims more pixels than the limit.
    """
    try:
        with open_image(_read(path)) as image:
            image.load()
            if expected is not None and image.size != expected:
                actual, recorded = _format_size(image.size), _format_size(expected)
                sizes = f"{actual} pixels where its header says {recorded}"
                raise OSError(f"holds {sizes}")
            return _array(convert_to_rgb(image), resize_to)
    except UnidentifiedImageError:
        raise DataError(f"{path}: its image format is not known") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    except MemoryError:
        raise DataError(f"{path}: there is not enough memory to decode it") from None
    except Exception as error:  # decoders raise nearly anything for damaged bytes
        raise DataError(f"{path}: {error or type(error).__name__}") from error


def resize(pixels: Pixels, width: int, height: int) -> Pixels:
    """Resample [H, W, 3] bilinearly, with antialiasing; the same size is returned unchanged."""
    if pixels.shape[:2] == (height, width):
        return pixels
    return _array(Image.fromarray(pixels), (width, height))


def _array(image: Image.Image, size: Size | None) -> Pixels:
    if size is not None and image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def _format_size(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _read(path: str) -> bytes:
    if not path:
        raise OSError("the folder of the image is unknown")
    data = read_image(path)
    if not data:
        raise OSError("the file is empty")
    return data
