"""The loader: a dataset's images and annotations in, padded batches on the device out.

`Loader` makes the `Batch`es; its `Frame` leads boxes into the network frame and exactly back.
"""

from boxmend.training.loader.batches import Batch, Loader, LoaderOptions
from boxmend.training.loader.decode import decode, resized
from boxmend.training.loader.frame import Frame, ImageSize, fit

__all__ = ["Batch", "Frame", "ImageSize", "Loader", "LoaderOptions", "decode", "fit", "resized"]
