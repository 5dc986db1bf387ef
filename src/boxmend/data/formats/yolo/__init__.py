"""YOLO: a data.yaml, and a label file per image with box centers and sizes in shares of the image.

`layout` finds the files by the conventions of Ultralytics. `data_yaml` reads and patches the
data.yaml, `labels` the label files. This module reads datasets; `writing` writes them.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from boxmend.data.dataset import Dataset, Images, format_position_id
from boxmend.data.files.change_detection import ReadFile, record_missing_file
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import ReadOptions, read_file, read_image_size
from boxmend.data.formats.yolo.class_lists import ClassList, find_class_list, read_class_list
from boxmend.data.formats.yolo.data_yaml import DataYaml, read_yaml
from boxmend.data.formats.yolo.labels import Labels, Rules, parse_labels
from boxmend.data.formats.yolo.layout import SplitImage, find_images
from boxmend.data.formats.yolo.output_layout import describe_layout
from boxmend.data.formats.yolo.source import USUAL_NAMES, YoloSource
from boxmend.data.formats.yolo.splits import join_path
from boxmend.data.formats.yolo.writing import (
    assign_annotation_ids,
    assign_image_paths,
    build_documents,
    list_losses,
)
from boxmend.data.types import Ids

ENDINGS = (".yaml", ".yml")
NUM_THREADS = 8  # reading waits mostly for the disk
FILES_PER_CHUNK = 64  # read by a thread at once


def looks_like(path: Path) -> bool:
    """Return whether this is a .yaml file or a folder with a data.yaml or dataset.yaml.

    Without one, obj.data, obj.names and classes.txt count, too.
    """
    return _find_yaml(path) is not None or find_class_list(path) is not None


def _find_yaml(path: Path) -> Path | None:
    if path.is_dir():
        return next((path / name for name in USUAL_NAMES if (path / name).is_file()), None)
    return path if path.suffix.lower() in ENDINGS and path.is_file() else None


def _read_index(path: Path) -> DataYaml | ClassList:
    if (yaml := _find_yaml(path)) is not None:
        return read_yaml(yaml)
    return read_class_list(find_class_list(path) or path)


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read one split, or all in the order train, val, test."""
    document = _read_index(path)
    layout = find_images(document, split)
    entries = layout.entries
    files = _read_files(entries)
    rules = Rules(len(document.names), options.polygons == "box", document.has_keypoints)
    parsed = [parse_labels(pair.content or b"", pair.size, rules) for pair in files]
    counts = np.array([len(lines.labels) for lines in parsed], np.int64)
    sides = [side for lines in parsed for side in lines.boxes]
    boxes = np.array(sides, np.float64).reshape(-1, 4)
    labels = np.array([label for lines in parsed for label in lines.labels], np.int64)
    source = YoloSource(
        format="yolo",
        path=document.path,
        label_names=document.names,
        boxes=boxes,
        labels=labels,
        index=document,
        layout=describe_layout(join_path(os.getcwd(), str(document.path.parent)), layout),
        read_as=layout.read_as,
        label_paths=[entry.label for entry in entries],
        contents=[pair.content for pair in files],
        first_rows=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        sharing=frozenset(row for row, entry in enumerate(entries) if entry.is_sharing),
        num_polygons=sum(lines.num_polygons for lines in parsed),
        read_files=[
            *document.read_files,
            *(listed.file for listed in layout.lists),
            *(pair.labels for pair in files if pair.labels is not None),
        ],
    )
    findings = [
        *document.findings,
        *layout.findings,
        *_image_findings(entries, files),
        *_line_findings(entries, parsed),
        *_source_findings(source, entries),
    ]
    return _make_dataset(source, entries, files, findings)


# Reading.


@dataclass(frozen=True, slots=True)
class _FilePair:
    """The image file and label file of an image."""

    labels: ReadFile | None  # None if the label file belongs to another image
    size: tuple[int, int] | None
    image_exists: bool

    @property
    def content(self) -> bytes | None:
        """Return the bytes of the label file; None if there is none."""
        return None if self.labels is None else self.labels.content


def _read_files(entries: Sequence[SplitImage]) -> list[_FilePair]:
    starts = range(0, len(entries), FILES_PER_CHUNK)
    chunks = [entries[start : start + FILES_PER_CHUNK] for start in starts]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return [pair for chunk in pool.map(_read_chunk, chunks) for pair in chunk]


def _read_chunk(entries: Sequence[SplitImage]) -> list[_FilePair]:
    files = []
    for entry in entries:
        exists = os.path.isfile(entry.image)  # not a pipe, which would never end
        size = read_image_size(Path(entry.image)) if exists else None
        files.append(_FilePair(_read_label_file(entry), size, exists))
    return files


def _read_label_file(entry: SplitImage) -> ReadFile | None:
    if entry.is_sharing:
        return None
    if not os.path.exists(entry.label):
        return record_missing_file(entry.label)
    return read_file(entry.label, "label_file_bytes")


def _image_findings(entries: Sequence[SplitImage], files: Sequence[_FilePair]) -> Iterator[Finding]:
    for entry, pair in zip(entries, files, strict=True):
        if entry.is_orphan:
            message = f"the label file has no image; tried {entry.image} and other extensions"
            yield Finding("missing-image", message, entry.label, entry.name)
        elif not pair.image_exists:
            message = "there is no such image, so its boxes in pixels are unknown"
            yield Finding("missing-image", message, entry.image, entry.name)
        elif pair.size is None:
            message = "cannot be read as an image, so its boxes in pixels are unknown"
            yield Finding("unreadable-image", message, entry.image, entry.name)


def _line_findings(entries: Sequence[SplitImage], parsed: Sequence[Labels]) -> Iterator[Finding]:
    for entry, lines in zip(entries, parsed, strict=True):
        for kind, position, message in lines.problems:
            identity = format_position_id(entry.id, position)
            yield Finding(kind, message, entry.label, entry.name, identity)


def _source_findings(source: YoloSource, entries: Sequence[SplitImage]) -> Iterator[Finding]:
    """Yield findings about the source: polygons read as boxes, splits without label files."""
    if source.num_polygons:
        message = f"{source.num_polygons:,} polygons were read as the boxes around them"
        yield Finding("polygon", message, str(source.path))
    total = Counter(entry.split for entry in entries)
    labelled = Counter(
        entry.split
        for entry, content in zip(entries, source.contents, strict=True)
        if content is not None
    )
    for split in (split for split in total if split not in labelled):
        first = next(entry for entry in entries if entry.split == split)
        message = (
            f"{split}: none of {total[split]:,} images has a label file; expected files such as "
            f"{first.label}"
        )
        yield Finding("no-label-file", message, str(source.path))


def _make_dataset(
    source: YoloSource,
    entries: Sequence[SplitImage],
    files: Sequence[_FilePair],
    findings: list[Finding],
) -> Dataset:
    n, num_images = len(source.labels), len(entries)
    counts = np.diff(source.first_rows)
    image_ids = [entry.id for entry in entries]
    return Dataset(
        images=Images(
            ids=_make_object_column(image_ids),
            file_names=[entry.name for entry in entries],
            paths=[entry.image for entry in entries],
            splits=[entry.split for entry in entries],
            widths=np.array([pair.size[0] if pair.size else 0 for pair in files], np.int64),
            heights=np.array([pair.size[1] if pair.size else 0 for pair in files], np.int64),
            sources=np.zeros(num_images, np.int64),
            rows=np.arange(num_images),
        ),
        label_names=source.label_names,
        annotation_ids=_make_object_column(
            [
                format_position_id(identity, position)
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


def _make_object_column(values: list[str]) -> Ids:
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
