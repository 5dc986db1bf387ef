"""Parts of images as JPEG, made when the page requests them, and cached.

Requests name images by their row in the dataset, never by a path. Boxes are in pixels of the stored
image, unless the dataset records the size of the image after its EXIF rotation: then the image is
rotated.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image

from boxmend.data.dataset import Images
from boxmend.data.files.limits import get_limit
from boxmend.data.images.reading import inspect_image, read_header_size
from boxmend.web.thumbnails import Size, Window, decode, jpeg_of, scale_of

JPEG_QUALITY = 85
TURNED = range(5, 9)  # EXIF orientations that swap width and height
MAX_CACHED_BYTES = 96 * 2**20  # of JPEG pictures
MAX_CACHED_PIXELS = 40_000_000  # of decoded images: 120 MB


@dataclass(frozen=True)
class ImagePlace:
    """The size of an image, or why it cannot be shown."""

    size: Size  # in the pixels of its boxes; the recorded one if the file cannot be read
    is_turned: bool = False
    problem: str = ""  # why there is no picture


@dataclass(frozen=True)
class _Decoded:
    image: Image.Image
    scale: float  # of the decoded image, relative to the stored one


class NoPictureError(Exception):
    """There is no picture; the message is the reason."""


class Cutter:
    """A thread-safe cache that cuts pictures out of the images of a dataset."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._places: dict[int, ImagePlace] = {}
        self._pictures: OrderedDict[tuple[int, Window, int], bytes] = OrderedDict()
        self._num_bytes = 0
        self._decoded: OrderedDict[int, _Decoded] = OrderedDict()
        self._lock = threading.Lock()  # decode one image at a time to limit memory

    def place(self, row: int) -> ImagePlace:
        """Return the size or the problem of an image; read its header once."""
        if row not in self._places:
            self._places[row] = self._read_place(row)
        return self._places[row]

    def cut(self, row: int, window: Window, side: int) -> bytes:
        """Return a window of an image as JPEG with a long side of at most `side` pixels.

        Raise a NoPictureError with the reason if that is not possible.
        """
        place = self.place(row)
        if place.problem:
            raise NoPictureError(place.problem)
        x1, y1, x2, y2 = window
        if not (0 <= x1 < x2 <= place.size[0] and 0 <= y1 < y2 <= place.size[1]):
            raise NoPictureError("the requested part is not inside the image")
        with self._lock:
            key = (row, window, side)
            if key in self._pictures:
                self._pictures.move_to_end(key)
                return self._pictures[key]
            try:
                picture = self._cut(row, place, window, side)
            except Exception as error:  # decoders raise nearly anything for damaged files
                reason = getattr(error, "strerror", None) or error or type(error).__name__
                raise NoPictureError(str(reason)) from error
            self._remember(key, picture)
            return picture

    def _read_place(self, row: int) -> ImagePlace:
        recorded = int(self._images.widths[row]), int(self._images.heights[row])
        path = self._images.paths[row]
        if not path:
            return ImagePlace(recorded, problem="the folder of the image is unknown")
        stored = read_header_size(path)
        if stored is None or min(stored) < 1:
            return ImagePlace(recorded, problem=inspect_image(path).detail or "cannot be read")
        if not _is_small_enough(stored):
            problem = f"{stored[0]} x {stored[1]} pixels are too many"
            return ImagePlace(recorded, problem=problem)
        if recorded == stored[::-1] != stored and inspect_image(path).orientation in TURNED:
            return ImagePlace(recorded, is_turned=True)
        return ImagePlace(stored)

    def _cut(self, row: int, place: ImagePlace, window: Window, side: int) -> bytes:
        image = self._image(row, place, scale_of(window, side))
        return jpeg_of(image, (window, side), place.size, JPEG_QUALITY)

    def _image(self, row: int, place: ImagePlace, scale: float) -> Image.Image:
        """Return the decoded image, at least as large as `scale` needs."""
        if row in self._decoded and self._decoded[row].scale >= scale:
            self._decoded.move_to_end(row)
            return self._decoded[row].image
        self._decoded.pop(row, None)
        path = self._images.paths[row]
        image = decode(path, scale, _is_small_enough, is_turned=place.is_turned)
        self._decoded[row] = _Decoded(image, image.width / place.size[0])
        while self._num_cached_pixels() > MAX_CACHED_PIXELS:
            self._decoded.popitem(last=False)
        return image

    def _num_cached_pixels(self) -> int:
        images = (decoded.image for decoded in self._decoded.values())
        return sum(image.width * image.height for image in images)

    def _remember(self, key: tuple[int, Window, int], picture: bytes) -> None:
        self._pictures[key] = picture
        self._num_bytes += len(picture)
        while self._num_bytes > MAX_CACHED_BYTES:
            self._num_bytes -= len(self._pictures.popitem(last=False)[1])


def _is_small_enough(size: Size) -> bool:
    return size[0] * size[1] <= get_limit("image_pixels")
