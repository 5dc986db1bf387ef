"""COCO: the suggestions as annotations with a score, for all tools that read COCO."""

from typing import Any

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.text import escape_surrogates
from boxmend.data.formats.coco.composing import NOTE_KEY, assign_annotation_ids, to_plain_id
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import DECIMALS
from boxmend.repair.export.bundle import Bundle, ImageLocations, Item, Task, record

ANNOTATIONS_FILE = "instances_suggested.json"

README = f"""\
`{ANNOTATIONS_FILE}` is a COCO file of the images to look at. Annotations have the suggested
label and box, `score` (confidence in the label, where there is one) and a key `{NOTE_KEY}` with
`status`, `annotation_id`, `old_label`, `old_box` (x1, y1, x2, y2), `doubt`, `suspicion` and
`reason`. Those of status `other` or `ignored` are the images' other annotations, as they were.
Annotation and category ids are those of your dataset where it is COCO, else numbers from 1. Images
are named relative to their folder.
"""


def label_names(names: list[str]) -> list[str]:
    """Label names as COCO can have them: all that is Unicode."""
    return names


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """The file to import."""
    dataset = bundle.dataset
    categories, ids = category_ids(dataset), item_ids(bundle)
    document = {
        "images": [
            {"id": image_id(task, dataset), "file_name": task.name}
            | {"width": task.width, "height": task.height}
            for task in bundle.tasks
        ],
        "annotations": [
            {"id": ids[item.region], "image_id": image_id(task, dataset)}
            | {"category_id": categories[item.label]}
            | _annotation(item, bundle)
            for task in bundle.tasks
            for item in task.items
        ],
        "categories": [
            {"id": identity, "name": name}
            for identity, name in zip(categories, bundle.label_names, strict=True)
        ],
    }
    return {ANNOTATIONS_FILE: encode_json_by_line(document)}


def category_ids(dataset: Dataset) -> list[int | str]:
    """Ids of the labels: those of the dataset's own files where they are COCO and agree."""
    told = {
        (tuple(source.category_ids), source.label_names) if isinstance(source, CocoSource) else ()
        for source in dataset.sources
    }
    if len(told) == 1 and (one := told.pop()) and one[1] == dataset.label_names:
        return [_plain(identity) for identity in one[0]]
    return list(range(1, len(dataset.label_names) + 1))


def image_id(task: Task, dataset: Dataset) -> int:
    """The id of an image: its own where all are integers, else its number from 1."""
    own = dataset.images.ids
    return task.row + 1 if own.dtype == object else int(own[task.row])


def item_ids(bundle: Bundle) -> dict[str, int | str]:
    """Ids of the annotations by region: their own, and numbers not in use for missing ones."""
    own = [_plain(one) for one in assign_annotation_ids(bundle.dataset)]
    free = max((one for one in own if isinstance(one, int)), default=0) + 1
    ids: dict[str, int | str] = {}
    for item in (item for task in bundle.tasks for item in task.items):
        if item.row != UNKNOWN:
            ids[item.region] = own[item.row]
        else:
            ids[item.region], free = free, free + 1
    return ids


def _annotation(item: Item, bundle: Bundle) -> dict[str, Any]:
    x1, y1, x2, y2 = item.box
    width, height = x2 - x1, y2 - y1
    told: dict[str, Any] = {
        "bbox": [round(side, DECIMALS) for side in (x1, y1, width, height)],
        "area": round(width * height, DECIMALS),
        "iscrowd": int(item.row != UNKNOWN and bundle.dataset.is_crowd[item.row]),
    }
    if item.score is not None:
        told["score"] = item.score
    return told | {NOTE_KEY: record(item, bundle.label_names)}


def _plain(identity: Any) -> int | str:
    plain = to_plain_id(identity)
    return escape_surrogates(plain) if isinstance(plain, str) else plain
