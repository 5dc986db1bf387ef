"""Small pictures of annotations, cut out of images and cached in a folder.

The name of a picture is a hash of the path, size and time of its image and of the window, so an
existing picture is not made again. Pixels are used as stored, because boxes refer to them; the
pictures carry no EXIF data, so browsers do not rotate them.
"""

import io
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps

from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.limits import get_limit
from boxmend.data.files.reading import open_file
from boxmend.data.images.decoding import convert_to_rgb, open_image, read_image
from boxmend.data.images.reading import (
    IMAGES_PER_CHUNK,
    MAX_WORKERS,
    MIN_IMAGES_FOR_WORKERS,
    inspect_image,
    map_in_processes,
    read_header_size,
)
from boxmend.data.progress import Progress
from boxmend.data.types import Box

WINDOW_SCALE = 1.6  # sides of the window, relative to those of the box
ASPECT = 4 / 3  # width to height of a picture, if the image is large enough
MIN_WINDOW_SHARE = 0.2  # of the image's long side, so that a tiny object has some context
JPEG_QUALITY = 75
CACHE_VERSION = b"1"  # after a change all pictures are made again
PICTURE_NAME = re.compile(r"[0-9a-f]{32}\.jpg")  # other files are never touched

Size = tuple[int, int]  # width, height
Window = tuple[int, int, int, int]  # x1, y1, x2, y2 in pixels of an image
Cut = tuple[Window, int]  # the window, and the long side of its picture


class Request(NamedTuple):
    """An image and the boxes to make pictures of."""

    path: str  # empty if unknown
    boxes: list[Box]


class Thumbnails(NamedTuple):
    """The pictures of one image, in the order of the boxes, or why there are none."""

    windows: list[Window]
    names: list[str]
    problem: str = ""
    whole: str = ""  # name of the picture of the whole image, if requested
    size: Size = (0, 0)  # of the image


