"""Find the images and label files of a YOLO dataset, and name its images.

A split is a folder, a list file, or several of them. The label file of an image follows from its
path: the last folder `images` becomes `labels`, the extension `.txt`; without a folder `images`, it
lies beside the image. This module opens only list files.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from boxmend.data.files.reading import open_file
from boxmend.data.files.text import escape_surrogates
from boxmend.data.findings import Finding
from boxmend.data.formats.image_names import InexactName, interpret, report_inexact_names
from boxmend.data.formats.reading import IMAGE_ENDINGS, is_safe_name
from boxmend.data.formats.yolo.image_lists import LIST_ENDINGS, ImageList, read_image_list
from boxmend.data.formats.yolo.splits import (
    choose_split_name,
    get_label_folder,
    get_label_path,
    guess_splits,
    join_path,
    place_exists,
    resolve_place,
)
from boxmend.errors import DataError, UsageError

LABEL_ENDINGS = (".txt",)
OTHER_TEXTS = {"classes.txt"}  # annotation tools write this file among the label files


class Index(Protocol):
    """What a data.yaml, or the files in its place, state about the splits."""

    @property
    def path(self) -> Path:
        """Return the path of the file."""

    @property
    def root(self) -> str | None:
        """Return the folder that paths start from, if it is not that of the file."""

    @property
    def splits(self) -> Mapping[str, tuple[str, ...]]:
        """Return the folders and lists of each split, as written."""


@dataclass(frozen=True, slots=True)
class SplitImage:
    """One image of a split; its file may be missing."""

    split: str
    name: str  # relative to the images of the split, with extension; safe to join to any folder
    image: str  # absolute path with forward slashes; so is `label`
    label: str
    is_orphan: bool = False  # only its label file exists
    is_sharing: bool = False  # the label file belongs to another image
    place: str = ""  # absolute path of the folder or list that has the image
    has_plain_name: bool = True  # whether other images had no influence on the name

    @property
    def id(self) -> str:
        """Return the split and the name, without extension unless the label file is shared."""
        return f"{self.split}/{self.name if self.is_sharing else stem(self.name)}"


@dataclass
class SplitLayout:
    """The images of the splits to read, in order, and the findings about them."""

    entries: list[SplitImage] = field(default_factory=list)
    read_as: dict[str, str] = field(default_factory=dict)
    """Split of the data.yaml -> the split it is read as; several splits may share their images."""
    root: str = ""
    """Absolute path of the folder that the paths of splits start from."""
    lists: list[ImageList] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def find_images(document: Index, split: str | None) -> SplitLayout:
    """Find the images of one split, or of all."""
    root = _find_root(document)
    layout = SplitLayout(root=root)
    for name, places in _choose_splits(document, root, split, layout).items():
        finder = _ImageFinder(name, root, layout.findings)
        for place in places:
            finder.add(place)
        layout.entries += finder.entries
        layout.lists += finder.lists
    return layout


def plain_name(name: str, split: str) -> str:
    """Return a name that leads from `images/SPLIT/NAME` to the right label file.

    Folders called `images` are left out, as they would lead to other label files. The split at
    the beginning is left out, too.
    """
    *folders, file = name.split("/")
    folders = [folder for folder in folders if folder not in ("images", "", ".")]
    while folders and folders[0] == split:
        del folders[0]
    return "/".join([*folders, file])


def distinct_name(candidates: Iterable[str], used: dict[str, int]) -> str:
    """Return the first candidate with an unused label file, else the first one with a number."""
    first = ""
    for name in candidates:
        first = first or name
        if stem(name) not in used:
            used[stem(name)] = 1
            return name
    base, ending = os.path.splitext(first)
    number = used[base] + 1
    while f"{base}-{number}" in used:
        number += 1
    used[base], used[f"{base}-{number}"] = number, 1
    return f"{base}-{number}{ending}"


def stem(name: str) -> str:
    """Return a path without its extension."""
    return os.path.splitext(name)[0]


# Splits.


def _find_root(document: Index) -> str:
    """Return the folder that paths start from; the data.yaml's folder if `path` does not exist."""
    yaml_folder = join_path(os.getcwd(), str(document.path.parent))
    root = join_path(yaml_folder, document.root or "")
    return root if os.path.isdir(root) else yaml_folder  # people move datasets


