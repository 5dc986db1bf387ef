"""Choose the files of a written YOLO dataset: those of its source, or one folder per split.

The output keeps the folders of its source if all of them lie in one folder. Otherwise, and in
conversions, it has `images/SPLIT/NAME` and `labels/SPLIT/NAME.txt`.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from boxmend.data.dataset import Dataset
from boxmend.data.formats.reading import is_safe_name
from boxmend.data.formats.yolo.data_yaml import SPLITS, OutputPaths
from boxmend.data.formats.yolo.image_lists import ImageList
from boxmend.data.formats.yolo.layout import (
    SplitImage,
    SplitLayout,
    distinct_name,
    plain_name,
    stem,
)
from boxmend.data.formats.yolo.source import SourceLayout, YoloSource
from boxmend.data.formats.yolo.splits import choose_split_name


@dataclass(frozen=True)
class OutputLayout:
    """The paths of a written dataset, relative to its folder."""

    images: list[str]
    labels: list[str]
    paths: OutputPaths  # for the data.yaml
    source: YoloSource | None = None  # if its folders are kept

    @property
    def lists(self) -> Sequence[ImageList]:
        """Return the lists of images to write."""
        if self.source is None or self.source.layout is None:
            return ()
        used = {place for places in self.paths.splits.values() for place in places}
        root = _join(self.source.layout.base, self.paths.root)
        kept = {_join(root, place) for place in used}
        return [listed for listed in self.source.layout.lists if listed.path in kept]


def choose_layout(dataset: Dataset) -> OutputLayout:
    """Return the layout of a written dataset."""
    source = find_single_source(dataset)
    if source is not None and source.layout is not None and _has_same_names(dataset, source.layout):
        kept = _keep_layout(dataset, source, source.layout)
        if kept is not None:
            return kept
    images = _name_by_split(dataset)
    labels = [f"labels/{stem(path.removeprefix('images/'))}.txt" for path in images]
    read_as = source.read_as if source is not None else {}
    folders = _folders(dataset.images.splits, read_as)
    paths = OutputPaths({split: (folder,) for split, folder in folders.items()})
    return OutputLayout(images, labels, paths)


def find_single_source(dataset: Dataset) -> YoloSource | None:
    """Return the YOLO source of all images, or None if there is no single one."""
    used = set(dataset.images.sources.tolist()) or set(range(len(dataset.sources)))
    sources = [dataset.sources[index] for index in used] if dataset.sources else []
    if len(sources) == 1 and isinstance(sources[0], YoloSource):
        return sources[0]
    return None


# The folders of the source.


def describe_layout(index_folder: str, layout: SplitLayout) -> SourceLayout | None:
    """Return the folders of a dataset if all its files lie in one folder, else None.

    `index_folder` is the absolute path of the folder of the data.yaml.
    """
    files = [file for entry in layout.entries for file in (entry.image, entry.label, entry.place)]
    files += [listed.path for listed in layout.lists]
    for base in dict.fromkeys((index_folder, layout.root)):
        if all(_is_inside(file, base) for file in files):
            root = _relative(layout.root, base)
            has_root = _is_inside(layout.root, base) and all(
                _is_inside(entry.place, layout.root) for entry in layout.entries
            )
            return SourceLayout(base, root if has_root else ".", layout.entries, layout.lists)
    return None


def _is_inside(path: str, base: str) -> bool:
    return path == base or (path.startswith(f"{base}/") and is_safe_name(path[len(base) + 1 :]))


def _has_same_names(dataset: Dataset, layout: SourceLayout) -> bool:
    """Return whether a reader of the same folders gives the images the same names."""
    images = dataset.images
    rows = images.rows.tolist()
    entries = [layout.entries[row] for row in rows]
    named = [(entry.name, entry.split) for entry in entries]
    is_same = named == list(zip(images.file_names, images.splits, strict=True))
    is_complete = rows == list(range(len(layout.entries)))
    return is_same and (is_complete or all(entry.has_plain_name for entry in entries))


def _keep_layout(dataset: Dataset, source: YoloSource, layout: SourceLayout) -> OutputLayout | None:
    """Return the folders of the source; None if files are in several splits, or splits change."""
    entries = [layout.entries[row] for row in dataset.images.rows.tolist()]
    images = [_relative(entry.image, layout.base) for entry in entries]
    own_labels = [entry.label for entry in entries if not entry.is_sharing]
    if len(set(images)) < len(images) or len(set(own_labels)) < len(own_labels):
        return None
    root = _join(layout.base, layout.root)
    splits = {split: tuple(places) for split, places in _list_places(entries, root).items()}
    paths = OutputPaths(_substitute(splits, source.read_as), layout.root)
    for split, places in splits.items():
        keys = [key for key in SPLITS if paths.splits.get(key) == places]
        if choose_split_name(keys, [_join(root, place) for place in places]) != split:
            return None
    labels = [_relative(entry.label, layout.base) for entry in entries]
    return OutputLayout(images, labels, paths, source)


def _list_places(entries: Iterable[SplitImage], root: str) -> dict[str, dict[str, None]]:
    """Return the places of each split that have images, in their order."""
    places: dict[str, dict[str, None]] = defaultdict(dict)
    for entry in entries:
        places[entry.split][_relative(entry.place, root)] = None
    return places


def _relative(path: str, base: str) -> str:
    return os.path.relpath(path, base).replace(os.sep, "/")


def _join(base: str, path: str) -> str:
    return os.path.normpath(f"{base}/{path}").replace(os.sep, "/")


# One folder per split.


def _name_by_split(dataset: Dataset) -> list[str]:
    """Return `images/SPLIT/NAME` for each image; a number avoids a shared label file."""
    images = dataset.images
    used: dict[tuple[int, str], dict[str, int]] = defaultdict(dict)
    paths = []
    for name, split, index in zip(
        images.file_names, images.splits, images.sources.tolist(), strict=True
    ):
        source = dataset.sources[index] if dataset.sources else None
        split = _choose_split(split)
        name = plain_name(name, split)
        if not isinstance(source, YoloSource):  # its names are distinct already
            group = source.group if source else 0
            name = distinct_name([name], used[group, split])
        paths.append(f"images/{split}/{name}")
    return paths


def _choose_split(split: str) -> str:
    """Return the split key of data.yaml: `val2017` becomes val, `trainval` becomes train."""
    return next((key for key in SPLITS if split.startswith(key)), "train")


def _folders(splits: Iterable[str], read_as: Mapping[str, str]) -> dict[str, str]:
    """Return the folder of each split; a missing train or val gets the other's folder."""
    present = set(map(_choose_split, splits)) or {"train"}
    places = {split: (f"images/{split}",) for split in present}
    return {split: folders[0] for split, folders in _substitute(places, read_as).items()}


def _substitute(
    places: Mapping[str, tuple[str, ...]], read_as: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the places of each split; a missing train or val gets the other's places."""
    result = {}
    substitute = next((split for split in SPLITS if split in places), None)
    for key in SPLITS:
        if (split := read_as.get(key, key)) in places:
            result[key] = places[split]
        elif key != "test" and substitute is not None:
            result[key] = places[substitute]
    return result
