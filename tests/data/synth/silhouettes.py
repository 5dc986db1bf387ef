"""The coverage of pixels by a drawn shape."""

import numpy as np

from boxmend.data.synth.shapes import Field, PlacedShape


def silhouette(placed: PlacedShape, size: int) -> Field:
    """Tell how much of each pixel a shape covers, as if it lay alone: [size, size] in 0..1."""
    window = placed.window(size, reach=1)
    distance = placed.distance(*placed.pixel_centers(size, window), placed.build)
    cover = np.zeros((size, size), dtype=np.float32)
    cover[window] = np.clip(0.5 - distance * placed.pixels_per_unit(size), 0, 1)
    return cover
