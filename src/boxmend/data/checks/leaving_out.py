"""Leave out the entries of a dataset that are broken: lines, annotations and images."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from boxmend.data.checks.repairs import Repair
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.findings import Finding, Severity
from boxmend.data.types import Mask

LEFT_OUT = "left out"
REPAIRABLE_KINDS = {"box-not-finite", "box-flipped", "box-empty", "box-outside"}
"""Errors that `repair` removes."""
FILE_KINDS = {"missing-image", "unreadable-image", "truncated-image"}
"""Errors about an image file, which name the file; others name the entry by its id."""
FORMATS_WITH_INDEX = {"coco", "yolo"}
"""Formats with one document of all labels; errors in it that belong to no entry stay."""


@dataclass(frozen=True)
class LeftOut:
    """A dataset without its broken entries."""

    dataset: Dataset
    entries: list[Repair]  # the broken entries, each with the error
    findings: frozenset[Finding]  # about these entries


def leave_out_broken(dataset: Dataset, findings: Sequence[Finding]) -> LeftOut:
    """Return a dataset without the entries that have errors, and list these entries.

    Boxes are left to `repair`. Of entries that share an id, the first one stays. Errors about the
    list of labels stay, because nothing can be left out for them.
    """
    errors = [
        finding
        for finding in dict.fromkeys(findings)
        if finding.severity is Severity.ERROR and finding.kind not in REPAIRABLE_KINDS
    ]
    images = _find_images(dataset, errors)
    is_kept_image = np.ones(len(dataset.images), np.bool_)
    is_kept_image[[row for rows in images.values() for row in rows]] = False
    indices = {
        str(source.path) for source in dataset.sources if source.format in FORMATS_WITH_INDEX
    }
    resolved = [
        error
        for error in errors
        if error in images or error.annotation_id is not None or error.file not in indices
    ]
    smaller = dataset.take(~_mark_broken(dataset, errors))
    if not is_kept_image.all():
        smaller = smaller.take_images(np.flatnonzero(is_kept_image))
    left = replace(
        smaller,
        sources=tuple(source.without_broken_lines() for source in dataset.sources),
        findings=tuple(finding for finding in dataset.findings if finding not in set(resolved)),
    )
    return LeftOut(left, list(_describe(dataset, resolved, images)), frozenset(resolved))


def _mark_broken(dataset: Dataset, errors: Sequence[Finding]) -> Mask:
    """Mark annotations that are malformed, repeat an id, or lack a known label or image."""
    malformed = {error.annotation_id for error in errors if error.kind == "malformed"} - {None}
    repeated = {error.annotation_id for error in errors if error.kind == "duplicate-id"} - {None}
    is_broken: Mask = (dataset.labels == UNKNOWN) | (dataset.image_rows == UNKNOWN)
    if malformed or repeated:
        seen = set()
        for row, identity in enumerate(dataset.annotation_ids.tolist()):
            is_broken[row] |= identity in malformed or identity in seen
            if identity in repeated:
                seen.add(identity)
    return is_broken


def _find_images(dataset: Dataset, errors: Sequence[Finding]) -> dict[Finding, list[int]]:
    """Return the rows of the images to leave out, by the error about them."""
    about_images = [error for error in errors if error.annotation_id is None and error.image]
    if not about_images:
        return {}
    rows_by_name: dict[tuple[bool, str, str], list[int]] = defaultdict(list)
    for row in range(len(dataset.images)):
        for key in dict.fromkeys(_list_names(dataset, row)):
            rows_by_name[key].append(row)
    found = {}
    for error in about_images:
        key = (error.kind in FILE_KINDS, error.file, error.image or "")
        if rows := rows_by_name.get(key, []):  # of several images with one id, the first one stays
            found[error] = rows[1:] if len(rows) > 1 and error.kind == "duplicate-id" else rows
    return found


def _list_names(dataset: Dataset, row: int) -> Iterator[tuple[bool, str, str]]:
    """Yield whether a finding is about the image file, its file and its name for this image."""
    images = dataset.images
    source = dataset.sources[images.sources[row]]
    source_row, file_name = int(images.rows[row]), images.file_names[row]
    for place in (str(source.document(source_row)), images.paths[row], str(source.path)):
        yield True, place, file_name
        yield False, place, source.image_id(source_row) or file_name


def _describe(
    dataset: Dataset, errors: Sequence[Finding], images: dict[Finding, list[int]]
) -> Iterator[Repair]:
    counts = Counter(dataset.image_rows.tolist())
    for error in errors:
        message = error.message
        if num_annotations := sum(counts[row] for row in images.get(error, ())):
            plural = "s" * (num_annotations > 1)
            message += f" (with its {num_annotations:,} annotation{plural})"
        yield Repair(error.annotation_id, error.file, LEFT_OUT, message, error.image)
