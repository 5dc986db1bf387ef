"""Small pictures of annotations, cut out of images that nobody vouches for, and kept.

A picture is named by a hash of its image's path, size and time, and of what is cut out of it: what
is there already is not made again. Pixels are taken as stored, since boxes are in them, and the
pictures carry no EXIF by which a browser would turn them.
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

CONTEXT = 1.6  # sides of what is cut out, in sides of what it has to show
ASPECT = 4 / 3  # width to height of a picture, where the image is large enough
LEAST_SHARE = 0.2  # of an image's long side: less around a tiny object would show nothing
QUALITY = 75
VERSION = b"1"  # of how pictures are made: another one makes them all anew
NAME = re.compile(r"[0-9a-f]{32}\.jpg")  # of a picture; no other file is ever touched

Size = tuple[int, int]  # width, height
Window = tuple[int, int, int, int]  # x1, y1, x2, y2 in pixels of an image
Cut = tuple[Window, int]  # what is cut out, and the long side of its picture


class Request(NamedTuple):
    """An image and the boxes of which pictures are wanted."""

    path: str  # empty where none is known
    boxes: list[Box]


class Thumbnails(NamedTuple):
    """The pictures of one image, in the order of the boxes, or why there are none."""

    windows: list[Window]
    names: list[str]
    problem: str = ""
    whole: str = ""  # name of a picture of all of the image, where one was wanted
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
    """Make what is not there yet in `folder`, with long sides of `side` pixels at most.

    With `whole_side` there is also one picture of all of each image, of that long side. Yields in
    the order of the requests. Many images are decoded in worker processes, one per core unless
    `jobs` says otherwise. An image that cannot be read is told of in its result; an OutputError
    says that a picture could not be written.
    """
    make = partial(pictures_of, folder=folder, side=side, whole_side=whole_side)
    workers = min(jobs or os.cpu_count() or 1, -(-len(requests) // IMAGES_PER_CHUNK), MAX_WORKERS)
    alone = workers < 2 or len(requests) < MIN_IMAGES_FOR_WORKERS
    made = map(make, requests) if alone else map_in_processes(make, requests, _path, workers)
    for done, one in enumerate(made, start=1):
        yield one
        if progress is not None:
            progress(done, len(requests))


def pictures_of(request: Request, folder: Path, side: int, whole_side: int = 0) -> Thumbnails:
    """Make the pictures of one image that are not there yet; it is decoded once, if at all."""
    if not request.path:
        return Thumbnails([], [], "no folder is known that holds the image")
    size = read_header_size(request.path)
    if size is None or min(size) < 1 or size[0] * size[1] > get_limit("image_pixels"):
        return Thumbnails([], [], _trouble(request.path))
    windows = [window(box, size) for box in request.boxes]
    cuts = [(one, side) for one in windows]
    cuts += [((0, 0, *size), whole_side)] if whole_side else []
    names = _names(request.path, cuts)
    wanted = dict(zip(names, cuts, strict=True))
    todo = {name: cut for name, cut in wanted.items() if not _is_complete(folder / name)}
    if todo:
        try:
            scale = max(scale_of(*cut) for cut in todo.values())
            image = decoded(request.path, scale, lambda found: found == size)
        except Exception as error:  # decoders raise nearly anything on bytes that lie
            reason = getattr(error, "strerror", None) or error or type(error).__name__
            return Thumbnails([], [], str(reason))
        for name, cut in todo.items():
            picture = jpeg_of(image, cut, size)
            with open_atomic(folder / name, sync_name=False) as file:
                file.write(picture)
    whole = names[len(windows)] if whole_side else ""
    return Thumbnails(windows, names[: len(windows)], whole=whole, size=size)


def window(box: Box, size: Size) -> Window:
    """What is cut out of an image to show a box: CONTEXT times as large, of ASPECT, inside of it.

    All of the image for a box that is none.
    """
    width, height = size
    if not all(map(math.isfinite, box)):
        return 0, 0, width, height
    least = max(size) * LEAST_SHARE
    wide = max((box[2] - box[0]) * CONTEXT, least)
    high = max((box[3] - box[1]) * CONTEXT, least)
    wide, high = max(wide, high * ASPECT), max(high, wide / ASPECT)
    x1, x2 = _span((box[0] + box[2]) / 2, wide, width)
    y1, y2 = _span((box[1] + box[3]) / 2, high, height)
    return x1, y1, x2, y2


def remove_others(folder: Path, names: set[str]) -> int:
    """Delete the pictures of former reports that are not among these; returns how many."""
    others = [one for one in folder.iterdir() if NAME.fullmatch(one.name) and one.name not in names]
    for path in others:
        path.unlink(missing_ok=True)
    return len(others)


def _trouble(path: str) -> str:
    """What is wrong with an image, without the paths of the machine that a page may travel from."""
    if os.path.islink(path) and not os.path.exists(path):
        return "a link that leads nowhere"
    return inspect_image(path).detail or "cannot be read"


def _span(center: float, length: float, limit: int) -> tuple[int, int]:
    """Whole pixels around a place, moved inside of 0..limit."""
    if length >= limit:
        return 0, limit
    low = min(max(center - length / 2, 0), limit - length)
    return math.floor(low), min(math.ceil(low + length), limit)


def _names(path: str, cuts: Sequence[Cut]) -> list[str]:
    status = os.stat(path)
    known = (VERSION, os.path.abspath(path), status.st_size, status.st_mtime_ns, QUALITY)
    return [
        f"{blake2b(repr((known, cut)).encode('utf-8', 'replace'), digest_size=16).hexdigest()}.jpg"
        for cut in cuts
    ]


def _is_complete(path: Path) -> bool:
    """Whether a picture is there to its last two bytes, by which every JPEG ends."""
    try:
        with open_file(path) as file:
            file.seek(-2, os.SEEK_END)
            return file.read() == b"\xff\xd9"
    except OSError:
        return False


def scale_of(one: Window, side: int) -> float:
    """By how much a window shrinks to become a picture; pictures are never enlarged."""
    return min(1.0, side / max(one[2] - one[0], one[3] - one[1]))


def decoded(
    path: str, scale: float, is_expected: Callable[[Size], bool], *, is_turned: bool = False
) -> Image.Image:
    """Decode an image, a JPEG not larger than `scale` needs it, in RGB; turned by EXIF if wanted.

    An OSError where its size as stored is not what was expected.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, about odd but readable files
        with open_image(read_image(path)) as image:
            if not is_expected(image.size):
                raise OSError("it changed while it was read")
            image.draft("RGB", (math.ceil(image.width * scale), math.ceil(image.height * scale)))
            image.load()
            upright = ImageOps.exif_transpose(image) if is_turned else image
            rgb = convert_to_rgb(upright)
            return rgb if rgb.mode == "RGB" and rgb is not image else rgb.convert("RGB")


def jpeg_of(image: Image.Image, what: Cut, size: Size, quality: int = QUALITY) -> bytes:
    """Cut a window, given in pixels of the image of `size`, out of the decoded image."""
    one, scale = what[0], scale_of(*what)
    width, height = (max(round((one[k + 2] - one[k]) * scale), 1) for k in (0, 1))
    across, down = image.width / size[0], image.height / size[1]
    box = (one[0] * across, one[1] * down, one[2] * across, one[3] * down)
    if scale == 1 and image.size == size:
        cut = image.crop(one)
    else:
        cut = image.resize((width, height), Image.Resampling.BILINEAR, box, reducing_gap=2.0)
    cut.info = {}  # nothing that the file said of itself: comments, profiles, EXIF
    file = io.BytesIO()
    cut.save(file, "JPEG", quality=quality)
    return file.getvalue()


def _path(request: Request) -> str:
    return request.path
