"""YOLO: a data.yaml, a label file for every image, boxes as centre and size in shares of it.

Files are found by the conventions of Ultralytics (`layout`), the data.yaml is read and
patched value by value (`data_yaml`), labels line by line (`labels`). This module reads and is
the door; `writing` writes.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxmend.data.dataset import Dataset, Images, make_position_id
from boxmend.data.files.change_detection import ReadFile, record_missing_file
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import ReadOptions, image_size, read_file
from boxmend.data.formats.yolo.data_yaml import read_yaml
from boxmend.data.formats.yolo.labels import Labels, Rules, parse_labels
from boxmend.data.formats.yolo.layout import SplitImage, find_images
from boxmend.data.formats.yolo.source import USUAL_NAMES, YoloSource
from boxmend.data.formats.yolo.writing import (
    assign_annotation_ids,
    assign_image_paths,
    build_documents,
    list_losses,
)
from boxmend.data.types import Ids

ENDINGS = (".yaml", ".yml")
THREADS = 8  # reading waits for disks more than for the processor
CHUNK = 64  # files a thread takes at once


def looks_like(path: Path) -> bool:
    """Whether this is a .yaml file, or a folder with a data.yaml or dataset.yaml."""
    if path.is_dir():
        return any((path / name).is_file() for name in USUAL_NAMES)
    return path.suffix.lower() in ENDINGS and path.is_file()


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read one split, or all of them in the order train, val, test."""
    if path.is_dir():
        path = next((path / name for name in USUAL_NAMES if (path / name).is_file()), path)
    document = read_yaml(path)
    layout = find_images(document, split)
    entries = layout.entries
    files = _read_files(entries)
    rules = Rules(len(document.names), options.polygons == "box", document.has_keypoints)
    parsed = [parse_labels(one.content or b"", one.size, rules) for one in files]
    counts = np.array([len(one.labels) for one in parsed], np.int64)
    boxes = np.array([value for one in parsed for value in one.boxes], np.float64).reshape(-1, 4)
    labels = np.array([label for one in parsed for label in one.labels], np.int64)
    source = YoloSource(
        format="yolo",
        path=path,
        label_names=document.names,
        boxes=boxes,
        labels=labels,
        document_yaml=document,
        read_as=layout.read_as,
        label_paths=[entry.label for entry in entries],
        contents=[one.content for one in files],
        first_rows=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        sharing=frozenset(row for row, entry in enumerate(entries) if entry.is_sharing),
        num_polygons=sum(one.num_polygons for one in parsed),
        read_files=[
            *document.read_files,
            *layout.read_files,
            *(one.labels for one in files if one.labels is not None),
        ],
    )
    findings = [
        *document.findings,
        *layout.findings,
        *_image_findings(entries, files),
        *_line_findings(entries, parsed),
        *_whole_findings(source, entries),
    ]
    return _dataset(source, entries, files, findings)


# Reading


@dataclass(frozen=True, slots=True)
class _Files:
    """What the two files of an image are."""

    labels: ReadFile | None  # None where the label file belongs to another image
    size: tuple[int, int] | None
    is_image_there: bool

    @property
    def content(self) -> bytes | None:
        """The bytes of the label file; None where there is none."""
        return None if self.labels is None else self.labels.content


def _read_files(entries: Sequence[SplitImage]) -> list[_Files]:
    chunks = [entries[start : start + CHUNK] for start in range(0, len(entries), CHUNK)]
    with ThreadPoolExecutor(THREADS) as pool:
        return [one for chunk in pool.map(_read_chunk, chunks) for one in chunk]


def _read_chunk(entries: Sequence[SplitImage]) -> list[_Files]:
    files = []
    for entry in entries:
        is_there = os.path.isfile(entry.image)  # no pipe may be opened: it would never end
        size = image_size(Path(entry.image)) if is_there else None
        files.append(_Files(_label_file(entry), size, is_there))
    return files


def _label_file(entry: SplitImage) -> ReadFile | None:
    if entry.is_sharing:
        return None
    if not os.path.exists(entry.label):
        return record_missing_file(entry.label)
    return read_file(entry.label, "label_file_bytes")


def _image_findings(entries: Sequence[SplitImage], files: Sequence[_Files]) -> Iterator[Finding]:
    for entry, one in zip(entries, files, strict=True):
        if entry.is_orphan:
            message = f"a label file without its image; looked for {entry.image} and other endings"
            yield Finding("missing-image", message, entry.label, entry.name)
        elif not one.is_image_there:
            message = "there is no such image; its boxes have no size to be shares of"
            yield Finding("missing-image", message, entry.image, entry.name)
        elif one.size is None:
            message = "cannot be read as an image; its boxes have no size to be shares of"
            yield Finding("unreadable-image", message, entry.image, entry.name)


def _line_findings(entries: Sequence[SplitImage], parsed: Sequence[Labels]) -> Iterator[Finding]:
    for entry, one in zip(entries, parsed, strict=True):
        for kind, position, message in one.problems:
            identity = make_position_id(entry.id, position)
            yield Finding(kind, message, entry.label, entry.name, identity)


def _whole_findings(source: YoloSource, entries: Sequence[SplitImage]) -> Iterator[Finding]:
    """What is told once: polygons that became boxes, and splits without any label file."""
    if source.num_polygons:
        message = f"{source.num_polygons:,} polygons were read as the boxes around them"
        yield Finding("polygon", message, str(source.path))
    total = Counter(entry.split for entry in entries)
    labelled = Counter(
        entry.split
        for entry, content in zip(entries, source.contents, strict=True)
        if content is not None
    )
    for split in (one for one in total if one not in labelled):
        first = next(entry for entry in entries if entry.split == split)
        message = f"{split}: none of {total[split]:,} images has a label file; the first would be "
        yield Finding("no-label-file", message + first.label, str(source.path))


def _dataset(
    source: YoloSource,
    entries: Sequence[SplitImage],
    files: Sequence[_Files],
    findings: list[Finding],
) -> Dataset:
    n, num_images = len(source.labels), len(entries)
    counts = np.diff(source.first_rows)
    image_ids = [entry.id for entry in entries]
    return Dataset(
        images=Images(
            ids=_texts(image_ids),
            file_names=[entry.name for entry in entries],
            paths=[entry.image for entry in entries],
            splits=[entry.split for entry in entries],
            widths=np.array([one.size[0] if one.size else 0 for one in files], np.int64),
            heights=np.array([one.size[1] if one.size else 0 for one in files], np.int64),
            sources=np.zeros(num_images, np.int64),
            rows=np.arange(num_images),
        ),
        label_names=source.label_names,
        annotation_ids=_texts(
            [
                make_position_id(identity, position)
                for identity, count in zip(image_ids, counts.tolist(), strict=True)
                for position in range(count)
            ]
        ),
        image_rows=np.repeat(np.arange(num_images), counts),
        labels=source.labels.copy(),
        boxes=source.boxes.copy(),
        is_crowd=np.zeros(n, np.bool_),
        is_difficult=np.zeros(n, np.bool_),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(source,),
        findings=tuple(findings),
    )


def _texts(values: list[str]) -> Ids:
    column = np.empty(len(values), object)
    column[:] = values
    return column


__all__ = [
    "YoloSource",
    "assign_annotation_ids",
    "assign_image_paths",
    "build_documents",
    "list_losses",
    "looks_like",
    "read",
]
