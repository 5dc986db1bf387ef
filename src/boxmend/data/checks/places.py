"""Where a finding is, in words: the document, the image, the annotation's id, the box."""

from collections.abc import Iterable

from boxmend.data.dataset import UNKNOWN, Dataset


def file_of_annotation(dataset: Dataset, row: int) -> str:
    """The document that holds the annotation at `row`; empty where the dataset has none."""
    return str(dataset.document(row)) if dataset.sources else ""


def file_of_image(dataset: Dataset, row: int) -> str:
    """The document that holds the annotations of the image at `row`."""
    if not dataset.sources:
        return ""
    source = dataset.sources[dataset.images.sources[row]]
    return str(source.document(int(dataset.images.rows[row])))


def image_name(dataset: Dataset, row: int) -> str | None:
    """The file name of an image, or its id where the name was no safe one."""
    if row == UNKNOWN:
        return None
    return dataset.images.file_names[row] or str(dataset.images.ids[row])


def annotation_id(dataset: Dataset, row: int) -> int | str:
    """The id of the annotation at `row`, as a plain Python value."""
    identity: int | str = dataset.annotation_ids[row : row + 1].tolist()[0]
    return identity


def label_name(dataset: Dataset, row: int) -> str:
    """The name of an annotation's label, quoted."""
    label = int(dataset.labels[row])
    return "an unknown label" if label == UNKNOWN else repr(dataset.label_names[label])


def box_text(box: Iterable[float]) -> str:
    """A box as its four sides, xyxy in pixels, without the noise of the last digits."""
    return f"({', '.join(f'{side:.10g}' for side in box)})"
