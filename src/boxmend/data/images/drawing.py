"""Draw images with boxes, side by side on one sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from boxmend.data.images.decoding import convert_to_rgb, open_image, read_image

Color = tuple[int, int, int]
WHITE: Color = (255, 255, 255)
RED: Color = (235, 60, 60)
GREEN: Color = (70, 200, 110)
GAP_PIXELS = 6  # between panels and around them
_BACKGROUND: Color = (24, 26, 30)


@dataclass(frozen=True)
class Outline:
    """A box to draw, in pixels of the image, with an optional caption."""

    box: tuple[float, float, float, float]
    color: Color
    caption: str = ""


@dataclass(frozen=True)
class Panel:
    """One image of a sheet with its outlines."""

    path: Path
    outlines: Sequence[Outline]
    window: tuple[int, int, int, int] | None = None
    """The part of the image to draw, in pixels; None for the whole image."""


def draw_sheet(panels: Sequence[Panel], *, columns: int, side: int = 288) -> Image.Image:
    """Draw panels in rows of `columns`; scale the long side of each image to `side` pixels."""
    rows = -(-len(panels) // columns)
    step = side + GAP_PIXELS
    size = (columns * step + GAP_PIXELS, rows * step + GAP_PIXELS)
    picture = Image.new("RGB", size, _BACKGROUND)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        corner = (GAP_PIXELS + column * step, GAP_PIXELS + row * step)
        picture.paste(draw_panel(panel, side), corner)
    return picture


def draw_panel(panel: Panel, side: int) -> Image.Image:
    """Draw an image, or its window, with outlines; the long side has `side` pixels."""
    with open_image(read_image(str(panel.path))) as original:
        image = convert_to_rgb(original).convert("RGB")
    left, top, right, bottom = panel.window or (0, 0, *image.size)
    image = image.crop((left, top, right, bottom))
    scale = side / max(image.size)
    width, height = (max(round(length * scale), 1) for length in image.size)
    image = image.resize((width, height), Image.Resampling.LANCZOS)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=max(11, side // 22))
    boxes = [
        [(value - shift) * scale for value, shift in zip(outline.box, (left, top) * 2, strict=True)]
        for outline in panel.outlines
    ]
    for (x1, y1, x2, y2), outline in zip(boxes, panel.outlines, strict=True):
        corners = (x1, y1, max(x2 - 1, x1), max(y2 - 1, y1))
        draw.rectangle(corners, outline=outline.color, width=max(2, side // 140))
    for (x1, y1, _, _), outline in zip(boxes, panel.outlines, strict=True):
        if outline.caption:  # captions last, so that no box crosses them
            _draw_caption(draw, outline, (x1, y1), font, image.size)
    return image


def _draw_caption(
    draw: ImageDraw.ImageDraw,
    outline: Outline,
    corner: tuple[float, float],
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    size: tuple[int, int],
) -> None:
    left, top, right, bottom = draw.textbbox((0, 0), outline.caption, font=font)
    width, height = right - left + 6, bottom - top + 5
    x = min(max(corner[0], 0), size[0] - width)
    y = corner[1] - height
    y = y if y >= 0 else max(min(corner[1], size[1] - height), 0)
    draw.rectangle((x, y, x + width, y + height), fill=outline.color)
    ink = (20, 20, 20) if sum(outline.color) > 450 else WHITE
    draw.text((x + 3 - left, y + 2 - top), outline.caption, font=font, fill=ink)
