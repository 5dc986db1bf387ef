"""What the three readers share: options, safe names, and the sizes of images."""

from dataclasses import dataclass
from pathlib import Path

from boxmend.data.files import change_detection
from boxmend.data.files.change_detection import ReadFile
from boxmend.data.files.reading import describe_os_error
from boxmend.data.images.reading import read_header_size
from boxmend.errors import DataError, UsageError

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")
POLYGON_CHOICES = ("refuse", "box")


@dataclass(frozen=True)
class ReadOptions:
    """How to read, as far as it is the user's choice."""

    images: Path | None = None
    """Folder of the images, where it is not one of the usual places around the documents."""
    polygons: str = "refuse"
    """What to do with polygons in YOLO label files: refuse them, or take the box around each."""

    def __post_init__(self) -> None:
        if self.polygons not in POLYGON_CHOICES:
            raise UsageError(f"polygons must be one of {', '.join(POLYGON_CHOICES)}")
        if self.images is not None and not self.images.is_dir():
            raise UsageError(f"{self.images}: no such folder of images")


def is_safe_name(name: str) -> bool:
    """Whether joining `name` to a folder stays inside that folder, on any system."""
    if not name or "\0" in name or "\\" in name or name[0] == "/" or name[1:2] == ":":
        return False
    return name[-1] != "/" and (".." not in name or ".." not in name.split("/"))


def read_file(path: str | Path, limit_name: str = "annotation_bytes") -> ReadFile:
    """Read a regular file, and what shows later whether it changed; a DataError names it."""
    try:
        return change_detection.read_file(path, limit_name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error


def image_size(path: Path) -> tuple[int, int] | None:
    """Width and height by the image's header, or None; see `reading.read_header_size`."""
    return read_header_size(str(path))
