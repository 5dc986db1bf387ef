"""Label Studio: tasks with predictions, and the labeling configuration they belong to.

A region's box is in percent of its image. What is needed to read verdicts back stands in the
`data` of the task, which Label Studio keeps as it is: one record per region, found by its id.
"""

from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from boxmend import __version__
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Box
from boxmend.repair.export.bundle import IMAGES, Bundle, ImageLocations, Item, Task, record
from boxmend.repair.export.naming import distinct

LOCAL_FILES = "/data/local-files/?d="  # from Label Studio's own host, below its document root
CONTROL, OBJECT = "label", "image"  # names of the tags in the configuration
TASKS_FILE, CONFIG_FILE = "tasks.json", "config.xml"
TOLD = {"other": "as annotated", "ignored": "as annotated; crowd or difficult"}
_PERCENT_DECIMALS = 6

README = f"""\
1. Start Label Studio so that it may serve your images. Unless `--image-prefix` was given, they are
   addressed by `{LOCAL_FILES}PATH`, which needs `LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true`,
   a document root of `/` (the default), and under Settings, Cloud Storage, a source storage of
   type Local files with the folder of the images. Add it without syncing.
2. Create a project. Under Settings, Labeling Interface, Code, paste `{CONFIG_FILE}`.
3. Import `{TASKS_FILE}`. The most suspicious images come first.
4. In Settings, Annotation, choose predictions to pre-label tasks with, so that annotators start
   from the suggestions.

Each region has its score, and in its details why it is there. What is suggested to be removed says
so there: delete the region to agree. Boxes without a score are the other
annotations of the image. `data.boxmend` of a task has every region's annotation id, old label and
old box (pixels). Label names are written with a wide \uff04 in place of the dollar sign, which
Label Studio would take for a variable.
"""


def label_names(names: list[str]) -> list[str]:
    """Label names as Label Studio can have them."""
    return distinct(names, swaps={"$": "\uff04"})


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """The files to import: tasks, the most suspicious first, and the configuration."""
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
        "result": [_region(task, identity, item, names) for identity, item in regions.items()],
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
            {"region": identity, **record(item, bundle.label_names)}
            for identity, item in regions.items()
        ],
    }
    if any(item.fixes for item in task.items):
        data["boxmend_data"] = bundle.data_sha256  # verdicts are read back by it
    return {"data": data, "predictions": [prediction]}


def _region(task: Task, identity: str, item: Item, names: list[str]) -> dict[str, Any]:
    region: dict[str, Any] = {
        "id": identity,
        "type": "rectanglelabels",
        "from_name": CONTROL,
        "to_name": OBJECT,
        "original_width": task.width,
        "original_height": task.height,
        "image_rotation": 0,
        "value": _percent(item.box, task) | {"rotation": 0, "rectanglelabels": [names[item.label]]},
        "meta": {"text": [TOLD.get(item.status, item.reason)]},
    }
    return region if item.score is None else region | {"score": item.score}


def _percent(box: Box, task: Task) -> dict[str, float]:
    """A box in percent of its image, cut at the border: Label Studio takes 0 to 100 only."""
    x1, x2 = (min(max(100 * side / task.width, 0.0), 100.0) for side in box[::2])
    y1, y2 = (min(max(100 * side / task.height, 0.0), 100.0) for side in box[1::2])
    sides = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1}
    return {name: round(side, _PERCENT_DECIMALS) for name, side in sides.items()}


def _address(task: Task, places: ImageLocations) -> str:
    if places.image_prefix is not None:
        return places.image_prefix + _quoted(task.place.removeprefix(IMAGES))
    return LOCAL_FILES + _quoted(places.file(task).lstrip("/"))


def _quoted(path: str) -> str:
    """A path as a part of an address; bytes that are no Unicode come out as they are on disk."""
    try:
        return quote(path.encode("utf-8", "surrogateescape"), safe="/")
    except UnicodeEncodeError:
        return quote(escape_surrogates(path), safe="/")
