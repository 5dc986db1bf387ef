"""Resolve the splits of a YOLO dataset: the folders or list files of train, val and test."""

import os
from collections.abc import Iterator, Sequence

from boxmend.data.formats.yolo.data_yaml import SPLITS

DATA_FOLDER = "data/"  # paths of Darknet start with it, also where its content was exported alone
_FOLDER_NAMES = {"train": ("train",), "val": ("val", "valid", "validation"), "test": ("test",)}


def guess_splits(root: str) -> dict[str, tuple[str, ...]]:
    """Return the usual lists or folders of images below a folder, by split; empty if none exists.

    In each layout, a folder of label files alone counts, too.
    """
    for layout in _list_layouts():
        found = {
            split: (place,)
            for split, places in layout.items()
            for place in [next((place for place in places if place_exists(f"{root}/{place}")), "")]
            if place
        }
        if found:
            return {split: found[split] for split in SPLITS if split in found}
    return {}


def _list_layouts() -> Iterator[dict[str, tuple[str, ...]]]:
    names = _FOLDER_NAMES.items()
    yield {split: tuple(f"{name}.txt" for name in usual) for split, usual in names}
    yield {"train": ("images.txt",)}
    yield {split: tuple(f"images/{name}" for name in usual) for split, usual in names}
    yield {split: tuple(f"{name}/images" for name in usual) for split, usual in names}
    yield {"train": ("images",)}
    yield dict(names)


def choose_split_name(keys: Sequence[str], places: Sequence[str]) -> str:
    """Return the split of these keys that has the name of its folders or lists, else the first.

    It keeps its ids when it is written alone and trainers need the other key, too.
    """
    return next((key for key in keys if all(_is_named(place, key) for place in places)), keys[0])


def _is_named(place: str, split: str) -> bool:
    parts = place.rstrip("/").split("/")[-2:]
    return any(os.path.splitext(part)[0] in _FOLDER_NAMES[split] for part in parts)


def resolve_place(root: str, path: str) -> str:
    """Return the absolute path of a folder or list file that a dataset names.

    Roboflow writes `../train/images` for `train/images`, Darknet `data/train.txt` for `train.txt`,
    and tools on Windows `images\\train`.
    """
    if "\\" in path and not place_exists(join_path(root, path)):
        path = path.replace("\\", "/")
    place = join_path(root, path)
    if not place_exists(place) and path.startswith("../"):
        inside = join_path(root, path[3:])
        return inside if place_exists(inside) else place
    return join_path(root, strip_data_folder(root, path))


def strip_data_folder(root: str, path: str) -> str:
    """Return a path without `data/` at its start if only that exists."""
    short = path.removeprefix("./").removeprefix(DATA_FOLDER)
    is_longer = short != path and not place_exists(join_path(root, path))
    return short if is_longer and short and place_exists(join_path(root, short)) else path


def get_label_path(image: str) -> str:
    """Return the path of an image's label file: the last folder `images` becomes `labels`."""
    before, images, after = image.rpartition("/images/")
    return os.path.splitext(f"{before}/labels/{after}" if images else image)[0] + ".txt"


def get_label_folder(folder: str) -> str:
    """Return the folder of the label files of the images in a folder."""
    return os.path.dirname(get_label_path(f"{folder}/x"))


def join_path(folder: str, path: str) -> str:
    """Return an absolute path with forward slashes."""
    return os.path.abspath(os.path.join(folder, path)).replace(os.sep, "/")


def place_exists(place: str) -> bool:
    """Return whether a folder or list file exists, or the label files of the folder."""
    return os.path.exists(place) or os.path.isdir(get_label_folder(place))
