"""Read and patch the text files that list the images of a split, one per line."""

import os
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field

from boxmend.data.files.change_detection import ReadFile
from boxmend.data.findings import Finding
from boxmend.data.formats.image_names import InexactName, interpret, report_inexact_names
from boxmend.data.formats.reading import IMAGE_ENDINGS, is_safe_name, read_file
from boxmend.data.formats.yolo.splits import DATA_FOLDER, get_label_path, join_path
from boxmend.errors import DataError

LIST_ENDINGS = (".txt",)
BOM = "\ufeff"


@dataclass
class ImageList:
    """A list of images as it was read."""

    path: str  # absolute
    file: ReadFile
    images: dict[int, str] = field(default_factory=dict)
    """Absolute path of the image at each line (from 0); blank and broken lines have none."""
    broken: set[int] = field(default_factory=set)  # lines (from 0) that name no image
    drops_broken: bool = False  # whether a written list lacks them
    findings: list[Finding] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        """Return the bytes of the list."""
        return self.file.content or b""


def read_image_list(path: str, root: str) -> ImageList:
    """Read a list; its lines start from its own folder or from the root of the dataset."""
    listed = ImageList(path, read_file(path))
    folder = os.path.dirname(path)
    written: dict[int, str] = {}
    missing: dict[int, str] = {}
    for number, line in enumerate(_split_lines(listed)):
        text = line.strip().removeprefix(BOM).replace(os.sep, "/")
        if not text:
            continue
        name = _normalise(text, path, root)
        if ".." in name.split("/") or "\0" in name or "\\" in name:
            message = f"line {number + 1}: {text!r} is not a safe path, so it is not opened"
            _report(listed, number, "unsafe-name", message)
        elif not name.lower().endswith(IMAGE_ENDINGS):
            message = f"line {number + 1}: {text!r} is not the name of an image"
            _report(listed, number, "malformed", message)
        else:
            written[number] = text
            image = _find_literally(name, folder, root)
            listed.images[number] = image or join_path(folder, name)
            if image is None:
                missing[number] = name
    listed.findings += _find_inexact(listed, missing, written, root)
    return listed


def _find_inexact(
    listed: ImageList, missing: dict[int, str], written: dict[int, str], root: str
) -> Iterator[Finding]:
    """Find missing images under other names, and yield a finding about inexact names."""
    taken = {image for number, image in listed.images.items() if number not in missing}
    folders = (os.path.dirname(listed.path), root)
    found = {
        number: match
        for number, name in missing.items()
        if (match := _interpret_line(name, folders, taken)) is not None
    }
    counts = Counter(image for image, _ in found.values())
    inexact = []
    for number, text in written.items():
        image, how = found.get(number, (listed.images[number], "backslashes"))
        if number in found and counts[image] > 1:
            continue
        if number in found or "\\" in text:
            listed.images[number] = image
            inexact.append(
                InexactName(text, os.path.relpath(image, root).replace(os.sep, "/"), how)
            )
    yield from report_inexact_names(inexact, listed.path)


def _interpret_line(
    name: str, folders: Iterable[str], taken: Container[str]
) -> tuple[str, str] | None:
    """Return the image that a line may mean, and how its name was interpreted."""
    for reading in interpret(name):
        for folder in folders:
            image = join_path(folder, reading.name)
            if image not in taken and os.path.isfile(image):
                return image, reading.how
    return None


def patch_image_list(listed: ImageList, images: Collection[str]) -> bytes:
    """Return a list with only these images (absolute paths), for a copy of its dataset.

    Blank lines stay. Absolute lines become relative to the list, because the images of
    the copy lie elsewhere.
    """
    lines = listed.data.decode("utf-8-sig").splitlines(keepends=True)
    changed = listed.drops_broken and bool(listed.broken)
    for number in listed.broken if listed.drops_broken else ():
        lines[number] = ""
    for number, image in listed.images.items():
        line = lines[number]
        text = line.strip()
        if image not in images:
            lines[number], changed = "", True
        elif _is_absolute(text):
            relative = os.path.relpath(image, os.path.dirname(listed.path)).replace(os.sep, "/")
            lines[number], changed = line.replace(text, f"./{relative}"), True
    if not changed:
        return listed.data
    mark = b"\xef\xbb\xbf" if listed.data.startswith(b"\xef\xbb\xbf") else b""
    return mark + "".join(lines).encode()


def _split_lines(listed: ImageList) -> list[str]:
    try:
        return listed.data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{listed.path}: not UTF-8 at byte {error.start}") from error


def _report(listed: ImageList, number: int, kind: str, message: str) -> None:
    listed.broken.add(number)
    listed.findings.append(Finding(kind, message, listed.path))


def _is_absolute(path: str) -> bool:
    return path[:1] in ("/", "\\") or path[1:2] == ":"


def _normalise(name: str, path: str, root: str) -> str:
    """Return a name with forward slashes, unless a file has the backslashes in its name."""
    if "\\" not in name:
        return name
    plain = name.replace("\\", "/")
    folders = (os.path.dirname(path), root)
    is_literal = is_safe_name(plain) and any(os.path.exists(f"{place}/{name}") for place in folders)
    return name if is_literal or plain[1:2] == ":" else plain


def _find_literally(name: str, list_folder: str, root: str) -> str | None:
    """Return the image of a line; None if there is neither an image nor a label file for it."""
    short = name.removeprefix("./").removeprefix(DATA_FOLDER)
    candidates = [join_path(list_folder, name), join_path(root, short)]
    if not name.startswith("./"):
        candidates.insert(1, join_path(root, name))
    if not name.removeprefix("./").startswith(DATA_FOLDER):
        candidates.pop()
    return next((image for image in candidates if _is_there(image)), None)


def _is_there(image: str) -> bool:
    return os.path.exists(image) or os.path.isfile(get_label_path(image))
