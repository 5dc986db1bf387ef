"""The network frame: how images are scaled, mirrored and padded into a batch, and the inverse."""

from typing import NamedTuple

import torch
from torch import Tensor

from boxmend.errors import UsageError


class ImageSize(NamedTuple):
    """The size of images in the network frame, in pixels; see `fit`."""

    long: int
    """The long side; with `short`, its upper bound."""
    short: int | None = None
    """The upper bound of the short side; None bounds the long side only."""

    def check(self) -> None:
        """Raise a UsageError if a side has less than one pixel."""
        if min(self.long, self.short or 1) < 1 or self.short == 0:
            raise UsageError(f"sides of an image size must be at least 1 pixel, got {self}")


def fit(width: int, height: int, short: int | None, long: int) -> tuple[int, int]:
    """Return the largest width and height with the same ratio within both bounds.

    The scale is s = min(short / min(width, height), long / max(width, height)), which may be above
    1. The binding side equals its bound, the other one is rounded half up and at least 1. Without
    `short` the long side becomes `long`.
    """
    smaller, larger = sorted((width, height))
    if short is not None and short * larger <= long * smaller:  # the short side binds
        new_smaller, new_larger = short, min(_scale_side(larger, short, smaller), long)
    else:
        new_smaller, new_larger = _scale_side(smaller, long, larger), long
    return (new_smaller, new_larger) if width <= height else (new_larger, new_smaller)


def _scale_side(side: int, new: int, old: int) -> int:
    """Compute side * new / old in integers, rounded half up, at least 1."""
    return max(1, (2 * side * new + old) // (2 * old))


class Frame(NamedTuple):
    """The scale and mirroring of each image of a batch; converts boxes in both directions.

    A box is scaled, x' = x * scale_x and y' = y * scale_y, then mirrored if its image is:
    (x1', x2') -> (width - x2', width - x1'). The computation is in float64, so a float32 box
    returns within 1e-4 pixels at 1000.
    """

    scale_x: Tensor  # [B] float64, network / image
    scale_y: Tensor  # [B] float64
    widths: Tensor  # [B] int64, network pixels of the real part
    is_flipped: Tensor  # [B]

    def to_network(self, boxes: Tensor) -> Tensor:
        """Convert boxes [B, A, 4] from image pixels to the network frame."""
        return self._mirror(boxes.double() * self._scales()).to(boxes.dtype)

    def to_image(self, boxes: Tensor) -> Tensor:
        """Convert boxes [B, A, 4] from the network frame to image pixels."""
        return (self._mirror(boxes.double()) / self._scales()).to(boxes.dtype)

    def _scales(self) -> Tensor:
        return torch.stack([self.scale_x, self.scale_y] * 2, -1)[:, None]  # [B, 1, 4]

    def _mirror(self, boxes: Tensor) -> Tensor:
        x1, y1, x2, y2 = boxes.unbind(-1)  # [B, A] each
        widths = self.widths[:, None]
        mirrored = torch.stack([widths - x2, y1, widths - x1, y2], -1)
        return torch.where(self.is_flipped[:, None, None], mirrored, boxes)


def mirrored_images(images: Tensor, widths: Tensor, is_flipped: Tensor) -> Tensor:
    """Mirror the real part of the marked images: column x < width comes from width - 1 - x.

    Takes images [B, 3, H, W], widths [B] and is_flipped [B]. Padding stays where it is.
    """
    columns = torch.arange(images.shape[-1], device=images.device)  # [W]
    widths, is_flipped = widths[:, None], is_flipped[:, None]  # [B, 1]
    source = torch.where(is_flipped & (columns < widths), widths - 1 - columns, columns)  # [B, W]
    return images.gather(-1, source[:, None, None].expand_as(images))
