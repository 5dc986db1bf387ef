"""Read the detections of other packages by their attributes, without importing the packages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from boxmend.auditing.predictions.box_formats import to_corners
from boxmend.auditing.predictions.raw import BoxFormat, Key, KeyCodes, RawDetections
from boxmend.data.arguments import (
    check_length,
    to_array,
    to_boxes,
    to_floats,
    to_identity,
    to_labels,
    to_scores,
)
from boxmend.data.images.reading import read_header_size
from boxmend.data.types import Floats, Rows
from boxmend.errors import DataError, UsageError

COCO_KEYS = '{"image_id", "category_id", "bbox", "score"}'


@dataclass(frozen=True)
class ImageDetections:
    """The detections of one image."""

    image_id: Any
    boxes: Floats  # [m, 4] xyxy
    labels: Sequence[str | int]
    scores: Floats


def read_ultralytics(results: Any) -> dict[str, Any]:
    """Return the columns of the results of Ultralytics, which name images by their paths."""
    return _join(_read_ultralytics(results))


def _read_ultralytics(results: Any) -> Iterator[ImageDetections]:
    entries = [results] if hasattr(results, "boxes") else _iterate("results", results)
    for number, result in enumerate(entries):
        name = f"results[{number}]"
        boxes = _get(result, "boxes", name)
        if boxes is None:
            raise DataError(f"{name}.boxes is None; expected the results of a detection model")
        names = _get(result, "names", name)
        corners, labels, scores = (
            _get(boxes, key, f"{name}.boxes") for key in ("xyxy", "cls", "conf")
        )
        numbers = to_array(f"{name}.boxes.cls", labels)
        label_names = [_name_of(names, int(label), f"{name}.names") for label in numbers.tolist()]
        yield _check(f"{name}.boxes", _get(result, "path", name), (corners, label_names, scores))


def read_supervision(
    detections_by_image: Mapping[Any, Any], label_names: Sequence[str] | None
) -> dict[str, Any]:
    """Return the columns of `supervision.Detections` by image."""
    if not isinstance(detections_by_image, Mapping):
        raise UsageError(
            "detections_by_image must be a dict of supervision.Detections by image id or file "
            f"name, not {type(detections_by_image).__name__}"
        )
    return _join(_read_supervision(detections_by_image, label_names))


def _read_supervision(
    detections_by_image: Mapping[Any, Any], label_names: Sequence[str] | None
) -> Iterator[ImageDetections]:
    for image_id, detections in detections_by_image.items():
        name = f"detections_by_image[{image_id!r}]"
        boxes, scores = _get(detections, "xyxy", name), _get(detections, "confidence", name)
        labels = (getattr(detections, "data", None) or {}).get("class_name")
        if label_names is not None or labels is None:
            labels = _get(detections, "class_id", name)
        for key, values in (("confidence", scores), ("class_id", labels)):
            if values is None and len(boxes):
                raise DataError(f"{name}.{key} is None; an audit needs the label and the score")
        labels = [] if labels is None else to_array(f"{name}.class_id", labels).tolist()
        yield _check(name, image_id, (boxes, labels, [] if scores is None else scores))


def read_torchvision(
    outputs: Mapping[Any, Any] | Sequence[Any],
    image_ids: Sequence[Any] | None,
    label_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Return the columns of the outputs of a torchvision detector; label 0 is the background."""
    if isinstance(outputs, Mapping) and not {"boxes", "labels", "scores"} <= outputs.keys():
        image_ids, outputs = list(outputs), list(outputs.values())
    elif image_ids is None:
        raise UsageError(
            "from_torchvision: a list of outputs does not name its images; give image_ids, or a "
            "dict of outputs by image id"
        )
    entries, ids = _iterate("outputs", outputs), _iterate("image_ids", image_ids)
    if len(entries) != len(ids):
        raise UsageError(f"image_ids has {len(ids):,} entries for {len(entries):,} outputs")
    return _join(_read_torchvision(entries, ids, label_names))


def _read_torchvision(
    entries: Sequence[Any], image_ids: Sequence[Any], label_names: Sequence[str] | None
) -> Iterator[ImageDetections]:
    for number, (image_id, output) in enumerate(zip(image_ids, entries, strict=True)):
        name = f"outputs[{number}]"
        if not isinstance(output, Mapping):
            raise UsageError(f"{name} is a {type(output).__name__}; expected a dict")
        boxes, numbers, scores = (_item(output, key, name) for key in ("boxes", "labels", "scores"))
        column = to_labels(f"{name}.labels", numbers, len(numbers))
        if isinstance(column, list):
            raise DataError(f"{name}.labels are texts; expected numbers from 1")
        labels = column.tolist()
        if min(labels, default=1) < 1:
            row = labels.index(min(labels))
            raise DataError(f"{name}.labels[{row}] is {labels[row]}; labels start from 1")
        named: list[str | int] = [label - 1 for label in labels]
        if label_names is not None:
            named = [_name_of(label_names, label, "label_names") for label in labels]
        yield _check(name, image_id, (boxes, named, scores))


def read_fiftyone(view: Any, field: str) -> dict[str, Any]:
    """Return the columns of the detections in a field of FiftyOne's samples."""
    return _join(_read_fiftyone(view, field))


