"""Functions of all three readers: options, safe names, and image sizes."""

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
    """The user's options for reading."""

    images: Path | None = None
    """Folder of the images, if it is not at a usual place near the documents."""
    polygons: str = "refuse"
    """For polygons in place of boxes (YOLO, COCO): "refuse" them, or take the "box" around."""

    def __post_init__(self) -> None:
        if self.polygons not in POLYGON_CHOICES:
            raise UsageError(f"polygons must be one of {', '.join(POLYGON_CHOICES)}")
        if self.images is not None and not self.images.is_dir():
            raise UsageError(f"{self.images}: no such folder of images")


def is_safe_name(name: str) -> bool:
    """Return whether joining `name` to a folder stays inside that folder on any system."""
    if not name or "\0" in name or "\\" in name or name[0] == "/" or name[1:2] == ":":
        return False
    return name[-1] != "/" and (".." not in name or ".." not in name.split("/"))


def read_file(path: str | Path, limit_name: str = "annotation_bytes") -> ReadFile:
    """Read a regular file with its state; raise a DataError that names it if that fails."""
    try:
        return change_detection.read_file(path, limit_name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise DataError(f"{path}: cannot be read ({describe_os_error(error)})") from error


def read_image_size(path: Path) -> tuple[int, int] | None:
    """Return width and height from the image's header, or None; see `read_header_size`."""
    return read_header_size(str(path))
