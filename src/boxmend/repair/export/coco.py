"""Export to COCO: suggestions as annotations with a score, for all tools that read COCO."""

from typing import Any

from boxmend.data.dataset import UNKNOWN, Dataset
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.text import escape_surrogates
from boxmend.data.formats.coco.composing import NOTE_KEY, assign_annotation_ids, to_plain_id
from boxmend.data.formats.coco.source import CocoSource
from boxmend.data.formats.documents import DECIMALS
from boxmend.repair.export.bundle import Bundle, ImageLocations, Item, Task, describe_item

ANNOTATIONS_FILE = "instances_suggested.json"

README = f"""\
`{ANNOTATIONS_FILE}` is a COCO file of the images to review. Annotations have the suggested
label and box, `score` (confidence in the label, if known) and a key `{NOTE_KEY}` with
`status`, `annotation_id`, `old_label`, `old_box` (x1, y1, x2, y2), `doubt`, `suspicion` and
`reason`. Status `other` or `ignored` marks the images' other annotations, which are unchanged.
Annotation and category ids are those of your dataset if it is COCO, else numbers from 1. Image
names are relative to their folder.
"""


def label_names(names: list[str]) -> list[str]:
    """Return the label names: COCO accepts all Unicode."""
    return names


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """Return the file to import."""
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
    """Return the category ids of the dataset's COCO files if they agree, else numbers from 1."""
    categories = {
        (tuple(source.category_ids), source.label_names) if isinstance(source, CocoSource) else ()
        for source in dataset.sources
    }
    if len(categories) == 1 and (only := categories.pop()) and only[1] == dataset.label_names:
        return [_plain(category_id) for category_id in only[0]]
    return list(range(1, len(dataset.label_names) + 1))


def image_id(task: Task, dataset: Dataset) -> int:
    """Return the id of an image if all ids are integers, else its number from 1."""
    ids = dataset.images.ids
    return task.row + 1 if ids.dtype == object else int(ids[task.row])


def item_ids(bundle: Bundle) -> dict[str, int | str]:
    """Return annotation ids by region: those of the dataset, and unused numbers for new ones."""
    used = [_plain(used_id) for used_id in assign_annotation_ids(bundle.dataset)]
    free = max((used_id for used_id in used if isinstance(used_id, int)), default=0) + 1
    ids: dict[str, int | str] = {}
    for item in (item for task in bundle.tasks for item in task.items):
        if item.row != UNKNOWN:
            ids[item.region] = used[item.row]
        else:
            ids[item.region], free = free, free + 1
    return ids


def _annotation(item: Item, bundle: Bundle) -> dict[str, Any]:
    x1, y1, x2, y2 = item.box
    width, height = x2 - x1, y2 - y1
    annotation: dict[str, Any] = {
        "bbox": [round(side, DECIMALS) for side in (x1, y1, width, height)],
        "area": round(width * height, DECIMALS),
        "iscrowd": int(item.row != UNKNOWN and bundle.dataset.is_crowd[item.row]),
    }
    if item.score is not None:
        annotation["score"] = item.score
    return annotation | {NOTE_KEY: describe_item(item, bundle.label_names)}


def _plain(identity: Any) -> int | str:
    plain = to_plain_id(identity)
    return escape_surrogates(plain) if isinstance(plain, str) else plain