def _read_fiftyone(view: Any, field: str) -> Iterator[ImageDetections]:
    for number, sample in enumerate(view):
        name = f"view[{number}]"
        path = _get(sample, "filepath", name)
        try:
            value = sample[field]
        except (KeyError, AttributeError) as error:
            raise UsageError(f"{name} has no field {field!r}") from error
        found = [] if value is None else list(_get(value, "detections", f"{name}.{field}"))
        if not found:
            continue
        size = np.tile(_sample_size(sample, path), 2)
        shares = [_get(entry, "bounding_box", f"{name}.{field}") for entry in found]
        numbers = to_floats(f"{name}.{field}", shares).reshape(-1, 4) * size
        labels = [_get(entry, "label", f"{name}.{field}") for entry in found]
        scores = [_get(entry, "confidence", f"{name}.{field}") for entry in found]
        if None in scores:
            raise DataError(
                f"{name}.{field}.detections[{scores.index(None)}].confidence is None; name a field "
                "of predictions, not of annotations"
            )
        corners = to_corners(numbers, BoxFormat("xywh"))
        yield _check(f"{name}.{field}", path, (corners, labels, scores))


def _sample_size(sample: Any, path: str) -> tuple[int, int]:
    """Return width and height of a sample's image, from its metadata or its file."""
    metadata = getattr(sample, "metadata", None)
    width, height = getattr(metadata, "width", None), getattr(metadata, "height", None)
    if width and height:
        return int(width), int(height)
    size = read_header_size(str(path))
    if size is None:
        raise DataError(f"{path}: its size is unknown; call compute_metadata() on the view")
    return size


def read_coco(
    results: Iterable[Mapping[str, Any]],
) -> tuple[tuple[list[Key], Rows], tuple[list[Key], Rows], Floats, Floats]:
    """Return images, classes, boxes and scores of a list of COCO results."""
    images, classes = list[Key](), list[Key]()
    numbers, scores = list[Any](), list[Any]()
    for row, entry in enumerate(_iterate("results", results)):
        name = f"results[{row}]"
        if not isinstance(entry, Mapping):
            raise UsageError(f"{name} is a {type(entry).__name__}; expected {COCO_KEYS}")
        images.append(_coco_key(entry, ("image_id", "file_name"), name))
        classes.append(_coco_key(entry, ("category_id", "category_name"), name))
        box = np.ravel(to_floats(f"{name}.bbox", _item(entry, "bbox", name)))
        if box.shape != (4,):
            raise DataError(f"{name}.bbox is {entry['bbox']!r}; expected x, y, width, height")
        numbers.append(box)
        scores.append(_item(entry, "score", name))
    sides = np.array(numbers, np.float64).reshape(-1, 4)
    corners = to_boxes("results.bbox", to_corners(sides, BoxFormat("xywh")), allow_empty=True)
    image_codes, class_codes = KeyCodes(), KeyCodes()
    image_rows, class_rows = image_codes.encode(images), class_codes.encode(classes)
    checked = to_scores("results.score", scores, len(corners))
    return (image_codes.keys, image_rows), (class_codes.keys, class_rows), corners, checked


def to_corner_boxes(raw: RawDetections) -> RawDetections:
    """Return the detections of a file with boxes as x1, y1, x2, y2, and without class vectors."""
    boxes = to_boxes("bbox", to_corners(raw.boxes, raw.format), allow_empty=True)
    return replace(raw, boxes=boxes, format=BoxFormat("xyxy"), vectors=None, vector_names=())


def _coco_key(entry: Mapping[str, Any], keys: tuple[str, str], name: str) -> Key:
    identity, text = (to_identity(entry.get(key)) for key in keys)
    if identity is None and text is None:
        raise DataError(f"{name} has no {keys[0]}; expected {COCO_KEYS}")
    is_key = isinstance(identity, int | float | str | None) and not isinstance(identity, bool)
    if not is_key or not isinstance(text, str | None):
        raise DataError(f"{name}: {keys[0]} is {entry.get(keys[0])!r}; expected an id or a name")
    return identity, text


def _check(
    name: str, image_id: Any, columns: tuple[Any, Sequence[str | int], Any]
) -> ImageDetections:
    """Return the detections of an image; raise an error that names the image's entry."""
    boxes, labels, scores = columns
    corners = to_boxes(f"{name}.xyxy", boxes, allow_empty=True)
    check_length(f"{name}: the labels", np.empty(len(labels)), len(corners))
    return ImageDetections(
        image_id, corners, labels, to_scores(f"{name}: the scores", scores, len(corners))
    )


def _join(parts: Iterable[ImageDetections]) -> dict[str, Any]:
    """Return the columns of all images, as `Predictions` takes them."""
    listed = list(parts)
    labels = [label for part in listed for label in part.labels]
    is_text = {isinstance(label, str) for label in labels}
    if len(is_text) > 1:
        raise DataError("some images have label names and others numbers; give label_names")
    return {
        "image_ids": [part.image_id for part in listed for _ in part.labels],
        "boxes": np.concatenate([np.zeros((0, 4)), *(part.boxes for part in listed)]),
        "labels": labels,
        "scores": np.concatenate([np.zeros(0), *(part.scores for part in listed)]),
    }


def _get(holder: Any, key: str, name: str) -> Any:
    try:
        return getattr(holder, key)
    except AttributeError as error:
        raise UsageError(f"{name} is a {type(holder).__name__} without {key!r}") from error


def _item(holder: Mapping[str, Any], key: str, name: str) -> Any:
    if key not in holder:
        raise DataError(f"{name} has no {key!r}; its keys are {', '.join(map(str, holder))[:120]}")
    return holder[key]


def _name_of(names: Any, label: int, name: str) -> str:
    """Return a name from a dict or a list of names by number."""
    try:
        if label < 0:
            raise IndexError
        return str(names[label])
    except (KeyError, IndexError, TypeError) as error:
        raise DataError(f"{name} has no name for label {label}") from error


def _iterate(name: str, values: Any) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise UsageError(f"{name} is a {type(values).__name__}; expected a list")
    return list(values)
