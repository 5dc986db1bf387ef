"""Find the image files of VOC documents, by the name in a document or by the document's name."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from boxmend.data.findings import Finding
from boxmend.data.formats.image_names import (
    ImageFolder,
    InexactName,
    describe_unsafe_name,
    find_inexact_names,
    report_inexact_names,
)
from boxmend.data.formats.reading import IMAGE_ENDINGS, ReadOptions, is_safe_name, read_image_size

USUAL_FOLDER = "JPEGImages"
_USUAL_FOLDERS = (USUAL_FOLDER, "images", "data")

Size = tuple[int, int]


def find_image_folder(path: Path, options: ReadOptions) -> Path:
    """Return the folder of the images: the user's, a usual one, or the dataset's folder itself."""
    usual = (path / name for name in _USUAL_FOLDERS)
    return options.images or next((folder for folder in usual if folder.is_dir()), path)


def choose_output_folder(path: Path, folder: Path, names: Sequence[str], is_bare: bool) -> str:
    """Return the image folder of a written dataset, relative to it; empty for the dataset itself.

    It is the folder in the source if a reader finds the images there without an option.
    """
    if folder == path:
        is_used = is_bare or any(os.path.isfile(folder / name) for name in names)
        return "" if is_used else USUAL_FOLDER
    is_usual = folder.parent == path and folder.name in _USUAL_FOLDERS
    return folder.name if is_usual else USUAL_FOLDER


def find_images(
    folder: Path, ids: Sequence[str], filenames: Sequence[str], documents: Sequence[str]
) -> tuple[list[str], dict[int, InexactName], list[Finding]]:
    """Return the names of the images relative to their folder, for documents with these filenames.

    Return also the names that were read as those of other files, by row, and findings about unsafe
    names. `documents` are the paths of the documents.
    """
    images = ImageFolder(folder)
    names: list[str] = []
    open_rows: dict[int, str] = {}
    for row, (identity, filename) in enumerate(zip(ids, filenames, strict=True)):
        name = _find_literally(images, identity, filename)
        if filename and (name is None or not is_safe_name(filename)):
            open_rows[row] = filename
        names.append(name or f"{identity}{IMAGE_ENDINGS[0]}")
    taken = {name for row, name in enumerate(names) if row not in open_rows}
    inexact = find_inexact_names(images, open_rows, {}, taken)
    findings = []
    for row, filename in open_rows.items():
        plain = filename.replace("\\", "/")
        if row in inexact:
            names[row] = inexact[row].found
        elif is_safe_name(filename):
            names[row] = next(_list_by_filename(ids[row], filename))
        elif is_safe_name(plain) and not images.has_backslashes(filename):
            inexact[row] = InexactName(filename, plain, "backslashes; no such image")
            names[row] = plain
        else:
            message = f"filename {filename!r} {describe_unsafe_name(filename)}"
            findings.append(Finding("unsafe-name", message, documents[row], ids[row]))
    return names, inexact, findings


def report_names(inexact: dict[int, InexactName], path: Path) -> Iterator[Finding]:
    """Yield a finding about the names that were read as those of other files."""
    return report_inexact_names(list(inexact.values()), str(path))


def fill_sizes(folder: Path, names: Sequence[str], sizes: Sequence[Size]) -> list[Size]:
    """Return recorded sizes; those that are zero are read from the image's header."""
    return [
        size if all(size) else read_image_size(folder / name) or (0, 0)
        for name, size in zip(names, sizes, strict=True)
    ]


def _find_literally(images: ImageFolder, identity: str, filename: str) -> str | None:
    """Return the image with the document's filename, or with its name and any extension."""
    by_filename = _list_by_filename(identity, filename) if is_safe_name(filename) else iter(())
    by_id = (identity + end for ending in IMAGE_ENDINGS for end in (ending, ending.upper()))
    return next(
        (name for names in (by_filename, by_id) for name in names if images.has(name)), None
    )


def _list_by_filename(identity: str, filename: str) -> Iterator[str]:
    """Yield the filename in the folder of its document, then the filename itself."""
    folder = identity.rpartition("/")[0]
    if folder and "/" not in filename:
        yield f"{folder}/{filename}"
    yield filename
