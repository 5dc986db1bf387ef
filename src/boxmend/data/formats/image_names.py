"""Find image files whose names an annotation tool wrote differently.

Exports contain names such as `images/a%20b.jpg` for the file `a b.jpg`, `images\\c.jpg`,
`/data/upload/1/5e6f7a8b-c.jpg` or `/data/local-files/?d=c.jpg`. A file with the literal name always
counts first. Every other interpretation stays inside the image folder, is used only if it leads to
exactly one file of the recorded size, and is reported.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from boxmend.data.findings import Finding
from boxmend.data.formats.reading import IMAGE_ENDINGS, is_safe_name, read_image_size

MAX_FOLDERS = 10_000  # searched for images in nested folders
MAX_NAME_CHARACTERS = 4096  # the longest path of most systems; longer names mean no file
MAX_EXAMPLES = 3  # in a finding
KIND = "inexact-name"
_UPLOAD_PREFIX = re.compile(r"[0-9a-f]{8}-(?=.)")  # Label Studio puts it before uploaded files
_LOCAL_FILE = re.compile(r"\?d=([^&]*)")  # Label Studio's links to files on its own disk
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*/", re.IGNORECASE)


class Interpretation(NamedTuple):
    """A name of a file that a written name may mean, and how it was derived."""

    name: str
    how: str


@dataclass(frozen=True)
class InexactName:
    """A written name, and the name of the image file that it stands for."""

    written: str
    found: str
    how: str


def interpret(name: str) -> Iterator[Interpretation]:
    """Yield the other names that a written name may mean, the most similar ones first.

    All of them are safe to join to a folder.
    """
    if len(name) > MAX_NAME_CHARACTERS or "\0" in name:
        return
    seen = {name}
    for text, how in _decode(name):
        for path, folders in _shorten(text):
            for short, prefix in ((path, ""), (_strip_upload_prefix(path), "upload prefix")):
                if short not in seen and is_safe_name(short):
                    seen.add(short)
                    yield Interpretation(short, ", ".join(filter(None, (how, folders, prefix))))


def _decode(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name with forward slashes, then without url-encoding."""
    if local := _LOCAL_FILE.search(name):
        yield unquote(local[1]).replace("\\", "/"), "link of Label Studio"
        return
    name = _SCHEME.sub("", name, count=1)
    path = name.replace("\\", "/")
    yield path, "backslashes" if "\\" in name else ""
    if "%" in path and (decoded := unquote(path)) != path:
        yield decoded.replace("\\", "/"), "url-encoded"


def _shorten(path: str) -> Iterator[tuple[str, str]]:
    """Yield a path without `.` and `..`, then without its first folder, its first two, and so on.

    A drive of Windows counts as a folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    for start in range(len(parts)):
        is_whole = start == 0 and path[:1] != "/" and ".." not in path.split("/")
        yield "/".join(parts[start:]), "" if is_whole else "another folder"


def _strip_upload_prefix(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + _UPLOAD_PREFIX.sub("", name, count=1)


class ImageFolder:
    """The image files below a folder, found by names that may be written differently."""

    def __init__(self, folder: str | Path):
        self.folder = str(folder)
        self._nested: Mapping[str, Sequence[str]] | None = None

    def has(self, name: str) -> bool:
        """Return whether there is a file with this name, which must be safe."""
        return os.path.isfile(f"{self.folder}/{name}")

    def find(
        self, name: str, size: tuple[int, int] | None = None, taken: Container[str] = ()
    ) -> InexactName | None:
        """Return the file that a name stands for, though it is not its literal name.

        Skip files in `taken`, which other names mean literally, and files of another `size`.
        """
        if self.has_backslashes(name):
            return None  # a file that other systems cannot have; which one is meant is open
        readings = list(interpret(name))
        for reading in readings:
            if reading.name not in taken and self.has(reading.name):
                return self._confirm(name, reading.name, reading.how, size)
        texts = [name, *(reading.name for reading in readings)] if is_safe_name(name) else []
        for text in texts or [reading.name for reading in readings]:
            matches = [path for path in self._find_nested(text) if path not in taken]
            if len(matches) == 1:
                return self._confirm(name, matches[0], "nested folder", size)
        return None

    def has_literally(self, name: str) -> bool:
        """Return whether there is a file with this name, safe or with backslashes."""
        return self.has(name) if is_safe_name(name) else self.has_backslashes(name)

    def has_backslashes(self, name: str) -> bool:
        """Return whether a file has this name with backslashes, which only Windows forbids."""
        return "\\" in name and is_safe_name(name.replace("\\", "/")) and self.has(name)

    def _confirm(
        self, written: str, found: str, how: str, size: tuple[int, int] | None
    ) -> InexactName | None:
        """Return the name unless the file has another size, turned by 90 degrees at most."""
        if size is not None and min(size) > 0:
            actual = read_image_size(Path(self.folder) / found)
            if actual is not None and sorted(actual) != sorted(size):
                return None
        return InexactName(written, found, how or "another folder")

    def _find_nested(self, name: str) -> list[str]:
        """Return the images in nested folders whose path ends with this name."""
        if self._nested is None:
            self._nested = _list_nested(self.folder)
        base = name.rpartition("/")[2]
        return [path for path in self._nested.get(base, ()) if f"/{path}".endswith(f"/{name}")]


def _list_nested(folder: str) -> Mapping[str, Sequence[str]]:
    """Return the images in nested folders by their last name; links to folders are not followed."""
    nested: dict[str, list[str]] = defaultdict(list)
    for count, (place, folders, names) in enumerate(os.walk(folder)):
        if count == MAX_FOLDERS:
            return {}  # not a folder of images
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = os.path.relpath(place, folder).replace(os.sep, "/")
        for name in names:
            path = f"{below}/{name}"
            if below != "." and name.lower().endswith(IMAGE_ENDINGS) and is_safe_name(path):
                nested[name].append(path)
    return nested


def find_inexact_names(
    folder: ImageFolder,
    names: Mapping[int, str],
    sizes: Mapping[int, tuple[int, int]],
    taken: Container[str],
) -> dict[int, InexactName]:
    """Return the files that these names stand for, by row; a file for two names counts for none."""
    found = {
        row: match
        for row, name in names.items()
        if (match := folder.find(name, sizes.get(row), taken)) is not None
    }
    counts = Counter(match.found for match in found.values())
    return {row: match for row, match in found.items() if counts[match.found] == 1}


def describe_unsafe_name(name: str) -> str:
    """Return why joining a name to a folder is not safe, and what to do."""
    if not name or name.endswith("/"):
        return "is not the name of a file; name an image"
    if "\0" in name:
        return "has a NUL character; rename the image"
    path = name.replace("\\", "/")
    if path[0] == "/" or path[1:2] == ":":
        return "is absolute, and no image of that name was found; make it relative"
    if ".." in path.split("/"):
        return (
            "leads out of the folder of the images, and no image of that name was found inside; "
            "make it relative"
        )
    return "has backslashes, and there is no such image; write / between folders"


def report_inexact_names(matches: Sequence[InexactName], file: str) -> Iterator[Finding]:
    """Yield a finding about names that stand for files with other names, with examples."""
    if not matches:
        return
    examples = "; ".join(
        f"{match.written!r:.200} as {match.found!r:.200} ({match.how})"
        for match in matches[:MAX_EXAMPLES]
    )
    more = "; ..." if len(matches) > MAX_EXAMPLES else ""
    text = "1 file name was read" if len(matches) == 1 else f"{len(matches):,} file names were read"
    yield Finding(KIND, f"{text} as the name of another file: {examples}{more}", file)