def _choose_splits(
    document: Index, root: str, split: str | None, layout: SplitLayout
) -> dict[str, tuple[str, ...]]:
    """Return the splits to read with their places; splits with the same places are read once."""
    splits = document.splits or guess_splits(root)
    if not splits:
        raise DataError(
            f"{document.path}: has none of train, val and test; add the folder of the images"
        )
    if split is not None and split not in splits:
        known = ", ".join(splits)
        raise UsageError(f"{document.path}: there is no split {split!r}; the splits are {known}")
    sharing: dict[tuple[str, ...], list[str]] = {}
    for key in splits if split is None else [split]:
        places = tuple(resolve_place(root, path) for path in splits[key])
        missing = [place for place in places if not place_exists(place)]
        if not missing:
            sharing.setdefault(places, []).append(key)
        elif key == "test" and split is None:  # exports often name a missing test split
            message = f"test: no such folder or list file: {missing[0]}; the split is skipped"
            layout.findings.append(Finding("no-label-file", message, str(document.path)))
        else:
            raise DataError(
                f"{document.path}: {key}: no such folder or list file: {missing[0]}; correct the "
                "path, or name a split that exists (PATH:SPLIT)"
            )
    chosen = {}
    for places, keys in sharing.items():
        name = choose_split_name(keys, places)
        chosen[name] = places
        layout.read_as.update(dict.fromkeys(keys, name))
    return chosen


# Images of one split.


