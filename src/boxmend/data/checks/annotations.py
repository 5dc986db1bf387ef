"""Check the annotation columns: boxes, duplicates, empty images, and rare labels."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from boxmend.data.checks.places import (
    annotation_id,
    box_text,
    file_of_annotation,
    file_of_image,
    image_name,
    label_name,
)
from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.findings import Finding
from boxmend.data.types import Mask

OUTSIDE_TOLERANCE_PIXELS = 0.05  # rounding in relative formats stays below, mistakes do not
MAX_IMBALANCE = 100  # a label this many times rarer than the most frequent one is reported
MIN_MEAN_ANNOTATIONS = 10  # per label; in smaller datasets rare labels are not reported
RELATIVE_FORMATS = {"yolo"}
SIDES = ("on the left", "at the top", "on the right", "at the bottom")

# One odd number per column (digits of pi), so that different rows almost never have equal sums.
HASH_FACTORS = np.array(
    [
        0x243F6A8885A308D3,
        0x13198A2E03707345,
        0xA4093822299F31D1,
        0x082EFA98EC4E6C89,
        0x452821E638D01377,
    ],
    np.uint64,
)


@dataclass(frozen=True)
class Faults:
    """The boxes with each fault; a box is marked in at most one mask, the first that applies."""

    not_finite: Mask
    flipped: Mask
    empty: Mask
    outside: Mask


def find_faults(dataset: Dataset) -> Faults:
    """Mark the boxes that are not finite, flipped, empty or outside their image."""
    x1, y1, x2, y2 = dataset.boxes.T
    widths, heights = image_sizes(dataset)
    is_known = (widths > 0) & (heights > 0)
    not_finite = ~is_finite(dataset.boxes) & (is_known | ~_is_relative(dataset))
    not_finite &= ~_is_malformed(dataset)  # the reader could not read a box and reported that
    flipped = ~not_finite & ((x2 < x1) | (y2 < y1))
    empty = ~(not_finite | flipped) & ((x2 == x1) | (y2 == y1))
    beyond = (x1 < -OUTSIDE_TOLERANCE_PIXELS) | (y1 < -OUTSIDE_TOLERANCE_PIXELS)
    beyond |= (x2 > widths + OUTSIDE_TOLERANCE_PIXELS) | (y2 > heights + OUTSIDE_TOLERANCE_PIXELS)
    return Faults(not_finite, flipped, empty, ~(not_finite | flipped | empty) & is_known & beyond)


def _is_relative(dataset: Dataset) -> Mask:
    """Mark annotations of relative formats: their pixels are unknown without the image size."""
    relative = [source.format in RELATIVE_FORMATS for source in dataset.sources] or [False]
    return np.array(relative, np.bool_)[dataset.source_of]


def _is_malformed(dataset: Dataset) -> Mask:
    """Mark annotations that the reader could not read, such as a refused polygon."""
    ids_by_kind: dict[str, set[int | str | None]] = {"malformed": set(), "box-not-finite": {None}}
    for finding in dataset.findings:
        if finding.kind in ids_by_kind:
            ids_by_kind[finding.kind].add(finding.annotation_id)
    malformed = ids_by_kind["malformed"] - ids_by_kind["box-not-finite"]
    if not malformed:
        return np.zeros(len(dataset), np.bool_)
    ids = dataset.annotation_ids.tolist()
    return np.fromiter((identity in malformed for identity in ids), np.bool_)


def is_finite(boxes: NDArray[np.float64]) -> Mask:
    """Mark the boxes whose four coordinates are finite."""
    finite: Mask = np.logical_and.reduce(np.isfinite(boxes), axis=1)
    return finite


def image_sizes(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the width and height of every annotation's image; 0 if unknown."""
    rows = dataset.image_rows
    return (
        np.append(dataset.images.widths, 0)[rows],  # UNKNOWN picks the last
        np.append(dataset.images.heights, 0)[rows],
    )


