"""Where the images and label files of a YOLO dataset lie, and what its images are called.

A split is a folder, a list file, or several of them. The label file of an image is found by its
path: the last `images` folder becomes `labels`, the ending `.txt`; without an `images` folder it
lies beside the image. Nothing is opened here but list files.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.files.reading import open_file
from boxmend.data.files.text import escape_surrogates
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import IMAGE_ENDINGS, is_safe_name, read_file
from boxmend.data.formats.yolo.data_yaml import DataYaml
from boxmend.errors import DataError, UsageError

TEXTS = (".txt",)
NO_LABELS = {"classes.txt"}  # what annotation tools leave among label files


@dataclass(frozen=True, slots=True)
class SplitImage:
    """One image of a split, whether it is there or not."""

    split: str
    name: str  # relative to the images of the split, with ending; safe to join to any folder
    image: str  # absolute, with forward slashes; so is `label`
    label: str
    is_orphan: bool = False  # known by its label file only
    is_sharing: bool = False  # the label file belongs to another image

    @property
    def id(self) -> str:
        """The split and the name, which keeps its ending only where it must."""
        return f"{self.split}/{self.name if self.is_sharing else stem(self.name)}"


@dataclass
class SplitLayout:
    """The images of the splits that are read, in order, and what was wrong on the way."""

    entries: list[SplitImage] = field(default_factory=list)
    read_as: dict[str, str] = field(default_factory=dict)
    """Split of the data.yaml -> the split it is read as; several may share their images."""
    findings: list[Finding] = field(default_factory=list)
    read_files: list[ReadFile] = field(default_factory=list)
    """The .txt files that list images."""


def find_images(document: DataYaml, split: str | None) -> SplitLayout:
    """List the images of one split, or of all."""
    layout = SplitLayout()
    root = _root(document)
    for name, places in _chosen(document, root, split, layout).items():
        finder = _Finder(name, root, layout.findings)
        for place in places:
            finder.add(place)
        layout.entries += finder.entries
        layout.read_files += finder.read_files
    return layout


def label_path(image: str) -> str:
    """Where the label file of an image lies, by the rule above."""
    before, images, after = image.rpartition("/images/")
    return stem(f"{before}/labels/{after}" if images else image) + ".txt"


def plain_name(name: str, split: str) -> str:
    """A file name that keeps its image and label file together at `images/SPLIT/NAME`.

    Folders called `images` are left out, since they would lead to other labels; so is the split
    at the beginning.
    """
    *folders, file = name.split("/")
    folders = [one for one in folders if one not in ("images", "", ".")]
    while folders and folders[0] == split:
        del folders[0]
    return "/".join([*folders, file])


def distinct_name(candidates: Iterable[str], used: dict[str, int]) -> str:
    """The first candidate whose label file is not in use, or the first of all with a number."""
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
    """A path without its ending."""
    return os.path.splitext(name)[0]


# Splits


def _root(document: DataYaml) -> str:
    """The folder that paths start from; the data.yaml's own where `path` leads nowhere."""
    around = _joined(os.getcwd(), str(document.path.parent))
    root = _joined(around, document.root or "")
    return root if os.path.isdir(root) else around  # people move datasets


def _chosen(
    document: DataYaml, root: str, split: str | None, layout: SplitLayout
) -> dict[str, tuple[str, ...]]:
    """The splits to read with their places; those with the same places are read once."""
    if not document.splits:
        raise DataError(f"{document.path}: has none of train, val and test; say where images are")
    if split is not None and split not in document.splits:
        known = ", ".join(document.splits)
        raise UsageError(f"{document.path}: there is no split {split!r}; there is {known}")
    sharing: dict[tuple[str, ...], list[str]] = {}
    for key in document.splits if split is None else [split]:
        places = tuple(_place(root, written) for written in document.splits[key])
        lost = [place for place in places if not _is_there(place)]
        if not lost:
            sharing.setdefault(places, []).append(key)
        elif key == "test" and split is None:  # exports often name a test split they do not have
            message = f"test: no such folder or list file: {lost[0]}; the split is left out"
            layout.findings.append(Finding("no-label-file", message, str(document.path)))
        else:
            raise DataError(
                f"{document.path}: {key}: no such folder or list file: {lost[0]}; correct the "
                "path, or name a split that is there (PATH:SPLIT)"
            )
    chosen = {}
    for places, keys in sharing.items():
        # Named after its folder, so that ids stay when it is written as `images/SPLIT`.
        named = [key for key in keys if [os.path.basename(one) for one in places] == [key]]
        name = (named or keys)[0]
        chosen[name] = places
        layout.read_as.update(dict.fromkeys(keys, name))
    return chosen


def _place(root: str, written: str) -> str:
    """The folder or list file that the data.yaml means."""
    place = _joined(root, written)
    if not _is_there(place) and written.startswith("../"):  # as Roboflow writes its folders
        inside = _joined(root, written[3:])
        place = inside if _is_there(inside) else place
    return place


def _is_there(place: str) -> bool:
    return os.path.exists(place) or os.path.isdir(_label_folder(place))


def _label_folder(folder: str) -> str:
    return os.path.dirname(label_path(f"{folder}/x"))


def _joined(folder: str, path: str) -> str:
    return os.path.abspath(os.path.join(folder, path)).replace(os.sep, "/")


# Images of one split


