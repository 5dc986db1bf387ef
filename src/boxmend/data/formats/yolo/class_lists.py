"""Read and patch YOLO datasets without a data.yaml: `classes.txt`, or `obj.data` with `obj.names`.

Label Studio and LabelImg write the names of the classes into `classes.txt`, one per line. Darknet
and CVAT (YOLO 1.1) write them into `obj.names`, which `obj.data` names next to lists of images.
"""

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.formats.documents import Document
from boxmend.data.formats.reading import is_safe_name, read_file
from boxmend.data.formats.yolo.data_yaml import MAX_NAMES
from boxmend.data.formats.yolo.splits import DATA_FOLDER, guess_splits, strip_data_folder
from boxmend.errors import DataError

DARKNET_NAME = "obj.data"
CLASS_LIST_NAMES = ("obj.names", "classes.txt", "labels/classes.txt")
SPLIT_KEYS = {"train": "train", "valid": "val", "val": "val", "test": "test"}
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class ClassList:
    """The class names of a dataset without a data.yaml, its splits, and the bytes of its files."""

    path: Path  # of the file that was read first: obj.data, or the list of names
    root: str | None
    splits: dict[str, tuple[str, ...]]
    names: tuple[str, ...]
    names_path: Path
    names_data: bytes
    data: bytes | None  # of obj.data
    read_files: tuple[ReadFile, ...] = ()
    findings: tuple[Finding, ...] = ()
    has_keypoints: bool = False


def find_class_list(path: Path) -> Path | None:
    """Return the obj.data or the list of class names of a folder, or of this file; else None."""
    if path.is_dir():
        places = (path / name for name in (DARKNET_NAME, *CLASS_LIST_NAMES))
        return next((place for place in places if place.is_file()), None)
    names = {DARKNET_NAME, *(name.rpartition("/")[2] for name in CLASS_LIST_NAMES)}
    return path if path.name in names and path.is_file() else None


def read_class_list(path: Path) -> ClassList:
    """Read an obj.data with the list that it names, or a list of class names alone."""
    if path.name == DARKNET_NAME:
        return _read_darknet(path)
    file = read_file(path, "settings_bytes")
    folder = path.absolute().parent
    root = folder.parent if path.name == "classes.txt" and folder.name == "labels" else folder
    data = file.content or b""
    splits = guess_splits(str(root)) or {"train": (".",)}
    names = _read_names(path, data)
    return ClassList(path, str(root), splits, names, path, data, None, (file,))


def build_class_documents(
    document: ClassList, base: str, names: Sequence[str], splits: Mapping[str, Sequence[str]]
) -> list[Document]:
    """Return the files for an output with these names, which begin with the document's names.

    Their paths are relative to the folder `base`. `splits` are the lists or folders of the output;
    an obj.data names them in place of those that the output lacks.
    """
    added = names[len(document.names) :]
    content = _append_lines(document.names_data, added)
    documents = [Document(_get_place(document.names_path, base), [content])]
    if document.data is not None:
        data = _replace_count(document.data, len(names)) if added else document.data
        documents.append(Document(_get_place(document.path, base), [_replace_paths(data, splits)]))
    return documents


def _get_place(path: Path, base: str) -> str:
    return os.path.relpath(path.absolute(), base).replace(os.sep, "/")


# Reading.


def _read_darknet(path: Path) -> ClassList:
    file = read_file(path, "settings_bytes")
    data = file.content or b""
    values = dict(_parse_settings(path, data))
    folder = str(path.absolute().parent)
    written = values.get("names", "")
    name = strip_data_folder(folder, written)
    if not is_safe_name(name) or not os.path.isfile(os.path.join(folder, name)):
        raise DataError(
            f"{path}: names is {written!r:.200}, which is no file below the folder of {path.name}; "
            "put the list of class names there, one per line"
        )
    names_path = Path(folder, name)
    names_file = read_file(names_path, "settings_bytes")
    names_data = names_file.content or b""
    splits = {split: (values[key],) for key, split in SPLIT_KEYS.items() if values.get(key)}
    return ClassList(
        path=path,
        root=None,
        splits={split: splits[split] for split in ("train", "val", "test") if split in splits},
        names=_read_names(names_path, names_data),
        names_path=names_path,
        names_data=names_data,
        data=data,
        read_files=(file, names_file),
    )


def _parse_settings(path: Path, data: bytes) -> list[tuple[str, str]]:
    """Return the pairs of key and value of an obj.data."""
    pairs = (line.partition("=") for line in _decode(path, data).splitlines())
    return [(key.strip(), value.strip()) for key, equals, value in pairs if equals]


def _read_names(path: Path, data: bytes) -> tuple[str, ...]:
    """Return the names of a list, one per line; blank lines at its end do not count."""
    names = [line.strip() for line in _decode(path, data).rstrip().splitlines()]
    if not names:
        raise DataError(f"{path}: has no class names; write one per line")
    if len(names) > MAX_NAMES:
        raise DataError(f"{path}: has {len(names):,} lines; this is no list of class names")
    if "" in names:
        line = names.index("") + 1
        raise DataError(f"{path}, line {line}: is blank; write the name of class {line - 1} there")
    return tuple(names)


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


# Patching.


def _append_lines(data: bytes, names: Sequence[str]) -> bytes:
    """Return a list with further names at its end."""
    if not names:
        return data
    newline = b"\r\n" if b"\r\n" in data else b"\n"
    for name in names:
        if name != name.strip() or not name or "\n" in name or "\r" in name:
            raise DataError(f"label {name!r}: cannot be a line of a list of class names; rename it")
    return data.rstrip() + b"".join(newline + name.encode() for name in names) + newline


def _replace_count(data: bytes, count: int) -> bytes:
    """Return an obj.data with another number of classes."""
    lines = data.splitlines(keepends=True)
    for k, line in enumerate(lines):
        key, equals, value = line.partition(b"=")
        if equals and key.removeprefix(BOM).strip() == b"classes" and value.strip():
            old = value.strip()
            lines[k] = key + equals + value.replace(old, str(count).encode(), 1)
    return b"".join(lines)


def _replace_paths(data: bytes, splits: Mapping[str, Sequence[str]]) -> bytes:
    """Return an obj.data with other paths for splits that are elsewhere, without missing ones."""
    lines = data.splitlines(keepends=True)
    for k, line in enumerate(lines):
        key, equals, value = line.partition(b"=")
        split = SPLIT_KEYS.get(key.removeprefix(BOM).strip().decode("utf-8", "replace"))
        old = value.strip()
        if not equals or not old or split is None:
            continue
        written = posixpath.normpath(old.decode("utf-8", "surrogateescape").replace("\\", "/"))
        places = splits.get(split, ())
        if not places:
            lines[k] = b""
        elif places[0] not in (written, written.removeprefix(DATA_FOLDER)):
            lines[k] = key + equals + value.replace(old, places[0].encode(), 1)
    return b"".join(lines)
