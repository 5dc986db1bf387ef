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


def draw_sheet(panels: Sequence[Panel], *, columns: int, side: int = 288) -> Image.Image:
    """Draw panels in rows of `columns`; scale the long side of each image to `side` pixels."""
    rows = -(-len(panels) // columns)
    step = side + GAP_PIXELS
    size = (columns * step + GAP_PIXELS, rows * step + GAP_PIXELS)
    picture = Image.new("RGB", size, _BACKGROUND)
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        corner = (GAP_PIXELS + column * step, GAP_PIXELS + row * step)
        picture.paste(_draw_panel(panel, side), corner)
    return picture


def _draw_panel(panel: Panel, side: int) -> Image.Image:
    with open_image(read_image(str(panel.path))) as original:
        image = convert_to_rgb(original).convert("RGB")
    scale = side / max(image.size)
    image = image.resize(
        (round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS
    )
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=max(11, side // 22))
    for outline in panel.outlines:
        x1, y1, x2, y2 = (value * scale for value in outline.box)
        draw.rectangle((x1, y1, x2 - 1, y2 - 1), outline=outline.color, width=max(2, side // 140))
    for outline in panel.outlines:  # captions last, so that no box crosses them
        if outline.caption:
            _draw_caption(draw, outline, scale, font, image.size)
    return image


def _draw_caption(
    draw: ImageDraw.ImageDraw,
    outline: Outline,
    scale: float,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
    size: tuple[int, int],
) -> None:
    left, top, right, bottom = draw.textbbox((0, 0), outline.caption, font=font)
    width, height = right - left + 6, bottom - top + 5
    x = min(max(outline.box[0] * scale, 0), size[0] - width)
    y = outline.box[1] * scale - height
    y = y if y >= 0 else min(outline.box[1] * scale, size[1] - height)
    draw.rectangle((x, y, x + width, y + height), fill=outline.color)
    ink = (20, 20, 20) if sum(outline.color) > 450 else WHITE
    draw.text((x + 3 - left, y + 2 - top), outline.caption, font=font, fill=ink)
