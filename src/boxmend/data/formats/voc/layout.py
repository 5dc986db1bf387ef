"""Find the documents and the lists of a VOC dataset."""

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.files.reading import open_file
from boxmend.data.findings import Finding
from boxmend.data.formats.reading import is_safe_name, read_file
from boxmend.data.formats.voc.source import ANNOTATIONS, read_list_entries
from boxmend.errors import DataError, UsageError

OTHER_FOLDERS = ("annotations", "labels")  # of documents, as some tools call them
SPLIT_FOLDERS = ("train", "valid", "val", "test")  # of documents beside their images
SPLIT_ORDER = ("train", "val", "test", "trainval")  # the more specific lists first
HEAD_BYTES = 1024  # of a document, which contain the name of its top element
_APPLE_DOUBLE = b"\x00\x05\x16\x07"  # the start of the "._NAME" files in archives made on a Mac


def find_annotations_folder(path: Path) -> str | None:
    """Return the folder of the documents, relative to the dataset; None if it is not VOC.

    It is `Annotations`, another usual folder, or the dataset itself (the empty name), where the
    documents lie beside the images.
    """
    folder = path / ANNOTATIONS
    if os.path.isdir(folder):
        has_lists = os.path.isdir(path / "ImageSets" / "Main")
        return ANNOTATIONS if has_lists or next(_walk_documents(folder), None) else None
    for name in OTHER_FOLDERS:
        if _has_document(path / name):
            return name
    is_bare = any(_has_document(folder) for folder in (path, *map(path.joinpath, SPLIT_FOLDERS)))
    return "" if is_bare else None


def _has_document(folder: Path) -> bool:
    first = next(_list_documents(folder), None)
    return first is not None and _holds_annotation(folder / first)


def _walk_documents(folder: Path) -> Iterator[str]:
    """Yield the XML files in a folder and below, relative to it, with forward slashes."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: {error.strerror}") from error

    for place, _, names in os.walk(folder, onerror=fail):
        prefix = os.path.relpath(place, folder).replace(os.sep, "/") + "/"
        for name in names:
            if name.endswith(".xml") and not _is_apple_double(os.path.join(place, name), name):
                yield name if prefix == "./" else prefix + name


def _is_apple_double(path: str, name: str) -> bool:
    if not name.startswith("._"):
        return False
    try:
        with open_file(path) as file:
            return file.read(len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
    except OSError:
        return False  # reading it as a document reports the problem


def find_ids(path: Path, folder: str) -> list[str]:
    """Return the documents in this folder of a dataset, by their names without .xml."""
    if folder:
        names = _walk_documents(path / folder)
    else:
        names = chain(_list_documents(path), *(_walk_split(path, name) for name in SPLIT_FOLDERS))
    return sorted(name.removesuffix(".xml") for name in names)


def _walk_split(path: Path, split: str) -> Iterator[str]:
    if os.path.isdir(path / split):
        yield from (f"{split}/{name}" for name in _walk_documents(path / split))


def _list_documents(folder: Path) -> Iterator[str]:
    """Yield the XML files in a folder, but not below."""
    if not os.path.isdir(folder):
        return
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(".xml") and not _is_apple_double(path, name) and os.path.isfile(path):
            yield name


def _holds_annotation(path: str | Path) -> bool:
    """Return whether an XML file begins like a VOC document."""
    try:
        with open_file(path) as file:
            return b"<annotation>" in file.read(HEAD_BYTES)
    except OSError:
        return False


def split_by_folder(path: Path, ids: Sequence[str], split: str | None) -> dict[str, str]:
    """Return the split of each document that lies in the folder of a split, or of one split."""
    splits = {name: name.partition("/")[0] if "/" in name else "all" for name in ids}
    if split is None:
        return splits
    if split not in splits.values():
        known = ", ".join(sorted(set(splits.values())))
        raise UsageError(f"{path}: there is no split {split!r}; the splits are {known}")
    return {name: folder for name, folder in splits.items() if folder == split}


def read_lists(folder: Path) -> dict[str, ReadFile]:
    """Return the lists of a folder by name, the usual splits first."""
    if not os.path.isdir(folder):
        return {}
    files = (path for path in sorted(folder.glob("?*.txt")) if os.path.isfile(path))
    paths = {path.name.removesuffix(".txt"): path for path in files}
    usual = [name for name in SPLIT_ORDER if name in paths]
    return {name: read_file(paths[name]) for name in dict.fromkeys([*usual, *paths])}


def _get_list_path(path: Path, split: str) -> Path:
    return path / "ImageSets" / "Main" / f"{split}.txt"


def choose_list(path: Path, lists: Mapping[str, bytes], split: str) -> bytes:
    """Return the content of the list of a split; raise a UsageError if there is none."""
    if split in lists:
        return lists[split]
    known = ", ".join(lists) or "none"
    raise UsageError(f"{path}: no split {split!r} in ImageSets/Main; the splits are {known}")


def read_list(
    path: Path, split: str, content: bytes, known: Container[str], findings: list[Finding]
) -> tuple[list[str], set[int]]:
    """Return the images of a list, once each, and the numbers of invalid lines, with findings."""
    list_path = str(_get_list_path(path, split))
    ids: dict[str, int] = {}
    broken = set()
    for line, id in read_list_entries(content, known):
        if not is_safe_name(id):
            findings.append(_report_unsafe_line(list_path, line, id))
        elif id in ids:
            message = f"line {line} names {id!r} again, after line {ids[id]}; remove one"
            findings.append(Finding("duplicate-id", message, list_path, id))
        elif id not in known:
            message = f"line {line} names {id!r}, but there is no document {id + '.xml'!r}"
            findings.append(Finding("malformed", message, list_path, id))
        if id in known and id not in ids and is_safe_name(id):
            ids[id] = line
        else:
            broken.add(line)
    return list(ids), broken


def assign_splits(
    path: Path, lists: dict[str, bytes], known: Container[str], findings: list[Finding]
) -> tuple[dict[str, str], dict[str, set[int]]]:
    """Return for each image the first list that names it, and the invalid lines of each list."""
    splits: dict[str, str] = {}
    broken: dict[str, set[int]] = {name: set() for name in lists}
    for name, content in lists.items():
        for line, id in read_list_entries(content, known):
            if id in known:
                splits.setdefault(id, name)
            elif not is_safe_name(id):
                list_path = str(_get_list_path(path, name))
                findings.append(_report_unsafe_line(list_path, line, id))
                broken[name].add(line)
    return splits, broken


def _report_unsafe_line(list_path: str, line: int, id: str) -> Finding:
    message = f"line {line} names {id!r}, which leads out of the folder; name an image inside it"
    return Finding("unsafe-name", message, list_path)
