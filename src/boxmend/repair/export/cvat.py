"""Export to CVAT: annotations in its XML ("CVAT for images 1.1"), and the labels of the task.

Attributes of a box have its reason and its id. CVAT keeps the attributes that its labels declare,
so `labels.json` is written, too. Its importer replaces all annotations of a task, so all
annotations of an image are exported.
"""

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from boxmend.data.dataset import UNKNOWN
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.formats.documents import format_number
from boxmend.data.types import Box
from boxmend.repair.export.bundle import STATUSES, Bundle, ImageLocations, Item
from boxmend.repair.export.naming import escape_for_one_line, make_distinct

ANNOTATIONS_FILE, LABELS_FILE = "annotations.xml", "labels.json"
MAX_NAME_CHARACTERS = 64  # CVAT refuses longer label names
MAX_VALUE_CHARACTERS = 4096  # CVAT cuts longer attributes
STATUS = "status"
REGION = "region"  # the id of an annotation
TEXTS = ("annotation_id", "score", "doubt", "old_label", "old_box", "reason", REGION)

README = f"""\
1. Create a task. Under Constructor, Raw, paste `{LABELS_FILE}`. CVAT drops attributes that the
   labels do not declare.
2. Select the images: exactly those that `{ANNOTATIONS_FILE}` names. Names that hold a folder
   (`train/1.jpg`) match only if the images come as a zip file, or from a share, with these folders.
   If a name does not match, CVAT uses the number of the frame, so check one image.
3. Open the task, Actions, Upload annotations, "CVAT 1.1", and choose `{ANNOTATIONS_FILE}`. This
   replaces the annotations of the task.
4. While annotating, a filter on the attribute `{STATUS}` shows only the suspects.

Attributes: `{STATUS}` is `suspect`, `other` (unchanged) or `ignored` (crowd or difficult);
`annotation_id`, `score` (confidence in the suggested label), `doubt` (in the old one), `old_label`,
`old_box` (x1 y1 x2 y2 in pixels), `reason`, and `{REGION}`, which `boxmend import` needs. If the
reason says that a box should be removed, delete it to agree. Label names are cut to
{MAX_NAME_CHARACTERS} characters.
"""


def label_names(names: list[str]) -> list[str]:
    """Return the label names as CVAT accepts them."""
    return make_distinct(names, longest=MAX_NAME_CHARACTERS)


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """Return the files to import: annotations, and the labels of the task."""
    names = label_names(bundle.label_names)
    return {
        ANNOTATIONS_FILE: "".join(_xml(bundle, names)).encode(),
        LABELS_FILE: encode_json_by_line([_label(name) for name in names]),
    }


def _label(name: str) -> dict[str, Any]:
    return {"name": name, "type": "rectangle", "attributes": _attribute_specs()}


def _attribute_specs() -> list[dict[str, Any]]:
    status = {
        "name": STATUS,
        "input_type": "select",
        "mutable": False,
        "default_value": "other",
        "values": list(STATUSES),
    }
    texts = [
        {"name": name, "input_type": "text", "mutable": False, "default_value": "", "values": [""]}
        for name in TEXTS
    ]
    return [status, *texts]


def _xml(bundle: Bundle, names: list[str]) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
    yield from _meta(names, len(bundle.tasks))
    # In the order of frames in a CVAT task, so that frame numbers agree, too.
    for frame, task in enumerate(sorted(bundle.tasks, key=lambda task: task.name)):
        size = f'width="{task.width}" height="{task.height}"'
        yield f'  <image id="{frame}" name={quoteattr(escape_for_one_line(task.name))} {size}>\n'
        for item in task.items:
            yield from _box(item, bundle, names)
        yield "  </image>\n"
    yield "</annotations>\n"


def _meta(names: list[str], num_images: int) -> Iterator[str]:
    """Yield the task description of CVAT's exports; other readers need its labels."""
    yield "  <meta>\n    <task>\n      <name>boxmend</name>\n"
    yield f"      <size>{num_images}</size>\n      <mode>annotation</mode>\n      <labels>\n"
    specs = "".join(
        f"<attribute><name>{spec['name']}</name><mutable>False</mutable>"
        f"<input_type>{spec['input_type']}</input_type>"
        f"<default_value>{spec['default_value']}</default_value>"
        f"<values>{'&#10;'.join(spec['values'])}</values></attribute>"
        for spec in _attribute_specs()
    )
    for name in names:
        yield f"        <label><name>{escape(name)}</name><type>rectangle</type>"
        yield f"<attributes>{specs}</attributes></label>\n"
    yield "      </labels>\n    </task>\n  </meta>\n"


def _box(item: Item, bundle: Bundle, names: list[str]) -> Iterator[str]:
    sides = zip(("xtl", "ytl", "xbr", "ybr"), item.box, strict=True)
    corners = " ".join(f'{name}="{format_number(side)}"' for name, side in sides)
    label = quoteattr(names[item.label])
    source = "auto" if item.status == "suspect" else "manual"
    yield f'    <box label={label} source="{source}" occluded="0" {corners} z_order="0">\n'
    for name, value in _attributes(item, bundle).items():
        text = escape(escape_for_one_line(value)[:MAX_VALUE_CHARACTERS])
        yield f'      <attribute name="{name}">{text}</attribute>\n'
    yield "    </box>\n"


def _attributes(item: Item, bundle: Bundle) -> dict[str, str]:
    """Return the attributes of an annotation; those that do not apply are empty."""
    is_suspect = item.status == "suspect" and item.row != UNKNOWN
    return {
        STATUS: item.status,
        "annotation_id": "" if item.row == UNKNOWN else str(item.annotation_id),
        "score": "" if item.score is None else format_number(item.score),
        "doubt": "" if item.doubt is None else format_number(item.doubt),
        "old_label": bundle.label_names[item.old_label] if is_suspect else "",
        "old_box": _join_sides(item.old_box) if is_suspect else "",
        "reason": item.reason,
        REGION: item.region,
    }


def _join_sides(box: Box) -> str:
    return " ".join(map(format_number, box))
