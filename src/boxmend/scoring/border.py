"""Leave out objects at the border of images, since annotators often follow another rule there."""

from dataclasses import replace

import numpy as np

from boxmend.data.boxes import are_at_border
from boxmend.data.dataset import UNKNOWN, Dataset, Images
from boxmend.errors import DataError
from boxmend.scoring.fixes import get_true_objects
from boxmend.scoring.truth import NONE, IgnoredObjects, KnownTruth


def leave_out_border(truth: KnownTruth, dataset: Dataset, margin_px: float) -> KnownTruth:
    """Return the truth in which nothing within `margin_px` pixels of the image border counts.

    - Annotations are neutral if their true box touches the border, or their own box if they show no
      object.
    - Missing objects at the border are neutral, and so are proposals on them.
    - Other proposals at the border are neutral, unless they find a missing object.

    A DataError names an image whose size is unknown.
    """
    _ensure_sized(dataset.images)
    objects = get_true_objects(truth)
    sizes = dataset.images.sizes
    is_cut = objects.is_missing & are_at_border(objects.boxes, sizes[objects.image_rows], margin_px)
    boxes = np.where(truth.is_spurious[:, None], dataset.boxes, truth.boxes)
    at_border = are_at_border(boxes, sizes[dataset.image_rows], margin_px)
    at_border &= dataset.image_rows != UNKNOWN
    places = np.append(np.where(is_cut, NONE, np.cumsum(~is_cut) - 1), NONE)
    kept = replace(
        objects,
        image_rows=objects.image_rows[~is_cut],
        labels=objects.labels[~is_cut],
        boxes=objects.boxes[~is_cut],
        object_rows=places[objects.object_rows],  # NONE selects the last entry
    )
    cut = IgnoredObjects(
        objects.image_rows[is_cut], objects.boxes[is_cut], np.zeros(int(is_cut.sum()), np.bool_)
    )
    return replace(
        truth,
        image_rows=kept.image_rows,
        image_boxes=kept.boxes,
        objects=kept,
        is_neutral=~truth.is_counted | at_border,
        ignored=_join(truth.ignored, cut),
        neutral_margin_px=margin_px,
    )


def _ensure_sized(images: Images) -> None:
    is_unknown = (images.sizes <= 0).any(axis=1)
    if is_unknown.any():
        name = images.file_names[int(is_unknown.argmax())]
        raise DataError(f"{name}: its size is unknown, so its border is, too")


def _join(first: IgnoredObjects | None, second: IgnoredObjects) -> IgnoredObjects:
    if first is None:
        return second
    return IgnoredObjects(
        np.concatenate([first.image_rows, second.image_rows]),
        np.concatenate([first.boxes, second.boxes]),
        np.concatenate([first.is_crowd, second.is_crowd]),
    )
