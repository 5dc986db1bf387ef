"""Links among the images of a dataset: they may lead anywhere, so only real images are copied."""

import os

from boxmend.data.images.reading import read_header_size
from boxmend.errors import DataError


def ensure_copyable(path: str) -> None:
    """Raise a DataError if an image file is a link to anything but an image.

    A dataset from others may contain `images/a.jpg` as a link to a private file, which a copy of
    the dataset would include. Links to images are allowed: boxmend itself writes them.
    """
    target = os.path.realpath(path)
    if target != path and read_header_size(path) is None:
        raise DataError(
            f"{path}: is a link to {target}, which is not a readable image and may be private, so "
            "it is not copied. Remove it from the dataset, replace it by the image itself, or use "
            "--images-as link or none"
        )
