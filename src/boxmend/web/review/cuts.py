"""Parts of images as JPEG, made when the page asks for them, and remembered for a while.

Images are named by their row in the dataset, never by a path. Boxes are in pixels as stored, unless
the dataset records the size of the image as viewers turn it by EXIF: then it is turned.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from PIL import Image

from boxmend.data.dataset import Images
from boxmend.data.files.limits import get_limit
from boxmend.data.images.reading import inspect_image, read_header_size
from boxmend.web.thumbnails import Size, Window, decode, jpeg_of, scale_of

QUALITY = 85
TURNED = range(5, 9)  # EXIF orientations that exchange width and height
MOST_BYTES = 96 * 2**20  # of pictures that are remembered
MOST_PIXELS = 40_000_000  # of decoded images that are remembered: 120 MB


@dataclass(frozen=True)
class ImagePlace:
    """What the page has to know of an image before it asks for parts of it."""

    size: Size  # as annotated; as recorded where the file cannot be read
    is_turned: bool = False
    problem: str = ""  # why there will be no picture


@dataclass(frozen=True)
class _Decoded:
    image: Image.Image
    scale: float  # 1 where nothing was left out


class NoPictureError(Exception):
    """There is no picture, for the reason that is told."""


class Cutter:
    """Cuts pictures out of the images of a dataset; safe to ask from several threads."""

    def __init__(self, images: Images) -> None:
        self._images = images
        self._places: dict[int, ImagePlace] = {}
        self._made: OrderedDict[tuple[int, Window, int], bytes] = OrderedDict()
        self._num_bytes = 0
        self._decoded: OrderedDict[int, _Decoded] = OrderedDict()
        self._lock = threading.Lock()  # one image is decoded at a time: memory stays bounded

    def place(self, row: int) -> ImagePlace:
        """What is known of an image; its header is read once."""
        if row not in self._places:
            self._places[row] = self._looked_at(row)
        return self._places[row]

    def cut(self, row: int, window: Window, side: int) -> bytes:
        """The window of an image as JPEG with a long side of at most `side` pixels.

        A NoPictureError tells why there is none.
        """
        place = self.place(row)
        if place.problem:
            raise NoPictureError(place.problem)
        x1, y1, x2, y2 = window
        if not (0 <= x1 < x2 <= place.size[0] and 0 <= y1 < y2 <= place.size[1]):
            raise NoPictureError("that part is not in the image")
        with self._lock:
            key = (row, window, side)
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
            try:
                made = self._cut(row, place, window, side)
            except Exception as error:  # decoders raise nearly anything on bytes that lie
                reason = getattr(error, "strerror", None) or error or type(error).__name__
                raise NoPictureError(str(reason)) from error
            self._remember(key, made)
            return made

    def _looked_at(self, row: int) -> ImagePlace:
        recorded = int(self._images.widths[row]), int(self._images.heights[row])
        path = self._images.paths[row]
        if not path:
            return ImagePlace(recorded, problem="no folder is known that holds the image")
        stored = read_header_size(path)
        if stored is None or min(stored) < 1:
            return ImagePlace(recorded, problem=inspect_image(path).detail or "cannot be read")
        if not _is_bearable(stored):
            problem = f"{stored[0]} x {stored[1]} pixels are too many"
            return ImagePlace(recorded, problem=problem)
        if recorded == stored[::-1] != stored and inspect_image(path).orientation in TURNED:
            return ImagePlace(recorded, is_turned=True)
        return ImagePlace(stored)

    def _cut(self, row: int, place: ImagePlace, window: Window, side: int) -> bytes:
        image = self._image(row, place, scale_of(window, side))
        return jpeg_of(image, (window, side), place.size, QUALITY)

    def _image(self, row: int, place: ImagePlace, scale: float) -> Image.Image:
        """The decoded image, not smaller than `scale` needs it."""
        if row in self._decoded and self._decoded[row].scale >= scale:
            self._decoded.move_to_end(row)
            return self._decoded[row].image
        self._decoded.pop(row, None)
        image = decode(self._images.paths[row], scale, _is_bearable, is_turned=place.is_turned)
        self._decoded[row] = _Decoded(image, image.width / place.size[0])
        while sum(one.image.width * one.image.height for one in self._decoded.values()) > (
            MOST_PIXELS
        ):
            self._decoded.popitem(last=False)
        return image

    def _remember(self, key: tuple[int, Window, int], made: bytes) -> None:
        self._made[key] = made
        self._num_bytes += len(made)
        while self._num_bytes > MOST_BYTES:
            self._num_bytes -= len(self._made.popitem(last=False)[1])


def _is_bearable(size: Size) -> bool:
    return size[0] * size[1] <= get_limit("image_pixels")
