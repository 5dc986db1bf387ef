"""Findings from the columns alone: boxes, duplicates, images without any, rare labels."""

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

OUTSIDE_TOLERANCE = 0.05  # px; rounding in relative formats stays below, mistakes do not
IMBALANCE = 100  # a label this many times rarer than the most frequent one is told
ENOUGH = 10  # annotations per label, on average, from which a rare label is worth telling
RELATIVE_FORMATS = {"yolo"}
SIDES = ("on the left", "at the top", "on the right", "at the bottom")

# One odd number per column (the digits of pi), so that equal sums mean equal rows, nearly always.
MIXERS = np.array(
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
    """What is wrong with each box; a row is marked in one mask at most, the first that fits."""

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
    not_finite &= ~_is_malformed(dataset)  # no box was read, which is not to say there is none
    flipped = ~not_finite & ((x2 < x1) | (y2 < y1))
    empty = ~(not_finite | flipped) & ((x2 == x1) | (y2 == y1))
    beyond = (x1 < -OUTSIDE_TOLERANCE) | (y1 < -OUTSIDE_TOLERANCE)
    beyond |= (x2 > widths + OUTSIDE_TOLERANCE) | (y2 > heights + OUTSIDE_TOLERANCE)
    return Faults(not_finite, flipped, empty, ~(not_finite | flipped | empty) & is_known & beyond)


def _is_relative(dataset: Dataset) -> Mask:
    """Mark annotations whose box is a share of the image: without its size, no pixels are known."""
    relative = [source.format in RELATIVE_FORMATS for source in dataset.sources] or [False]
    return np.array(relative, np.bool_)[dataset.source_of]


def _is_malformed(dataset: Dataset) -> Mask:
    """Mark annotations that the reader could not make out, such as a polygon it refused."""
    ids = {one.annotation_id for one in dataset.findings if one.kind == "malformed"} - {None}
    if not ids:
        return np.zeros(len(dataset), np.bool_)
    return np.fromiter((one in ids for one in dataset.annotation_ids.tolist()), np.bool_)


def is_finite(boxes: NDArray[np.float64]) -> Mask:
    """Mark the boxes that are four finite numbers."""
    finite: Mask = np.logical_and.reduce(np.isfinite(boxes), axis=1)
    return finite


def image_sizes(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Width and height of every annotation's image; 0 where unknown."""
    rows = dataset.image_rows
    return (
        np.append(dataset.images.widths, 0)[rows],  # UNKNOWN picks the last
        np.append(dataset.images.heights, 0)[rows],
    )


def box_findings(dataset: Dataset) -> Iterator[Finding]:
    """Tell every box with a fault, in the order of the annotations."""
    faults = find_faults(dataset)
    is_faulty = faults.not_finite | faults.flipped | faults.empty | faults.outside
    told = {
        (finding.file, finding.annotation_id)
        for finding in dataset.findings
        if finding.kind == "box-not-finite"
    }
    for row in np.flatnonzero(is_faulty).tolist():
        box = box_text(dataset.boxes[row])
        if faults.not_finite[row]:
            if (file_of_annotation(dataset, row), annotation_id(dataset, row)) not in told:
                message = f"box {box} is not four finite numbers"
                yield _of_annotation(dataset, row, "box-not-finite", message)
        elif faults.flipped[row]:
            message = f"box {box} ends before it begins (xyxy)"
            yield _of_annotation(dataset, row, "box-flipped", message)
        elif faults.empty[row]:
            yield _of_annotation(
                dataset, row, "box-empty", f"box {box} has {_no_extent(dataset, row)}"
            )
        else:
            yield _of_annotation(dataset, row, "box-outside", _how_far_outside(dataset, row))


def _no_extent(dataset: Dataset, row: int) -> str:
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    return " and ".join(["zero width"] * (x1 == x2) + ["zero height"] * (y1 == y2))


def _how_far_outside(dataset: Dataset, row: int) -> str:
    image = dataset.image_rows[row]
    width, height = int(dataset.images.widths[image]), int(dataset.images.heights[image])
    x1, y1, x2, y2 = dataset.boxes[row].tolist()
    by = (-x1, -y1, x2 - width, y2 - height)
    reach = ", ".join(
        f"{far:.10g} px {side}"
        for far, side in zip(by, SIDES, strict=True)
        if far > OUTSIDE_TOLERANCE
    )
    message = (
        f"box {box_text((x1, y1, x2, y2))} reaches beyond its image ({width} x {height}): {reach}"
    )
    if _format_of(dataset, row) == "voc" and -1 in (x1, y1):
        message += "; VOC counts pixels from 1, so a coordinate of 0 lies outside"
    return message


def _format_of(dataset: Dataset, row: int) -> str:
    return dataset.sources[dataset.source_of[row]].format if dataset.sources else ""


def duplicate_boxes(dataset: Dataset) -> Iterator[Finding]:
    """Tell annotations whose box an earlier one of the same image has, crowds left aside."""
    is_candidate = ~dataset.is_crowd & (dataset.image_rows != UNKNOWN)
    rows = np.flatnonzero(is_candidate & is_finite(dataset.boxes))
    suspects = rows[_is_repeated(_fingerprints(dataset.image_rows[rows], dataset.boxes[rows]))]
    first_with: dict[tuple[float, ...], int] = {}
    for row in suspects.tolist():
        place = (int(dataset.image_rows[row]), *dataset.boxes[row].tolist())
        first = first_with.setdefault(place, row)
        if first != row:
            yield _of_annotation(dataset, row, "duplicate-box", _same_box(dataset, first, row))


def _same_box(dataset: Dataset, first: int, row: int) -> str:
    message = (
        f"same box {box_text(dataset.boxes[row])} as annotation {annotation_id(dataset, first)}"
    )
    here, there = label_name(dataset, row), label_name(dataset, first)
    if here == there:
        return f"{message} and the same label, {here}"
    return f"{message} but another label: {here} here, {there} there"


def _fingerprints(images: NDArray[np.int64], boxes: NDArray[np.float64]) -> NDArray[np.uint64]:
    """One number per row, the same for the same image and box; sorting it beats sorting five."""
    marks: NDArray[np.uint64] = images.astype(np.uint64) * MIXERS[4]
    for side in range(4):
        bits = (boxes[:, side] + 0.0).view(np.uint64)  # + 0.0 makes one zero of the two
        bits ^= bits >> np.uint64(32)  # round numbers have all their bits at the top
        bits *= MIXERS[side]
        marks += bits
    return marks


def _is_repeated(marks: NDArray[np.uint64]) -> Mask:
    """Mark the values that occur more than once."""
    order = np.argsort(marks)
    ordered = marks[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(len(marks), np.bool_)
    repeated[order[1:][same]] = True
    repeated[order[:-1][same]] = True
    return repeated


def bare_images(dataset: Dataset) -> Iterator[Finding]:
    """Tell every image without annotations."""
    for row in np.flatnonzero(annotations_per_image(dataset) == 0).tolist():
        name = image_name(dataset, row)
        message = f"image {name} has no annotations"
        yield Finding("no-annotations", message, file_of_image(dataset, row), name)


def annotations_per_image(dataset: Dataset) -> NDArray[np.int64]:
    """Count the annotations of every image; those of unknown images are left out."""
    known = dataset.image_rows[dataset.image_rows != UNKNOWN]
    return np.bincount(known, minlength=len(dataset.images))


def imbalance(dataset: Dataset) -> Iterator[Finding]:
    """Tell every label that has no annotation, or very few beside the most frequent one."""
    known = dataset.labels[dataset.labels != UNKNOWN]
    if len(known) < ENOUGH * len(dataset.label_names):
        return  # so few annotations say nothing about the labels they lack
    counts = np.bincount(known, minlength=len(dataset.label_names))
    most = int(counts.max(initial=0))
    for label in np.flatnonzero(counts * IMBALANCE < max(most, 1)).tolist():
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


def _of_annotation(dataset: Dataset, row: int, kind: str, message: str) -> Finding:
    return Finding(
        kind,
        message,
        file_of_annotation(dataset, row),
        image_name(dataset, int(dataset.image_rows[row])),
        annotation_id(dataset, row),
    )