def make_pictures(
    requests: Sequence[Request],
    folder: Path,
    *,
    side: int,
    whole_side: int = 0,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Thumbnails]:
    """Make the missing pictures in `folder`, with long sides of at most `side` pixels.

    With `whole_side`, also make one picture of each whole image, with that long side. Yield results
    in the order of the requests. Many images are decoded in worker processes, `jobs` or one per
    core. The result of an unreadable image has a `problem`; a picture that cannot be written raises
    an OutputError.
    """
    make = partial(pictures_of, folder=folder, side=side, whole_side=whole_side)
    workers = min(jobs or os.cpu_count() or 1, -(-len(requests) // IMAGES_PER_CHUNK), MAX_WORKERS)
    alone = workers < 2 or len(requests) < MIN_IMAGES_FOR_WORKERS
    made = map(make, requests) if alone else map_in_processes(make, requests, _path, workers)
    for done, thumbnails in enumerate(made, start=1):
        yield thumbnails
        if progress is not None:
            progress(done, len(requests))


def pictures_of(request: Request, folder: Path, side: int, whole_side: int = 0) -> Thumbnails:
    """Make the missing pictures of one image; decode it at most once."""
    if not request.path:
        return Thumbnails([], [], "the folder of the image is unknown")
    size = _read_valid_size(request.path)
    if size is None:
        return Thumbnails([], [], _problem(request.path))
    windows = [window(box, size) for box in request.boxes]
    cuts = [(window, side) for window in windows]
    cuts += [((0, 0, *size), whole_side)] if whole_side else []
    names = _names(request.path, cuts)
    cut_of = dict(zip(names, cuts, strict=True))
    missing = {name: cut for name, cut in cut_of.items() if not _is_complete(folder / name)}
    if missing:
        try:
            scale = max(scale_of(*cut) for cut in missing.values())
            image = decode(request.path, scale, lambda stored_size: stored_size == size)
        except Exception as error:  # decoders raise nearly anything for damaged files
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            return Thumbnails([], [], str(reason))
        for name, cut in missing.items():
            picture = jpeg_of(image, cut, size)
            with open_atomic(folder / name, sync_name=False) as file:
                file.write(picture)
    whole = names[len(windows)] if whole_side else ""
    return Thumbnails(windows, names[: len(windows)], whole=whole, size=size)


def draw_picture(path: str, box: Box, side: int) -> tuple[Window, bytes] | None:
    """Return the window around a box and its picture as JPEG; None if the image is unreadable."""
    size = _read_valid_size(path) if path else None
    if size is None:
        return None
    cut = window(box, size), side
    try:
        image = decode(path, scale_of(*cut), lambda stored_size: stored_size == size)
    except Exception:  # decoders raise nearly anything for damaged files
        return None
    return cut[0], jpeg_of(image, cut, size)


def _read_valid_size(path: str) -> Size | None:
    """Return the size in the header of an image; None if it is missing, empty or too large."""
    size = read_header_size(path)
    if size is None or min(size) < 1 or size[0] * size[1] > get_limit("image_pixels"):
        return None
    return size


def window(box: Box, size: Size) -> Window:
    """Return the window that shows a box: WINDOW_SCALE times as large, within the image.

    Its aspect ratio is ASPECT if the image is large enough. A box that is not finite gets the whole
    image.
    """
    width, height = size
    if not all(map(math.isfinite, box)):
        return 0, 0, width, height
    least = max(size) * MIN_WINDOW_SHARE
    wide = max((box[2] - box[0]) * WINDOW_SCALE, least)
    high = max((box[3] - box[1]) * WINDOW_SCALE, least)
    wide, high = max(wide, high * ASPECT), max(high, wide / ASPECT)
    x1, x2 = _span((box[0] + box[2]) / 2, wide, width)
    y1, y2 = _span((box[1] + box[3]) / 2, high, height)
    return x1, y1, x2, y2


def remove_others(folder: Path, names: set[str]) -> int:
    """Delete the pictures of earlier reports that are not in `names`; return how many."""
    pictures = [path for path in folder.iterdir() if PICTURE_NAME.fullmatch(path.name)]
    others = [path for path in pictures if path.name not in names]
    for path in others:
        path.unlink(missing_ok=True)
    return len(others)


def _problem(path: str) -> str:
    """Return why an image cannot be read, without paths of this machine: pages are passed on."""
    if os.path.islink(path) and not os.path.exists(path):
        return "a broken link"
    return inspect_image(path).detail or "cannot be read"


def _span(center: float, length: float, limit: int) -> tuple[int, int]:
    """Return a span of whole pixels around a center, moved into 0..limit."""
    if length >= limit:
        return 0, limit
    low = min(max(center - length / 2, 0), limit - length)
    return math.floor(low), min(math.ceil(low + length), limit)


def _names(path: str, cuts: Sequence[Cut]) -> list[str]:
    status = os.stat(path)
    key = (CACHE_VERSION, os.path.abspath(path), status.st_size, status.st_mtime_ns, JPEG_QUALITY)
    return [
        f"{blake2b(repr((key, cut)).encode('utf-8', 'replace'), digest_size=16).hexdigest()}.jpg"
        for cut in cuts
    ]


def _is_complete(path: Path) -> bool:
    """Return whether a picture exists and ends with the end marker of a JPEG."""
    try:
        with open_file(path) as file:
            file.seek(-2, os.SEEK_END)
            return file.read() == b"\xff\xd9"
    except OSError:
        return False


def scale_of(window: Window, side: int) -> float:
    """Return the scale from a window to its picture; pictures are never enlarged."""
    return min(1.0, side / max(window[2] - window[0], window[3] - window[1]))


def decode(
    path: str, scale: float, is_expected: Callable[[Size], bool], *, is_turned: bool = False
) -> Image.Image:
    """Decode an image to RGB, a JPEG only as large as `scale` needs; rotate it by EXIF if turned.

    Raise an OSError if its stored size is not the expected one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about unusual but readable files
        with open_image(read_image(path)) as image:
            if not is_expected(image.size):
                raise OSError("the file changed while it was read")
            image.draft("RGB", (math.ceil(image.width * scale), math.ceil(image.height * scale)))
            image.load()
            upright = ImageOps.exif_transpose(image) if is_turned else image
            rgb = convert_to_rgb(upright)
            return rgb if rgb.mode == "RGB" and rgb is not image else rgb.convert("RGB")


def jpeg_of(image: Image.Image, cut: Cut, size: Size, quality: int = JPEG_QUALITY) -> bytes:
    """Cut a window out of the decoded image; the window is in pixels of the image of `size`."""
    window, scale = cut[0], scale_of(*cut)
    width, height = (max(round((window[k + 2] - window[k]) * scale), 1) for k in (0, 1))
    across, down = image.width / size[0], image.height / size[1]
    box = (window[0] * across, window[1] * down, window[2] * across, window[3] * down)
    if scale == 1 and image.size == size:
        picture = image.crop(window)
    else:
        picture = image.resize((width, height), Image.Resampling.BILINEAR, box, reducing_gap=2.0)
    picture.info = {}  # no comments, profiles or EXIF data of the file
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _path(request: Request) -> str:
    return request.path
