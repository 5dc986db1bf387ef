"""Export to FiftyOne: samples with two fields of detections, annotated and suggested.

The layout is a FiftyOneDataset without a version, which every version of FiftyOne reads sample by
sample. Boxes are x, y, width and height as shares of the image.
"""

from typing import Any

from boxmend.data.dataset import UNKNOWN
from boxmend.data.files.json_text import encode_json_by_line
from boxmend.data.files.text import escape_surrogates
from boxmend.data.types import Box
from boxmend.repair.export.bundle import Bundle, ImageLocations, Item, Task

SAMPLES_FILE = "samples.json"
ANNOTATED, MENDED = "annotated", "mended"  # names of the fields
_SHARE_DECIMALS = 8

README = f"""\
```python
import fiftyone as fo

dataset = fo.Dataset.from_dir(
    "PATH/OF/THIS/FOLDER", dataset_type=fo.types.FiftyOneDataset, dynamic=True
)
fo.launch_app(dataset)
```

`{ANNOTATED}` has the original annotations, with `annotation_id` and `status` (`suspect`,
`other`, or `ignored` for crowd and difficult objects). `{MENDED}` has the suggestions for the
suspects: `confidence`, `doubt`, `suspicion`, `reason`, `old_label`, `old_box` (x1, y1, x2, y2 in
pixels) and `annotation_id`. `dynamic=True` declares these attributes, so that the App can filter by
them. For example, show the most suspicious ones as patches:

```python
from fiftyone import ViewField as F

worst = dataset.filter_labels("{MENDED}", F("suspicion") > 0.9).to_patches("{MENDED}")
```
"""


def label_names(names: list[str]) -> list[str]:
    """Return the label names: FiftyOne accepts all Unicode."""
    return names


def documents(bundle: Bundle, places: ImageLocations) -> dict[str, bytes]:
    """Return the file to import."""
    samples = [_sample(task, bundle.label_names, places) for task in bundle.tasks]
    return {SAMPLES_FILE: encode_json_by_line({"samples": samples})}


def _sample(task: Task, names: list[str], places: ImageLocations) -> dict[str, Any]:
    file = task.place if places.images_as != "none" else places.file(task)
    suspects = [item for item in task.items if item.status == "suspect"]
    return {
        "filepath": escape_surrogates(file),  # relative to the folder, or absolute
        "tags": [],
        "metadata": {"_cls": "ImageMetadata", "width": task.width, "height": task.height},
        "suspicion": task.suspicion,
        ANNOTATED: _detections(
            [_annotated_detection(task, item, names) for item in task.items if item.row != UNKNOWN]
        ),
        MENDED: _detections([_suggested_detection(task, item, names) for item in suspects]),
    }


def _detections(detections: list[dict[str, Any]]) -> dict[str, Any]:
    return {"_cls": "Detections", "detections": detections}


def _annotated_detection(task: Task, item: Item, names: list[str]) -> dict[str, Any]:
    return _detection(task, names[item.old_label], item.old_box) | {
        "annotation_id": str(item.annotation_id),
        "status": item.status,
    }


def _suggested_detection(task: Task, item: Item, names: list[str]) -> dict[str, Any]:
    is_annotated = item.row != UNKNOWN
    attributes = {
        "confidence": item.score,
        "doubt": item.doubt,
        "suspicion": item.suspicion,
        "reason": item.reason,
        "old_label": names[item.old_label] if is_annotated else None,
        "old_box": list(item.old_box) if is_annotated else None,
        "annotation_id": str(item.annotation_id) if is_annotated else None,
        "kinds": list(item.kinds) or None,
    }
    known = {key: value for key, value in attributes.items() if value is not None}
    return _detection(task, names[item.label], item.box) | known


def _detection(task: Task, label: str, box: Box) -> dict[str, Any]:
    x1, y1, x2, y2 = box
    corner, size = (
        (x1 / task.width, y1 / task.height),
        ((x2 - x1) / task.width, (y2 - y1) / task.height),
    )
    bounding_box = [round(share, _SHARE_DECIMALS) for share in (*corner, *size)]
    return {"_cls": "Detection", "label": label, "bounding_box": bounding_box}
