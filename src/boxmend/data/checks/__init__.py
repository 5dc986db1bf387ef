"""What is wrong with a dataset, finding by finding; what it holds; and how to repair it.

Columns are checked whole, and a Finding is made only where something is found: a clean dataset
costs little more than a look at its arrays.
"""

from boxmend.data.checks.annotations import bare_images, box_findings, duplicate_boxes, imbalance
from boxmend.data.checks.counts import statistics
from boxmend.data.checks.images import duplicate_images, photo_findings
from boxmend.data.checks.repairs import Repair, repair
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.images.reading import inspect_all
from boxmend.data.progress import Progress


def check(
    dataset: Dataset,
    *,
    open_images: bool = True,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """List all that is wrong or doubtful: what reading stumbled over, then boxes, then images.

    With `open_images` every image file is decoded, by `jobs` worker processes (one per core
    unless told); `progress` hears how many of how many files are done.
    """
    findings = [
        *dataset.findings,
        *box_findings(dataset),
        *duplicate_boxes(dataset),
        *bare_images(dataset),
        *imbalance(dataset),
    ]
    if open_images:
        paths = list(dict.fromkeys(path for path in dataset.images.paths if path))
        photos = {photo.path: photo for photo in inspect_all(paths, jobs=jobs, progress=progress)}
        findings += photo_findings(dataset, photos)
        findings += duplicate_images(dataset, photos)
    return findings


__all__ = ["Repair", "check", "repair", "statistics"]
