"""Pictures of annotations for notebooks."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from boxmend.data.arguments import MAX_COORDINATE_PIXELS
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.images.drawing import Color, Outline, Panel, draw_panel
from boxmend.data.images.reading import read_header_size
from boxmend.data.in_memory import find_images
from boxmend.data.types import Box
from boxmend.errors import DataError, UsageError

COLORS: tuple[Color, ...] = (
    *((86, 180, 233), (230, 159, 0), (0, 190, 140), (240, 228, 66)),
    *((213, 94, 0), (204, 121, 167), (120, 140, 255), (160, 220, 90)),
)
"""Colours of labels, in their order; more labels than colours repeat them."""
MIN_PICTURE_PIXELS = 16
MIN_SIDE_PIXELS = 480  # smaller images are enlarged, so that captions can be read


def draw_annotations(dataset: Dataset, image_id: int | str, side: int) -> Image.Image:
    """Draw all annotations of an image; the long side has at most `side` pixels."""
    check_side(side)
    image = int(find_images(dataset, "image_id", [image_id])[0])
    outlines = [
        Outline(to_box(dataset.boxes[row]), color_of(label), name_of(dataset, label))
        for row, label in enumerate(dataset.labels.tolist())
        if dataset.image_rows[row] == image
    ]
    path = image_file(dataset, image)
    stored_side = max(read_header_size(str(path)) or (side, side))
    enlarged_side = max(stored_side, MIN_SIDE_PIXELS)
    return draw_panel(Panel(path, outlines), min(side, enlarged_side))


def check_side(side: int) -> None:
    """Raise a UsageError if the side of a picture is too small or not a whole number."""
    if not isinstance(side, int) or isinstance(side, bool) or side < MIN_PICTURE_PIXELS:
        raise UsageError(f"side is {side!r}; expected at least {MIN_PICTURE_PIXELS} pixels")


def image_file(dataset: Dataset, image: int) -> Path:
    """Return the path of the image at this row; raise a DataError if there is no such file."""
    path = dataset.images.paths[image]
    if path and Path(path).is_file():
        return Path(path)
    name = dataset.images.file_names[image] or repr(dataset.images.ids[image])
    where = f"there is no file {path}" if path else "the folder of the images is unknown"
    raise DataError(f"{name}: cannot be shown, since {where}; name the folder by load(images=...)")


def name_of(dataset: Dataset, label: int) -> str:
    """Return the name of a label; a question mark if it is unknown."""
    return "?" if label == UNKNOWN else dataset.label_names[label]


def color_of(label: int) -> Color:
    """Return the colour of a label."""
    return COLORS[label % len(COLORS)]


def to_box(values: Sequence[float]) -> Box:
    """Return the four numbers of a box as a tuple; a box that is not finite becomes empty."""
    x1, y1, x2, y2 = map(float, values)
    box = (x1, y1, x2, y2)
    return box if all(abs(side) <= MAX_COORDINATE_PIXELS for side in box) else (0.0, 0.0, 0.0, 0.0)
