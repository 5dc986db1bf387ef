"""Check a dataset, compute its statistics, and repair its boxes.

Checks work on whole columns and create a Finding only for an actual fault, so checking a clean
dataset takes little time.
"""

from boxmend.data.checks.annotations import (
    check_boxes,
    check_class_balance,
    check_duplicate_boxes,
    check_empty_images,
)
from boxmend.data.checks.counts import compute_statistics
from boxmend.data.checks.images import check_duplicate_images, check_image_files
from boxmend.data.checks.leaving_out import LeftOut, leave_out_broken
from boxmend.data.checks.near_duplicates import check_near_duplicates, find_parts
from boxmend.data.checks.repairs import Repair, repair
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.images.reading import inspect_images
from boxmend.data.progress import Progress


def check(
    dataset: Dataset,
    *,
    open_images: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """List everything wrong or doubtful: findings of the reader, then of boxes, then of images.

    With `open_images`, `jobs` worker processes (by default one per core) decode every image file.
    Images of different splits are compared. `progress` is called with the number of finished files
    and the number of all files.
    """
    findings = [
        *dataset.findings,
        *check_boxes(dataset),
        *check_duplicate_boxes(dataset),
        *check_empty_images(dataset),
        *check_class_balance(dataset),
    ]
    if open_images:
        paths = list(dict.fromkeys(path for path in dataset.images.paths if path))
        has_splits = len(set(find_parts(dataset))) > 1
        images = inspect_images(paths, appearance=has_splits, jobs=jobs, progress=progress)
        inspected = {image.path: image for image in images}
        findings += check_image_files(dataset, inspected)
        findings += check_duplicate_images(dataset, inspected)
        findings += check_near_duplicates(dataset, inspected)
    return findings


__all__ = ["LeftOut", "Repair", "check", "compute_statistics", "leave_out_broken", "repair"]
