"""Findings from the image files: missing, broken, of another size, turned, there twice."""

from collections.abc import Iterator, Mapping

from boxmend.data.checks.places import file_of_image, image_name
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.images.reading import UPRIGHT, Photo

TURNED = range(5, 9)  # EXIF orientations that exchange width and height
VIEWERS_DO = {
    2: "mirror it left to right",
    3: "turn it by 180 degrees",
    4: "mirror it top to bottom",
    5: "turn it by 90 degrees clockwise and mirror it left to right",
    6: "turn it by 90 degrees clockwise",
    7: "turn it by 90 degrees counterclockwise and mirror it left to right",
    8: "turn it by 90 degrees counterclockwise",
}


def photo_findings(dataset: Dataset, photos: Mapping[str, Photo]) -> Iterator[Finding]:
    """Tell what is wrong with the file of each image; `photos` has one for every path."""
    told = {(finding.kind, finding.image, finding.file) for finding in dataset.findings}
    for row, path in enumerate(dataset.images.paths):
        if not path:  # an unsafe name, which the reader told, or no folder of images at all
            continue
        name, file = image_name(dataset, row), file_of_image(dataset, row)
        for kind, message in _faults(dataset, row, photos[path]):
            # A reader may have named the document, the image or the whole source.
            places = (file, path, _source_path(dataset, row))
            if not any((kind, name, place) in told for place in places):
                yield Finding(kind, message, file, name)


def _source_path(dataset: Dataset, row: int) -> str:
    return str(dataset.sources[dataset.images.sources[row]].path) if dataset.sources else ""


def _faults(dataset: Dataset, row: int, photo: Photo) -> Iterator[tuple[str, str]]:
    """The kind and message of each finding about one photo."""
    if photo.problem is not None:
        yield f"{photo.problem}-image", f"{photo.path}: {photo.detail}"
    recorded = (int(dataset.images.widths[row]), int(dataset.images.heights[row]))
    if photo.size is not None and min(recorded) > 0 and recorded != photo.size:
        yield "size-differs", _size_message(recorded, photo.size, photo)
    if photo.orientation != UPRIGHT:
        message = f"{photo.path}: EXIF orientation {photo.orientation}"
        yield "exif-rotation", f"{message}; viewers {VIEWERS_DO[photo.orientation]}"


def _size_message(recorded: tuple[int, int], size: tuple[int, int], photo: Photo) -> str:
    message = f"{photo.path}: recorded as {_by(recorded)}, the file is {_by(size)}"
    if recorded == size[::-1] and photo.orientation in TURNED:
        message += f"; annotated as viewers turn it (EXIF orientation {photo.orientation})"
    elif recorded == size[::-1]:
        message += "; width and height are exchanged"
    return message


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def duplicate_images(dataset: Dataset, photos: Mapping[str, Photo]) -> Iterator[Finding]:
    """Tell images whose file has the same bytes as that of an earlier one."""
    first_with: dict[str, int] = {}
    for row, path in enumerate(dataset.images.paths):
        photo = photos.get(path)
        if photo is None or photo.digest is None or photo.problem == "unreadable":
            continue
        first = first_with.setdefault(photo.digest, row)
        if first != row:
            message = f"{path}: {_same_content(dataset, first, row)}"
            name = image_name(dataset, row)
            yield Finding("duplicate-image", message, file_of_image(dataset, row), name)


def _same_content(dataset: Dataset, first: int, row: int) -> str:
    images = dataset.images
    message = f"same content as {image_name(dataset, first)}"
    if images.paths[first] != images.paths[row]:
        message += f" ({images.paths[first]})"
    here, there = images.splits[row], images.splits[first]
    if here != there:
        message += f", across splits: this one is in {here!r}, that one in {there!r}"
    else:
        message += f", both in split {here!r}"
    if images.sources[first] != images.sources[row]:
        message += f", of another source: {file_of_image(dataset, first)}"
    return message
