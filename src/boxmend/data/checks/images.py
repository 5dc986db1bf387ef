"""Check the image files of a dataset: missing, broken, of another size, rotated, or duplicated."""

from collections.abc import Iterator, Mapping

from boxmend.data.checks.places import file_of_image, image_name
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.images.reading import UPRIGHT, InspectedImage

SIDEWAYS_ORIENTATIONS = range(5, 9)  # EXIF orientations that swap width and height
VIEWER_ACTIONS = {
    2: "mirror it left to right",
    3: "turn it by 180 degrees",
    4: "mirror it top to bottom",
    5: "turn it by 90 degrees clockwise and mirror it left to right",
    6: "turn it by 90 degrees clockwise",
    7: "turn it by 90 degrees counterclockwise and mirror it left to right",
    8: "turn it by 90 degrees counterclockwise",
}


def check_image_files(
    dataset: Dataset, inspected: Mapping[str, InspectedImage]
) -> Iterator[Finding]:
    """Yield the faults of each image's file; `inspected` has an entry for every path."""
    reported = {(finding.kind, finding.image, finding.file) for finding in dataset.findings}
    for row, path in enumerate(dataset.images.paths):
        if not path:  # an unsafe name, which the reader reported, or no image folder at all
            continue
        name, file = image_name(dataset, row), file_of_image(dataset, row)
        for kind, message in _describe_faults(dataset, row, inspected[path]):
            # The reader's finding may name the document, the image or the whole source.
            places = (file, path, _source_path(dataset, row))
            if not any((kind, name, place) in reported for place in places):
                yield Finding(kind, message, file, name)


def _source_path(dataset: Dataset, row: int) -> str:
    return str(dataset.sources[dataset.images.sources[row]].path) if dataset.sources else ""


def _describe_faults(
    dataset: Dataset, row: int, inspected: InspectedImage
) -> Iterator[tuple[str, str]]:
    """Yield the kind and message of each fault of one image file."""
    if inspected.problem is not None:
        yield f"{inspected.problem}-image", f"{inspected.path}: {inspected.detail}"
    recorded = (int(dataset.images.widths[row]), int(dataset.images.heights[row]))
    if inspected.size is not None and min(recorded) > 0 and recorded != inspected.size:
        yield "size-differs", _describe_sizes(recorded, inspected.size, inspected)
    if inspected.orientation != UPRIGHT:
        message = f"{inspected.path}: EXIF orientation {inspected.orientation}"
        yield "exif-rotation", f"{message}; viewers {VIEWER_ACTIONS[inspected.orientation]}"


def _describe_sizes(
    recorded: tuple[int, int], size: tuple[int, int], inspected: InspectedImage
) -> str:
    message = (
        f"{inspected.path}: the recorded size is {_format_size(recorded)}, "
        f"the file has {_format_size(size)}"
    )
    if recorded == size[::-1] and inspected.orientation in SIDEWAYS_ORIENTATIONS:
        orientation = inspected.orientation
        message += f"; annotated as viewers rotate it (EXIF orientation {orientation})"
    elif recorded == size[::-1]:
        message += "; width and height are swapped"
    return message


def _format_size(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"


def check_duplicate_images(
    dataset: Dataset, inspected: Mapping[str, InspectedImage]
) -> Iterator[Finding]:
    """Yield a finding for each image whose file has the same bytes as that of an earlier image."""
    first_rows: dict[str, int] = {}
    for row, path in enumerate(dataset.images.paths):
        image = inspected.get(path)
        if image is None or image.digest is None or image.problem == "unreadable":
            continue
        first = first_rows.setdefault(image.digest, row)
        if first != row:
            message = f"{path}: {_describe_duplicate(dataset, first, row)}"
            name = image_name(dataset, row)
            yield Finding("duplicate-image", message, file_of_image(dataset, row), name)


def _describe_duplicate(dataset: Dataset, first: int, row: int) -> str:
    images = dataset.images
    message = f"same content as {image_name(dataset, first)}"
    if images.paths[first] != images.paths[row]:
        message += f" ({images.paths[first]})"
    split, first_split = images.splits[row], images.splits[first]
    if split != first_split:
        message += f", across splits: this image is in {split!r}, the other in {first_split!r}"
    else:
        message += f", both in split {split!r}"
    if images.sources[first] != images.sources[row]:
        message += f", from another source: {file_of_image(dataset, first)}"
    return message
