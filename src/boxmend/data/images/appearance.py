"""Describe what an image looks like, so that copies are found although their bytes differ."""

from dataclasses import dataclass

import numpy as np
from PIL import Image

from boxmend.data.images.decoding import convert_to_rgb

HASH_SIDE = 16  # the perceptual hash has as many bits as a square of this side
DECODED_SIDE = 4 * HASH_SIDE  # pixels of the image that the hash is computed from
THUMBNAIL_SIDE = 16  # pixels
MIN_CONTRAST = 2.0  # standard deviation of grey values; below it, the hash describes only noise
DRAFT_SIDE = 32  # pixels; a JPEG may be decoded as small as this, which hardly changes the hash


@dataclass(frozen=True, slots=True)
class Appearance:
    """The look of an image: a perceptual hash and a thumbnail, both independent of its size."""

    hash: bytes  # 256 bits: which low frequencies are stronger than their median
    thumbnail: bytes  # [16, 16] grey values


def shrink_image(image: Image.Image) -> Image.Image:
    """Return a decoded image as the small grey one that `describe_appearance` takes."""
    side = (DECODED_SIDE, DECODED_SIDE)
    colours = convert_to_rgb(image)
    return colours.resize(side, Image.Resampling.LANCZOS, reducing_gap=2.0).convert("L")


def describe_appearance(small: Image.Image) -> Appearance | None:
    """Return the look of an image that `shrink_image` returned; None if it is blank."""
    import imagehash  # imported late: it takes time, and most commands compare no images

    thumbnail = small.resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.BOX)
    if np.asarray(thumbnail).std() < MIN_CONTRAST:
        return None
    bits = imagehash.phash(small, hash_size=HASH_SIDE).hash
    return Appearance(np.packbits(bits).tobytes(), thumbnail.tobytes())
