"""A COCO file made by hand, for tables of fixes: two images of 100 x 100 pixels."""

import json
from pathlib import Path

from boxmend.data.dataset import Dataset
from boxmend.data.formats import load

NAMES = ("van", "truck", "bus")


def dataset_in(folder: Path, *, num: int = 6, crowd: int | None = None) -> Dataset:
    """Annotations 10, 11, .. by turns on both images, van, truck and bus by turns, 20 px wide."""
    document = {
        "images": [{"id": k, "file_name": f"{k}.png", "width": 100, "height": 100} for k in (1, 2)],
        "annotations": [
            {
                "id": 10 + row,
                "image_id": 1 + row % 2,
                "category_id": 1 + row % 3,
                "bbox": [10 * row, 5, 20, 20],
                "iscrowd": int(row == crowd),
            }
            for row in range(num)
        ],
        "categories": [{"id": 1 + k, "name": name} for k, name in enumerate(NAMES)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return load(str(path))
