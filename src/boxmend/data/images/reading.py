"""Inspect image files: existence, completeness, size, EXIF orientation and digest.

An image file may be a pipe, end in the middle, or claim a size that exceeds the memory.
`inspect_image` reports such problems and never raises.
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
from functools import partial
from hashlib import blake2b
from typing import Literal, TypeVar

from PIL import Image, UnidentifiedImageError

from boxmend.data.files.limits import get_limit
from boxmend.data.files.reading import open_file
from boxmend.data.images.appearance import (
    DRAFT_SIDE,
    Appearance,
    describe_appearance,
    shrink_image,
)
from boxmend.data.images.decoding import (
    PixelBudget,
    TooManyPixelsError,
    decode_strictly,
    list_known_formats,
    make_shared_budget,
    open_image,
    read_image,
    use_budget,
)
from boxmend.data.progress import Progress
from boxmend.errors import BoxmendError, UsageError

Problem = Literal["missing", "unreadable", "truncated"]
Item = TypeVar("Item")
Result = TypeVar("Result")

MIN_IMAGES_FOR_WORKERS = 64  # fewer are decoded faster than worker processes start
IMAGES_PER_CHUNK = 16  # sent to a worker at once
MAX_WORKERS = 61  # Windows cannot wait for more processes
DIGEST_BYTES = 20  # long enough that different files never share a digest in practice
ORIENTATION_TAG = 0x0112  # of EXIF; 1 is upright, 2 to 8 are mirrored or rotated
UPRIGHT = 1

_WARNINGS_LOCK = threading.Lock()  # warning filters are global to all threads


@dataclass(frozen=True)
class InspectedImage:
    """The result of inspecting one image file."""

    path: str
    size: tuple[int, int] | None = None
    """Width and height in pixels as stored; None if the header could not be read."""
    orientation: int = UPRIGHT
    digest: str | None = None
    """Hash of the bytes; None if they could not be read."""
    problem: Problem | None = None
    detail: str = ""
    """Description of the problem."""
    appearance: Appearance | None = None
    """What a sound image looks like, if that was asked for; None for a blank one."""


def inspect_image(path: str, *, appearance: bool = False) -> InspectedImage:
    """Read and decode one image file; report problems in the result instead of raising."""
    try:
        data = read_image(path)
    except FileNotFoundError:
        return InspectedImage(path, problem="missing", detail=_describe_missing(path))
    except NotADirectoryError:
        return InspectedImage(path, problem="missing", detail="a part of its path is not a folder")
    except OSError as error:
        return InspectedImage(path, problem="unreadable", detail=error.strerror or str(error))
    except ValueError as error:  # a path that no file system allows
        return InspectedImage(path, problem="unreadable", detail=f"not a usable path ({error})")
    inspected = InspectedImage(path, digest=blake2b(data, digest_size=DIGEST_BYTES).hexdigest())
    if not data:
        return replace(inspected, problem="unreadable", detail="the file is empty")
    with _ignore_warnings():
        return _inspect_pixels(inspected, data, appearance)


def read_header_size(path: str) -> tuple[int, int] | None:
    """Return width and height from an image's header, as stored (without EXIF rotation).

    Return None if the file is missing or not a regular file, if its header cannot be read, or if
    it claims more than twice the pixels of the limit.
    """
    try:
        with (
            open_file(path) as file,
            _ignore_warnings(),
            decode_strictly(),
            Image.open(file, formats=list_known_formats()) as image,
        ):
            width, height = image.size
            return (width, height) if width * height <= 2 * get_limit("image_pixels") else None
    except Exception:  # decoders raise errors of any type on damaged bytes
        return None


def inspect_images(
    paths: Sequence[str],
    *,
    appearance: bool = False,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Iterator[InspectedImage]:
    """Inspect image files in `jobs` worker processes (by default one per core).

    Yield the results in the order of the paths, and call `progress` with the number of finished
    files and of all files. With few images or one job, this process does the work.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}")
    workers = min(jobs or os.cpu_count() or 1, -(-len(paths) // IMAGES_PER_CHUNK), MAX_WORKERS)
    inspect = partial(inspect_image, appearance=appearance)
    results: Iterator[InspectedImage]
    if workers < 2 or len(paths) < MIN_IMAGES_FOR_WORKERS:
        results = map(inspect, paths)
    else:
        results = map_in_processes(inspect, paths, str, workers)
    for done, inspected in enumerate(results, start=1):
        yield inspected
        if progress is not None:
            progress(done, len(paths))


def map_in_processes(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    path_of: Callable[[Item], str],
    workers: int,
) -> Iterator[Result]:
    """Apply a function to items in worker processes; yield the results in the order of the items.

    Raise a BoxmendError that names the image at which a process died.
    """
    # Spawned, not forked: a fork would copy locks that threads of numpy or pyarrow hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, context, initializer=_start_worker, initargs=(make_shared_budget(context),)
    )
    done = 0
    try:
        for result in pool.map(function, items, chunksize=IMAGES_PER_CHUNK):
            done += 1
            yield result
    except BrokenProcessPool as error:
        raise BoxmendError(
            f"{path_of(items[done])}: a worker process died at this image or one of the next "
            "(out of memory, or a file that crashes the decoder); run `boxmend check --jobs 1` to "
            'find it. In a script, call boxmend under `if __name__ == "__main__":`.'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(budget: PixelBudget) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts
    use_budget(budget)


def _describe_missing(path: str) -> str:
    if os.path.islink(path):
        return f"a link to {os.readlink(path)}, which does not exist"
    return "no such file"


@contextmanager
def _ignore_warnings() -> Iterator[None]:
    """Suppress Pillow's warnings about odd but readable files."""
    with _WARNINGS_LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _inspect_pixels(
    inspected: InspectedImage, data: bytes, wants_appearance: bool
) -> InspectedImage:
    """Decode an image; return the inspection with its size, orientation, look and problem."""
    try:
        with open_image(data) as image:
            orientation = _read_orientation(image)
            inspected = replace(inspected, size=image.size, orientation=orientation)
            image.draft("L", (DRAFT_SIDE, DRAFT_SIDE))  # reads all of a JPEG, computes little
            image.load()
            small = shrink_image(image) if wants_appearance else None
    except TooManyPixelsError as error:
        return replace(inspected, problem="unreadable", detail=str(error))
    except UnidentifiedImageError:
        return _add_problem(inspected, data, "not a known image format")
    except Exception as error:  # decoders raise errors of any type on damaged bytes
        return _add_problem(inspected, data, f"{error or type(error).__name__}")
    if _ends_early(data, decodes=True):
        return replace(inspected, problem="truncated", detail="its end is missing")
    return replace(inspected, appearance=describe_appearance(small) if small else None)


def _add_problem(inspected: InspectedImage, data: bytes, detail: str) -> InspectedImage:
    if "truncated" in detail.lower() or _ends_early(data, decodes=False):
        return replace(inspected, problem="truncated", detail=detail)
    return replace(inspected, problem="unreadable", detail=detail)


def _ends_early(data: bytes, *, decodes: bool) -> bool:
    """Return whether a JPEG, PNG or WebP lacks its end; a JPEG that decodes is complete."""
    if data.startswith(b"\xff\xd8"):
        return not decodes and not data.rstrip(b"\0").endswith(b"\xff\xd9")
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data.rfind(b"IEND\xaeB`\x82") < 0  # the last chunk with its checksum
    if data.startswith(b"RIFF"):
        return len(data) < 8 or int.from_bytes(data[4:8], "little") + 8 > len(data)
    return False


def _read_orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(ORIENTATION_TAG, UPRIGHT)
    except Exception:  # viewers ignore EXIF data that they cannot read
        return UPRIGHT
    return value if isinstance(value, int) and 1 <= value <= 8 else UPRIGHT
