"""COCO: `instances_*.json`; a writer keeps all bytes that did not change.

Boxes are [x, y, width, height] in the file. Ids, order, segmentation, unknown keys and the form of
numbers stay: a writer replaces only the changed values in the source's bytes. Crowd flags are
`iscrowd`; a key `difficult`, which conversions from VOC write, is read, too.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import UNKNOWN, Dataset, as_ids
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.findings import Finding
from boxmend.data.formats.coco import composing, joining, patching
from boxmend.data.formats.coco.document import MisreadError, parse
from boxmend.data.formats.coco.entries import NO_ID, CategoryEntry, Reader, find_rows
from boxmend.data.formats.coco.images import choose_places, find_images
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import Document, pause_garbage_collector
from boxmend.data.formats.reading import ReadOptions, read_file
from boxmend.data.joining import join
from boxmend.data.types import Ids
from boxmend.errors import UsageError

SPLIT_NAMES = ("train", "val", "valid", "test", "trainval")
ROBOFLOW_NAME = "_annotations.coco.json"  # in a folder for each split
USUAL_NAMES = (ROBOFLOW_NAME, "annotations.json", "labels.json", "result.json")


def looks_like(path: Path) -> bool:
    """Return whether this is a .json file, or a folder with COCO files under their usual names."""
    return bool(_find_files(path))


def _find_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" else []
    for folder in (path, path / "annotations"):
        if files := sorted(folder.glob("instances_*.json"), key=_rank_by_split):
            return files
    by_split = [path / split / ROBOFLOW_NAME for split in SPLIT_NAMES]
    if files := [file for file in by_split if file.is_file()]:
        return files
    return [path / name for name in USUAL_NAMES if (path / name).is_file()][:1]


def _rank_by_split(path: Path) -> tuple[int, str]:
    split = _get_split(path)
    ranks = [rank for rank, name in enumerate(SPLIT_NAMES) if split.startswith(name)]
    return (ranks[0] if ranks else len(SPLIT_NAMES), path.name)


def _get_split(path: Path) -> str:
    stem = path.stem
    if stem.startswith("instances_"):
        return stem.removeprefix("instances_")
    if path.name == ROBOFLOW_NAME:
        stem = path.absolute().parent.name
    return stem if stem in SPLIT_NAMES else "all"


def read(path: Path, split: str | None, options: ReadOptions) -> Dataset:
    """Read a file, or one split or all splits of a folder."""
    files = _find_files(path)
    if split is not None:
        chosen = [file for file in files if _get_split(file) == split]
        if not chosen:
            known = ", ".join(_get_split(file) for file in files)
            raise UsageError(f"{path}: there is no split {split!r}; the splits are {known}")
        files = chosen
    with pause_garbage_collector():
        return join([_read_file(file, path, options) for file in files])


def _read_file(path: Path, address: Path, options: ReadOptions) -> Dataset:
    file = read_file(path)
    data = file.content or b""
    takes_polygons = options.polygons == "box"
    try:
        reader = Reader(parse(data, path), path, takes_polygons)
        entries, categories, columns = reader.read_all()
    except MisreadError:
        reader = Reader(parse(data, path, exact=True), path, takes_polygons)
        entries, categories, columns = reader.read_all()
    category_ids = as_ids([category.id for category in categories])
    image_ids = as_ids([entry.id for entry in entries])
    labels = find_rows(columns.category_ids, category_ids)
    image_rows = find_rows(columns.image_ids, image_ids)
    images, folder, name_findings = find_images(
        entries, image_ids, path, _get_split(path), options.images
    )
    place, image_folder = choose_places(path, address, folder)
    source = CocoSource(
        format="coco",
        path=path,
        label_names=_make_label_names(categories),
        boxes=columns.boxes,
        labels=labels,
        data=data,
        category_ids=[category.id for category in categories],
        category_names=[category.name for category in categories],
        image_ids=image_ids,
        annotation_ids=columns.ids,
        is_crowd=columns.is_crowd,
        is_difficult=columns.is_difficult,
        spans=reader.parsed.spans,
        is_outlined=columns.is_outlined,
        place=place,
        image_folder=image_folder,
        read_files=(file,),
    )
    unknown = _report_unknown(path, columns.ids, labels, columns.category_ids, "category")
    unknown += _report_unknown(path, columns.ids, image_rows, columns.image_ids, "image")
    n = len(columns.ids)
    return Dataset(
        images=images,
        label_names=source.label_names,
        annotation_ids=columns.ids,
        image_rows=image_rows,
        labels=labels.copy(),
        boxes=columns.boxes.copy(),
        is_crowd=columns.is_crowd.copy(),
        is_difficult=columns.is_difficult.copy(),
        source_of=np.zeros(n, np.int64),
        source_rows=np.arange(n),
        sources=(source,),
        findings=tuple(reader.findings + name_findings + unknown),
    )


def _make_label_names(categories: list[CategoryEntry]) -> tuple[str, ...]:
    """Return the names in the order of the file; a repeated name gets its id as a suffix."""
    names: dict[str, None] = {}
    for category in categories:
        name, count = category.name, 1
        while name in names:
            name = f"{category.name} (category {category.id}{', again' * (count - 1)})"
            count += 1
        names[name] = None
    return tuple(names)


def _report_unknown(
    path: Path, ids: Ids, rows: NDArray[np.int64], references: Ids, kind: str
) -> list[Finding]:
    """Return a finding for each annotation whose image or category does not exist."""
    unknown = np.flatnonzero(rows == UNKNOWN)
    ensure_within_limit("malformed_entries", len(unknown), path)
    pairs = zip(ids[unknown].tolist(), references[unknown].tolist(), strict=True)
    return [
        Finding(
            f"unknown-{kind}",
            f"its {kind}_id is {'missing or invalid' if reference == NO_ID else repr(reference)}, "
            f"which is not among the {kind} ids of the file",
            str(path),
            annotation_id=identity,
        )
        for identity, reference in pairs
    ]


def list_losses(dataset: Dataset) -> list[str]:
    """Return a phrase for each part that a COCO file cannot hold, such as extras of VOC files."""
    if patching.is_coco(dataset):
        return joining.list_losses(dataset) if patching.is_joined(dataset) else []
    return [
        f"{count} x {name} ({source.path.name})"
        for source in dataset.sources
        for name, count in source.extras().items()
    ]


def build_documents(dataset: Dataset, segmentation: str) -> Iterator[Document]:
    """Yield patched COCO sources (one file for several addresses), or new files."""
    if not patching.is_coco(dataset):
        return composing.build_documents(dataset)
    if patching.is_joined(dataset):
        return joining.build_documents(dataset, segmentation)
    return patching.build_documents(dataset, segmentation)


def assign_image_paths(dataset: Dataset) -> list[str]:
    """Return the path of each image: that in its source if the file is patched.

    Otherwise it is `images/NAME`, or `images/SPLIT/NAME` with several files.
    """
    names = composing.assign_file_names(dataset)
    images, is_one_file = dataset.images, composing.is_one_file(dataset)
    is_kept = patching.is_coco(dataset) and not patching.is_joined(dataset)
    paths = []
    for name, split, index in zip(names, images.splits, images.sources.tolist(), strict=True):
        source = dataset.sources[index] if dataset.sources else None
        folder = "images" if is_one_file else f"images/{split}"
        if is_kept and isinstance(source, CocoSource) and source.image_folder is not None:
            folder = source.image_folder
        paths.append(f"{folder}/{name}".removeprefix("./"))
    return paths


def assign_annotation_ids(dataset: Dataset) -> Ids:
    """Return the annotation ids: those of the COCO sources, else numbers from one."""
    if patching.is_coco(dataset):
        return patching.assign_annotation_ids(dataset)
    return composing.assign_annotation_ids(dataset)