class _Finder:
    """Collects the images of one split from its places; each file once."""

    def __init__(self, split: str, root: str, findings: list[Finding]):
        self.split = split
        self.root = root
        self.findings = findings
        self.entries: list[SplitImage] = []
        self.seen: set[str] = set()  # paths of images
        self.labels: dict[str, SplitImage] = {}  # path of a label file -> the image it belongs to
        self.names: dict[str, int] = {}
        self.read_files: list[ReadFile] = []

    def add(self, place: str) -> None:
        """Add the images of a folder, with label files that lack one, or of a list file."""
        if os.path.isfile(place):
            self._add_list(place)
            return
        texts = {f"{_label_folder(place)}/{name}" for name in _scan(_label_folder(place), TEXTS)}
        for name in _scan(place, (*IMAGE_ENDINGS, *TEXTS)):
            if name.lower().endswith(TEXTS):
                texts.add(f"{place}/{name}")
            else:
                self._add(f"{place}/{name}", name, place)
        for text in sorted(texts - self.labels.keys()):
            self._add_orphan(text, place)

    def _add_orphan(self, label: str, place: str) -> None:
        """Add the image that a label file was written for; other texts are none of ours."""
        before, labels, after = label.rpartition("/labels/")
        image = stem(f"{before}/images/{after}" if labels else label) + ".jpg"
        is_beside = os.path.dirname(label) == os.path.dirname(image)
        if (
            label_path(image) == label
            and os.path.basename(label) not in NO_LABELS
            and not (is_beside and not _looks_like_labels(label))
        ):
            is_inside = image.startswith(f"{place}/")
            name = image[len(place) + 1 :] if is_inside else os.path.basename(image)
            self._add(image, name, label, is_orphan=True)

    def _add_list(self, file: str) -> None:
        if not file.lower().endswith(TEXTS):
            raise DataError(f"{file}: expected a folder of images, or a .txt file that lists them")
        try:
            self.read_files.append(read_file(file))
            content = self.read_files[-1].content or b""
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: not UTF-8 at byte {error.start}") from error
        for number, line in enumerate(lines, 1):
            path = line.strip().replace(os.sep, "/")
            if ".." in path.split("/") or "\0" in path or "\\" in path:
                self._tell("unsafe-name", f"line {number}: {path!r} is not opened", file)
            elif path and not path.lower().endswith(IMAGE_ENDINGS):
                self._tell(
                    "malformed", f"line {number}: {path!r} is not the name of an image", file
                )
            elif path:
                image = self._listed(path, os.path.dirname(file))
                _, images, after = image.rpartition("/images/")
                self._add(image, after if images else os.path.basename(image), file)

    def _listed(self, path: str, around: str) -> str:
        beside, below = _joined(around, path), _joined(self.root, path)
        is_below = os.path.exists(below) and not os.path.exists(beside)
        return below if is_below and not path.startswith("./") else beside

    def _add(self, image: str, name: str, place: str, *, is_orphan: bool = False) -> None:
        if image in self.seen:
            return
        self.seen.add(image)
        if not is_safe_name(name) or not _is_text(name):
            self._tell(
                "unsafe-name", f"{name!r} is no file name on every system", escape_surrogates(place)
            )
            return
        label = label_path(image)
        if owner := self.labels.get(label):
            message = f"its label file {label} is that of {owner.image}, too; rename one of them"
            self._tell("duplicate-id", message, image)
            name = stem(owner.name) + os.path.splitext(image)[1]
            self.entries.append(SplitImage(self.split, name, image, label, is_sharing=True))
            return
        longer = (plain_name(one, self.split) for one in _longer(name, image))
        name = distinct_name(filter(is_safe_name, longer), self.names)
        entry = self.labels[label] = SplitImage(self.split, name, image, label, is_orphan)
        self.entries.append(entry)

    def _tell(self, kind: str, message: str, file: str) -> None:
        self.findings.append(Finding(kind, message, file))


def _longer(name: str, image: str) -> Iterator[str]:
    """The name, then more and more of the path that leads to it."""
    yield name
    parts = image.strip("/").split("/")
    for start in range(len(parts) - 2, -1, -1):
        yield "/".join(parts[start:])


def _scan(folder: str, endings: tuple[str, ...]) -> list[str]:
    """The files with these endings in a folder and all below it, as sorted relative names."""
    names: list[str] = []
    entered = set[tuple[int, int]]()  # links may lead in circles
    waiting = [""]
    while waiting:
        below = waiting.pop()
        try:
            status = os.stat(f"{folder}/{below}")
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            with os.scandir(f"{folder}/{below}") as entries:
                for entry in entries:
                    if entry.is_dir():
                        waiting.append(f"{below}{entry.name}/")
                    elif entry.name.lower().endswith(endings) and entry.name[:2] != "._":
                        names.append(f"{below}{entry.name}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{folder}/{below}: {error.strerror or error}") from error
    return sorted(names)


def _is_text(name: str) -> bool:
    """Whether a name is Unicode; file systems allow other bytes."""
    return escape_surrogates(name) == name


def _looks_like_labels(path: str) -> bool:
    """Whether a file that lies among images begins with a number, unlike notes and lists."""
    try:
        with open_file(path) as file:
            words = file.read(64).split()
        return bool(words) and float(words[0]) >= 0
    except (OSError, ValueError):
        return False