def check_boxes(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for every box with a fault, in the order of the annotations."""
    faults = find_faults(dataset)
    is_faulty = faults.not_finite | faults.flipped | faults.empty | faults.outside
    reported = {
        (finding.file, finding.annotation_id)
        for finding in dataset.findings
        if finding.kind == "box-not-finite"
    }
    for row in np.flatnonzero(is_faulty).tolist():
        box = box_text(dataset.boxes[row])
        if faults.not_finite[row]:
            if (file_of_annotation(dataset, row), annotation_id(dataset, row)) not in reported:
                message = f"box {box} is not four finite numbers"
                yield _make_finding(dataset, row, "box-not-finite", message)
        elif faults.flipped[row]:
            message = f"box {box} (xyxy) has its right or lower side first"
            yield _make_finding(dataset, row, "box-flipped", message)
        elif faults.empty[row]:
            yield _make_finding(
                dataset, row, "box-empty", f"box {box} has {_name_zero_sides(dataset, row)}"
            )
        else:
            yield _make_finding(dataset, row, "box-outside", _describe_outside(dataset, row))


def _name_zero_sides(dataset: Dataset, row: int) -> str:
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    return " and ".join(["zero width"] * (x1 == x2) + ["zero height"] * (y1 == y2))


def _describe_outside(dataset: Dataset, row: int) -> str:
    image = dataset.image_rows[row]
    width, height = int(dataset.images.widths[image]), int(dataset.images.heights[image])
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    distances = (-x1, -y1, x2 - width, y2 - height)
    excess = ", ".join(
        f"{distance:.10g} px {side}"
        for distance, side in zip(distances, SIDES, strict=True)
        if distance > OUTSIDE_TOLERANCE_PIXELS
    )
    message = (
        f"box {box_text((x1, y1, x2, y2))} extends beyond its image ({width} x {height}): {excess}"
    )
    if _format_of(dataset, row) == "voc" and -1 in (x1, y1):
        message += "; VOC counts pixels from 1, so a coordinate of 0 lies outside"
    return message


def _format_of(dataset: Dataset, row: int) -> str:
    return dataset.sources[dataset.source_of[row]].format if dataset.sources else ""


def check_duplicate_boxes(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for each box that an earlier annotation of its image has; skip crowds."""
    is_candidate = ~dataset.is_crowd & (dataset.image_rows != UNKNOWN)
    rows = np.flatnonzero(is_candidate & is_finite(dataset.boxes))
    suspects = rows[_is_repeated(_hash_rows(dataset.image_rows[rows], dataset.boxes[rows]))]
    first_rows: dict[tuple[float, ...], int] = {}
    for row in suspects.tolist():
        image_and_box = (int(dataset.image_rows[row]), *dataset.boxes[row].tolist())
        first = first_rows.setdefault(image_and_box, row)
        if first != row:
            message = _describe_duplicate(dataset, first, row)
            yield _make_finding(dataset, row, "duplicate-box", message)


def _describe_duplicate(dataset: Dataset, first: int, row: int) -> str:
    message = (
        f"same box {box_text(dataset.boxes[row])} as annotation {annotation_id(dataset, first)}"
    )
    label, first_label = label_name(dataset, row), label_name(dataset, first)
    if label == first_label:
        return f"{message} and the same label, {label}"
    return f"{message} but another label: {label}, not {first_label}"


def _hash_rows(images: NDArray[np.int64], boxes: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a hash per row of image and box; sorting one column is faster than sorting five."""
    hashes: NDArray[np.uint64] = images.astype(np.uint64) * HASH_FACTORS[4]
    for side in range(4):
        bits = (boxes[:, side] + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0
        bits ^= bits >> np.uint64(32)  # round numbers have bits only at the top
        bits *= HASH_FACTORS[side]
        hashes += bits
    return hashes


def _is_repeated(hashes: NDArray[np.uint64]) -> Mask:
    """Mark the values that occur more than once."""
    order = np.argsort(hashes)
    ordered = hashes[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(hashes), np.bool_)
    repeated[order[1:][same]] = True
    repeated[order[:-1][same]] = True
    return repeated


def check_empty_images(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for every image without annotations."""
    for row in np.flatnonzero(count_annotations_per_image(dataset) == 0).tolist():
        name = image_name(dataset, row)
        message = f"image {name} has no annotations"
        yield Finding("no-annotations", message, file_of_image(dataset, row), name)


def count_annotations_per_image(dataset: Dataset) -> NDArray[np.int64]:
    """Count the annotations of every image; skip annotations of unknown images."""
    known = dataset.image_rows[dataset.image_rows != UNKNOWN]
    return np.bincount(known, minlength=len(dataset.images))


def check_class_balance(dataset: Dataset) -> Iterator[Finding]:
    """Yield a finding for each label without annotations or far rarer than the most frequent."""
    known = dataset.labels[dataset.labels != UNKNOWN]
    if len(known) < MIN_MEAN_ANNOTATIONS * len(dataset.label_names):
        return  # too few annotations to judge
    counts = np.bincount(known, minlength=len(dataset.label_names))
    most = int(counts.max(initial=0))
    for label in np.flatnonzero(counts * MAX_IMBALANCE < max(most, 1)).tolist():
        name, count = dataset.label_names[label], int(counts[label])
        message = f"label {name!r} has no annotations"
        if count:
            message = (
                f"label {name!r} has {count:,} annotation{'s' * (count > 1)}, "
                f"{dataset.label_names[int(counts.argmax())]!r} has {most:,}: "
                f"{most / count:,.0f} times as many"
            )
        yield Finding("class-imbalance", message, _file_of_label(dataset, name))


def _file_of_label(dataset: Dataset, name: str) -> str:
    declaring = [source for source in dataset.sources if name in source.label_names]
    return str((declaring or dataset.sources)[0].path) if dataset.sources else ""


def _make_finding(dataset: Dataset, row: int, kind: str, message: str) -> Finding:
    return Finding(
        kind,
        message,
        file_of_annotation(dataset, row),
        image_name(dataset, int(dataset.image_rows[row])),
        annotation_id(dataset, row),
    )
