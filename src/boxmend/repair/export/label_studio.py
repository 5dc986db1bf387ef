"""Export to Label Studio: tasks with predictions, and their labeling configuration.

Boxes are in percent of the image. The `data` of a task, which Label Studio does not change, has one
record per region, so that `import` can read verdicts.
"""

from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from boxmend import __version__
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Box
from boxmend.repair.export.bundle import IMAGES, Bundle, ImageLocations, Item, Task, describe_item
from boxmend.repair.export.naming import make_distinct

LOCAL_FILES = "/data/local-files/?d="  # on the host of Label Studio, below its document root
CONTROL, OBJECT = "label", "image"  # names of the tags in the configuration
TASKS_FILE, CONFIG_FILE = "tasks.json", "config.xml"
STATUS_NOTES = {"other": "as annotated", "ignored": "as annotated; crowd or difficult"}
_PERCENT_DECIMALS = 6

README = f"""\
1. Start Label Studio so that it can serve your images. Without `--image-prefix`, their addresses
   are `{LOCAL_FILES}PATH`. This needs `LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true`,
   a document root of `/` (the default), and under Settings, Cloud Storage, a source storage of
   type Local files with the folder of the images. Add it without syncing.
2. Create a project. Under Settings, Labeling Interface, Code, paste `{CONFIG_FILE}`.
3. Import `{TASKS_FILE}`. The most suspicious images come first.
4. In Settings, Annotation, enable predictions for pre-labeling tasks, so that annotators start
   from the suggestions.

Each region has its score, and in its details the reason. If the reason says that a box should be
removed, delete the region to agree. Boxes without a score are the other annotations of the image.
`data.boxmend` of a task has the annotation id, old label and old box (pixels) of every region.
Label names have a wide \uff04 instead of the dollar sign, which starts a variable in Label Studio.
"""


def label_names(names: list[str]) -> list[str]:
    """Return the label names as Label Studio accepts them."""
    return make_distinct(names, swaps={"$": "\uff04"})


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """Return the files to import: tasks, the most suspicious first, and the configuration."""
    names = label_names(bundle.label_names)
    tasks = sorted(bundle.tasks, key=lambda task: -task.suspicion)
    return {
        TASKS_FILE: encode_json_by_line([_task(task, bundle, names, places) for task in tasks]),
        CONFIG_FILE: _config(names),
    }


def _config(names: list[str]) -> bytes:
    labels = "".join(f"    <Label value={quoteattr(name)}/>\n" for name in names)
    text = (
        "<View>\n"
        f'  <Image name="{OBJECT}" value="$image" zoom="true" zoomControl="true"/>\n'
        f'  <RectangleLabels name="{CONTROL}" toName="{OBJECT}" canRotate="false">\n'
        f"{labels}"
        "  </RectangleLabels>\n"
        "</View>\n"
    )
    return text.encode()


def _task(task: Task, bundle: Bundle, names: list[str], places: ImageLocations) -> dict[str, Any]:
    items = sorted(task.items, key=lambda item: item.status != "suspect")  # suspects on top
    regions = {item.region: item for item in items}
    prediction: dict[str, Any] = {
        "model_version": f"boxmend {__version__}",
        "result": [_region(task, region, item, names) for region, item in regions.items()],
    }
    scores = [item.score for item in task.items if item.score is not None]
    if scores:
        prediction["score"] = min(scores)
    data = {
        "image": _address(task, places),
        "file_name": task.name,
        "suspects": sum(item.status == "suspect" for item in task.items),
        "suspicion": task.suspicion,
        "boxmend": [
            {"region": region, **describe_item(item, bundle.label_names)}
            for region, item in regions.items()
        ],
    }
    if any(item.fixes for item in task.items):
        data["boxmend_data"] = bundle.data_sha256  # `import` checks it
    return {"data": data, "predictions": [prediction]}


def _region(task: Task, region_id: str, item: Item, names: list[str]) -> dict[str, Any]:
    region: dict[str, Any] = {
        "id": region_id,
        "type": "rectanglelabels",
        "from_name": CONTROL,
        "to_name": OBJECT,
        "original_width": task.width,
        "original_height": task.height,
        "image_rotation": 0,
        "value": _percent(item.box, task) | {"rotation": 0, "rectanglelabels": [names[item.label]]},
        "meta": {"text": [STATUS_NOTES.get(item.status, item.reason)]},
    }
    return region if item.score is None else region | {"score": item.score}


def _percent(box: Box, task: Task) -> dict[str, float]:
    """Return a box in percent of its image, clipped: Label Studio accepts 0 to 100 only."""
    x1, x2 = (min(max(100 * side / task.width, 0.0), 100.0) for side in box[::2])
    y1, y2 = (min(max(100 * side / task.height, 0.0), 100.0) for side in box[1::2])
    sides = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1}
    return {name: round(side, _PERCENT_DECIMALS) for name, side in sides.items()}


def _address(task: Task, places: ImageLocations) -> str:
    if places.image_prefix is not None:
        return places.image_prefix + _quote(task.place.removeprefix(IMAGES))
    return LOCAL_FILES + _quote(places.file(task).lstrip("/"))


def _quote(path: str) -> str:
    """Quote a path for an address; bytes that are not Unicode stay as on disk."""
    try:
        return quote(path.encode("utf-8", "surrogateescape"), safe="/")
    except UnicodeEncodeError:
        return quote(escape_surrogates(path), safe="/")
