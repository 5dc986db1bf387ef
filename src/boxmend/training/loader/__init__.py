"""Load the images and annotations of a dataset as padded batches on the device.

A `Loader` yields `Batch`es; the `Frame` of a batch converts boxes to the network frame and back.
"""

from boxmend.training.loader.batches import Batch, Loader, LoaderOptions
from boxmend.training.loader.decode import decode, resize
from boxmend.training.loader.frame import Frame, ImageSize, fit

__all__ = ["Batch", "Frame", "ImageSize", "Loader", "LoaderOptions", "decode", "fit", "resize"]
