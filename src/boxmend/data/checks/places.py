"""Describe where a finding is: the document, the image, the annotation's id, and the box."""

from collections.abc import Iterable

from boxmend.data.dataset import UNKNOWN, Dataset


def file_of_annotation(dataset: Dataset, row: int) -> str:
    """Return the path of the document with the annotation at `row`; empty without a source."""
    return str(dataset.document(row)) if dataset.sources else ""


def file_of_image(dataset: Dataset, row: int) -> str:
    """Return the path of the document with the annotations of the image at `row`."""
    if not dataset.sources:
        return ""
    source = dataset.sources[dataset.images.sources[row]]
    return str(source.document(int(dataset.images.rows[row])))


def image_name(dataset: Dataset, row: int) -> str | None:
    """Return the file name of an image, or its id if the name was unsafe."""
    if row == UNKNOWN:
        return None
    return dataset.images.file_names[row] or str(dataset.images.ids[row])


def annotation_id(dataset: Dataset, row: int) -> int | str:
    """Return the id of the annotation at `row` as a plain Python value."""
    identity: int | str = dataset.annotation_ids[row : row + 1].tolist()[0]
    return identity


def label_name(dataset: Dataset, row: int) -> str:
    """Return the name of an annotation's label, in quotes."""
    label = int(dataset.labels[row])
    return "an unknown label" if label == UNKNOWN else repr(dataset.label_names[label])


def box_text(box: Iterable[float]) -> str:
    """Return a box as text, xyxy in pixels, without rounding noise in the last digits."""
    return f"({', '.join(f'{side:.10g}' for side in box)})"
