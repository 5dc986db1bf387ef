"""Opening image files: are they there, whole, of what size, turned by EXIF, and the same?

An image file is hostile until it is decoded: it may be a pipe, end in the middle, or claim a
size that no memory holds. Whatever it is, `inspect` answers; it raises for no file.
"""

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal, TypeVar

from PIL import Image, UnidentifiedImageError

from boxmend.data.files.limits import get_limit
from boxmend.data.files.reading import open_file
from boxmend.data.images.decoding import (
    PixelBudget,
    TooManyPixelsError,
    known_formats,
    opened,
    read_image,
    shared_budget,
    strictly,
    use_budget,
)
from boxmend.data.progress import Progress
from boxmend.errors import BoxmendError, UsageError

Problem = Literal["missing", "unreadable", "truncated"]
Item = TypeVar("Item")
Made = TypeVar("Made")

FEW_IMAGES = 64  # decoded in less time than worker processes take to start
CHUNK = 16  # images handed to a worker at once
MAX_WORKERS = 61  # Windows cannot wait for more
DIGEST_BYTES = 20  # two different files of the same digest will not be met
ORIENTATION = 0x0112  # EXIF tag; 1 is upright, 2 to 8 are mirrored or turned
UPRIGHT = 1

_WARNINGS = threading.Lock()  # their switches are shared by all threads


@dataclass(frozen=True)
class Photo:
    """What an image file turned out to be."""

    path: str
    size: tuple[int, int] | None = None
    """Width and height of the pixels as stored; None where no header could be read."""
    orientation: int = UPRIGHT
    digest: str | None = None
    """Hash of the bytes; None where they could not be read."""
    problem: Problem | None = None
    detail: str = ""
    """What the problem is, in words."""


def inspect(path: str) -> Photo:
    """Read and decode one image file; what is wrong with it is in the result, never raised."""
    try:
        data = read_image(path)
    except FileNotFoundError:
        return Photo(path, problem="missing", detail=_why_missing(path))
    except NotADirectoryError:
        return Photo(path, problem="missing", detail="a part of its path is no folder")
    except OSError as error:
        return Photo(path, problem="unreadable", detail=error.strerror or str(error))
    except ValueError as error:  # a path that no file system can hold
        return Photo(path, problem="unreadable", detail=f"not a usable path ({error})")
    photo = Photo(path, digest=blake2b(data, digest_size=DIGEST_BYTES).hexdigest())
    if not data:
        return replace(photo, problem="unreadable", detail="the file is empty")
    with _without_warnings():
        return _decoded(photo, data)


def header_size(path: str) -> tuple[int, int] | None:
    """Width and height by an image's header, as stored (EXIF rotation is not applied).

    None where the file is missing, is no regular file, has no header that can be read, or claims
    more than twice the pixels that are decoded.
    """
    try:
        with (
            open_file(path) as file,
            _without_warnings(),
            strictly(),
            Image.open(file, formats=known_formats()) as image,
        ):
            width, height = image.size
            return (width, height) if width * height <= 2 * get_limit("image_pixels") else None
    except Exception:  # decoders raise nearly anything on bytes that lie
        return None


def inspect_all(
    paths: Sequence[str], *, jobs: int | None = None, progress: Progress | None = None
) -> Iterator[Photo]:
    """Inspect image files in worker processes, one per core unless `jobs` says otherwise.

    Yields the photos in the order of the paths and tells `progress` how many of how many are
    done. Few images, or one job, are inspected in this process.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}")
    workers = min(jobs or os.cpu_count() or 1, -(-len(paths) // CHUNK), MAX_WORKERS)
    alone = workers < 2 or len(paths) < FEW_IMAGES
    photos = map(inspect, paths) if alone else by_workers(inspect, paths, str, workers)
    for done, photo in enumerate(photos, start=1):
        yield photo
        if progress is not None:
            progress(done, len(paths))


def by_workers(
    work: Callable[[Item], Made],
    items: Sequence[Item],
    path_of: Callable[[Item], str],
    workers: int,
) -> Iterator[Made]:
    """Work on images in so many processes; results come in the order of the items.

    A BoxmendError names the image at which a process died.
    """
    # Spawned, not forked: a fork copies the locks of threads (numpy's, pyarrow's) in mid-air.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, context, initializer=_start_worker, initargs=(shared_budget(context),)
    )
    done = 0
    try:
        for one in pool.map(work, items, chunksize=CHUNK):
            done += 1
            yield one
    except BrokenProcessPool as error:
        raise BoxmendError(
            f"{path_of(items[done])}: a worker process died at this image or one soon after it "
            "(out of memory, or a file that crashes the decoder); `boxmend check --jobs 1` tells "
            'which. A script needs `if __name__ == "__main__":` around its call.'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(budget: PixelBudget) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    use_budget(budget)


def _why_missing(path: str) -> str:
    if os.path.islink(path):
        return f"a link to {os.readlink(path)}, which is not there"
    return "no such file"


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress Pillow's warnings about odd but readable files."""
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _decoded(photo: Photo, data: bytes) -> Photo:
    """Add to a photo what decoding its bytes tells."""
    try:
        with opened(data) as image:
            photo = replace(photo, size=image.size, orientation=_orientation(image))
            image.draft("L", (1, 1))  # a JPEG is then read whole but hardly computed
            image.load()
    except TooManyPixelsError as error:
        return replace(photo, problem="unreadable", detail=str(error))
    except UnidentifiedImageError:
        return _broken(photo, data, "no image format that is known")
    except Exception as error:  # decoders raise nearly anything on bytes that lie
        return _broken(photo, data, f"{error or type(error).__name__}")
    if _ends_early(data, decodes=True):
        return replace(photo, problem="truncated", detail="its end is missing")
    return photo


def _broken(photo: Photo, data: bytes, detail: str) -> Photo:
    if "truncated" in detail.lower() or _ends_early(data, decodes=False):
        return replace(photo, problem="truncated", detail=detail)
    return replace(photo, problem="unreadable", detail=detail)


def _ends_early(data: bytes, *, decodes: bool) -> bool:
    """Whether a JPEG, PNG or WebP lacks its end; a JPEG that decodes is known to be whole."""
    if data.startswith(b"\xff\xd8"):
        return not decodes and not data.rstrip(b"\0").endswith(b"\xff\xd9")
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data.rfind(b"IEND\xaeB`\x82") < 0  # the last chunk with its checksum
    if data.startswith(b"RIFF"):
        return len(data) < 8 or int.from_bytes(data[4:8], "little") + 8 > len(data)
    return False


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(ORIENTATION, UPRIGHT)
    except Exception:  # EXIF that cannot be read turns no viewer's head
        return UPRIGHT
    return value if isinstance(value, int) and 1 <= value <= 8 else UPRIGHT
