"""Links among the images of a dataset: they may lead anywhere, so only images are copied."""

import os

from boxmend.data.images.reading import read_header_size
from boxmend.errors import DataError


def ensure_copyable(path: str) -> None:
    """Raise a DataError where an image file is a link to something else than an image.

    A dataset from others may hold `images/a.jpg` as a link to a private file, which a copy of the
    dataset would carry along. Links to images are copied: boxmend itself writes datasets of them.
    """
    target = os.path.realpath(path)
    if target != path and read_header_size(path) is None:
        raise DataError(
            f"{path}: leads by a link to {target}, which is no image that can be read; it is not "
            "copied, because it may be private. Remove it from the dataset, put the image itself "
            "there, or use --images-as link or none"
        )