class _ImageFinder:
    """A collector of the images of one split; each file counts once."""

    def __init__(self, split: str, root: str, findings: list[Finding]):
        self.split = split
        self.root = root
        self.findings = findings
        self.entries: list[SplitImage] = []
        self.seen: set[str] = set()  # paths of images
        self.labels: dict[str, SplitImage] = {}  # path of a label file -> the image it belongs to
        self.names: dict[str, int] = {}
        self.lists: list[ImageList] = []

    def add(self, place: str) -> None:
        """Add the images of a list file or a folder, and the folder's label files without image."""
        if os.path.isfile(place):
            self._add_list(place)
            return
        label_folder = get_label_folder(place)
        label_files = {f"{label_folder}/{name}" for name in _scan(label_folder, LABEL_ENDINGS)}
        for name in _scan(place, (*IMAGE_ENDINGS, *LABEL_ENDINGS)):
            if name.lower().endswith(LABEL_ENDINGS):
                label_files.add(f"{place}/{name}")
            else:
                self._add(f"{place}/{name}", name, place)
        orphans = label_files - self.labels.keys()
        for label_file in sorted(orphans - self._pair_inexact(orphans, label_folder)):
            self._add_orphan(label_file, place)

    def _pair_inexact(self, orphans: set[str], folder: str) -> set[str]:
        """Give label files with inexact names, as `a%20b.txt`, to images without label file.

        Return the files that were given to an image.
        """
        missing = {label for label in self.labels if not os.path.exists(label)} if orphans else ()
        claims: dict[str, list[InexactName]] = defaultdict(list)
        for orphan in sorted(orphans) if missing else ():
            written = stem(orphan.removeprefix(f"{folder}/"))
            for reading in interpret(written):
                label = f"{folder}/{reading.name}.txt"
                is_beside = os.path.dirname(reading.name) == os.path.dirname(written)
                if label in missing and is_beside:
                    claims[label].append(InexactName(written, reading.name, reading.how))
                    break
        found = {label: names[0] for label, names in claims.items() if len(names) == 1}
        self.findings += report_inexact_names(list(found.values()), folder)
        for row, entry in enumerate(self.entries):
            if not entry.is_sharing and (match := found.get(entry.label)):
                label = f"{folder}/{match.written}.txt"
                self.entries[row] = self.labels[label] = replace(entry, label=label)
        return {f"{folder}/{match.written}.txt" for match in found.values()}

    def _add_orphan(self, label: str, place: str) -> None:
        """Add the missing image of a label file; skip other text files."""
        before, labels, after = label.rpartition("/labels/")
        image = stem(f"{before}/images/{after}" if labels else label) + ".jpg"
        is_beside = os.path.dirname(label) == os.path.dirname(image)
        if (
            get_label_path(image) == label
            and os.path.basename(label) not in OTHER_TEXTS
            and not (is_beside and not _looks_like_labels(label))
        ):
            is_inside = image.startswith(f"{place}/")
            name = image[len(place) + 1 :] if is_inside else os.path.basename(image)
            self._add(image, name, place, orphan=label)

    def _add_list(self, file: str) -> None:
        if not file.lower().endswith(LIST_ENDINGS):
            raise DataError(f"{file}: expected a folder of images, or a .txt file that lists them")
        listed = read_image_list(file, self.root)
        self.lists.append(listed)
        self.findings += listed.findings
        for image in listed.images.values():
            _, images, after = image.rpartition("/images/")
            self._add(image, after if images else os.path.basename(image), file)

    def _add(self, image: str, name: str, place: str, *, orphan: str = "") -> None:
        """Add an image of a place; an `orphan` is a label file whose image is missing."""
        if image in self.seen:
            return
        self.seen.add(image)
        if not is_safe_name(name) or not _is_text(name):
            message = f"{name!r} is not a valid file name on every system; rename the file"
            self._report("unsafe-name", message, escape_surrogates(orphan or place))
            return
        label = get_label_path(image)
        if owner := self.labels.get(label):
            message = f"it shares the label file {label} with {owner.image}; rename one of them"
            name = stem(owner.name) + os.path.splitext(image)[1]
            self._report("duplicate-id", message, image, name)
            entry = SplitImage(self.split, name, image, label, is_sharing=True, place=place)
            self.entries.append(replace(entry, has_plain_name=False))
            return
        longer_names = _lengthen_name(name, image, self.root)
        candidates = (plain_name(longer, self.split) for longer in longer_names)
        plain = plain_name(name, self.split)
        name = distinct_name(filter(is_safe_name, candidates), self.names)
        entry = SplitImage(
            self.split, name, image, label, bool(orphan), place=place, has_plain_name=name == plain
        )
        self.labels[label] = entry
        self.entries.append(entry)

    def _report(self, kind: str, message: str, file: str, image: str | None = None) -> None:
        self.findings.append(Finding(kind, message, file, image))


def _lengthen_name(name: str, image: str, root: str) -> Iterator[str]:
    """Yield the name, then the name with more and more folders of its path, up to the root."""
    yield name
    parts = image.removeprefix(f"{root}/").strip("/").split("/")
    for start in range(len(parts) - 2, -1, -1):
        yield "/".join(parts[start:])


def _scan(folder: str, endings: tuple[str, ...]) -> list[str]:
    """Return the files with these extensions in a folder and below, as sorted relative names."""
    names: list[str] = []
    visited = set[tuple[int, int]]()  # links may lead in circles
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            status = os.stat(f"{folder}/{below}")
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(f"{folder}/{below}") as entries:
                for entry in entries:
                    if entry.is_dir():
                        pending.append(f"{below}{entry.name}/")
                    elif entry.name.lower().endswith(endings) and entry.name[:2] != "._":
                        names.append(f"{below}{entry.name}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{folder}/{below}: {error.strerror or error}") from error
    return sorted(names)


def _is_text(name: str) -> bool:
    """Return whether a name is valid Unicode; file systems allow other bytes."""
    return escape_surrogates(name) == name


def _looks_like_labels(path: str) -> bool:
    """Return whether a text file among images begins with a number, unlike notes and lists."""
    try:
        with open_file(path) as file:
            words = file.read(64).split()
        return bool(words) and float(words[0]) >= 0
    except (OSError, ValueError):
        return False
