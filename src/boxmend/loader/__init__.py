"""The loader: a dataset's images and annotations in, padded batches on the device out.

`Loader` makes the `Batch`es; its `Frame` leads boxes into the network frame and exactly back.
"""

from boxmend.loader.batches import Batch, Loader, LoaderOptions
from boxmend.loader.decode import decode, resized
from boxmend.loader.frame import Frame, ImageSize, fit

__all__ = ["Batch", "Frame", "ImageSize", "Loader", "LoaderOptions", "decode", "fit", "resized"]
