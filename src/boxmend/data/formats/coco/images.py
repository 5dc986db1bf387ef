"""Find the image files of a COCO document, and their sizes."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from boxmend.data.dataset import Images
from boxmend.data.findings import Finding
from boxmend.data.formats.coco.entries import ImageEntry
from boxmend.data.formats.image_names import (
    ImageFolder,
    InexactName,
    describe_unsafe_name,
    find_inexact_names,
    report_inexact_names,
)
from boxmend.data.formats.reading import is_safe_name, read_image_size
from boxmend.data.types import Ids

FOLDER_SAMPLE = 8  # names that are tried in every folder
SAMPLE = 1000  # names that are tried in the chosen folder; if all are there, no name is inexact


def find_images(
    entries: Sequence[ImageEntry], ids: Ids, path: Path, split: str, user_folder: Path | None
) -> tuple[Images, Path | None, list[Finding]]:
    """Find the image files of a COCO document near it, or in the user's folder.

    Return them, the folder near the document that has them, and the findings about their names.
    """
    n = len(entries)
    names = [entry.file_name for entry in entries]
    sizes = np.zeros((n, 2), np.int64)
    sizes[:, 0] = _clean_sizes([entry.width for entry in entries])
    sizes[:, 1] = _clean_sizes([entry.height for entry in entries])
    places = _list_folders(path, split, user_folder)
    folder, has_images = _choose_folder(places, names, path, user_folder)
    inexact = _find_inexact(folder, names, sizes, has_images)
    findings: list[Finding] = []
    for row in _find_unsafe_rows(names):
        if row in inexact:
            continue
        plain = names[row].replace("\\", "/")
        if "\\" in names[row] and is_safe_name(plain) and not folder.has_backslashes(names[row]):
            inexact[row] = InexactName(names[row], plain, "backslashes; no such image")
            continue
        message = f"image {ids[row]}: file_name {names[row]!r} {describe_unsafe_name(names[row])}"
        findings.append(Finding("unsafe-name", message, str(path), str(ids[row])))
        names[row] = ""
    findings += report_inexact_names(list(inexact.values()), str(path))
    for row, match in inexact.items():
        names[row] = match.found
    paths = [f"{folder.folder}/{name}" if name else "" for name in names]
    for row in np.flatnonzero((sizes == 0).any(axis=1)).tolist():
        sizes[row] = (paths[row] and read_image_size(Path(paths[row]))) or (0, 0)
    images = Images(
        ids=ids,
        file_names=[name or f"unsafe-{row}" for row, name in enumerate(names)],
        paths=paths,
        splits=[split] * n,
        widths=sizes[:, 0],
        heights=sizes[:, 1],
        sources=np.zeros(n, np.int64),
        rows=np.arange(n),
    )
    is_near = has_images and user_folder is None
    return images, Path(folder.folder) if is_near else None, findings


def choose_places(path: Path, address: Path, folder: Path | None) -> tuple[str, str | None]:
    """Return the places of a document and its images in an output folder.

    They are those in the folder of the address, or of the file if that is the address. The second
    one is None if the images lie elsewhere; they are then written to `images`.
    """
    file = path.absolute()
    bases = [file.parent, file.parent.parent] if address.is_file() else [address.absolute()]
    for base in bases:
        if folder is not None and folder.is_relative_to(base):
            names = [part.relative_to(base).as_posix() for part in (file, folder)]
            if all(is_safe_name(name) for name in names):
                return names[0], names[1]
    return file.relative_to(bases[0]).as_posix(), None


def _clean_sizes(sizes: list[int | None]) -> NDArray[np.int64]:
    """Return recorded widths or heights; 0 for impossible ones."""
    try:
        column = np.array(sizes, np.int64)
    except (TypeError, OverflowError):  # null, or a number that does not fit
        column = np.array([size if size and abs(size) < 2**31 else 0 for size in sizes], np.int64)
    return np.where((column > 0) & (column < 2**31), column, 0)


def _list_folders(path: Path, split: str, user_folder: Path | None) -> list[Path]:
    """Return the folders that may have the images: near the file, or the user's folder."""
    if user_folder is not None:
        return [user_folder, user_folder / split]
    file_folder = path.absolute().parent
    near = ("images", f"images/{split}", split, "data", "")
    around = ("images", f"images/{split}", split, "")
    return [file_folder / name for name in near] + [file_folder.parent / name for name in around]


def _choose_folder(
    folders: Sequence[Path], names: Sequence[str], path: Path, user_folder: Path | None
) -> tuple[ImageFolder, bool]:
    """Return the folder with the images, and whether it has any; else the most likely folder.

    Literal names count first, then names that an annotation tool changed, then nested folders.
    """
    sample = [name for name in names if name][:: len(names) // FOLDER_SAMPLE + 1]
    for images in map(ImageFolder, folders):
        if any(images.has_literally(name) for name in sample):
            return images, True
    existing = [folder for folder in dict.fromkeys(folders) if folder.is_dir()]
    if user_folder is None:  # the folder around that of the file may be anything, such as /home
        existing = [folder for folder in existing if folder != path.absolute().parent.parent]
    for images in map(ImageFolder, existing):
        if any(images.find(name) for name in sample):
            return images, True
    return ImageFolder(folders[0]), False


def _find_inexact(
    folder: ImageFolder, names: Sequence[str], sizes: NDArray[np.int64], has_images: bool
) -> dict[int, InexactName]:
    """Return the files of names that are unsafe, or that no file has literally."""
    rows = set(_find_unsafe_rows(names))
    sample = [row for row in range(0, len(names), len(names) // SAMPLE + 1) if row not in rows]
    if has_images and not all(folder.has(names[row]) for row in sample):
        rows |= {row for row in range(len(names)) if row not in rows and not folder.has(names[row])}
    if not rows:
        return {}
    taken: Collection[str] = {name for row, name in enumerate(names) if row not in rows}
    recorded = {row: (int(sizes[row, 0]), int(sizes[row, 1])) for row in rows}
    return find_inexact_names(folder, {row: names[row] for row in sorted(rows)}, recorded, taken)


def _find_unsafe_rows(names: Sequence[str]) -> Iterator[int]:
    """Yield the rows of unsafe names, after a quick search in all names at once."""
    text = "\n".join(names)
    marks = ("..", "\\", "\0", ":", "\n/", "/\n", "\n\n")
    is_unsafe_at_ends = not text or text[0] in "/\n" or text[-1] in "/\n"
    if is_unsafe_at_ends or any(mark in text for mark in marks):
        yield from (row for row, name in enumerate(names) if not is_safe_name(name))
