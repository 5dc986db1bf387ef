"""Finished runs made by hand on a COCO file made by hand: two images of 200 x 100 pixels."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

from PIL import Image

from boxmend.repair.export import ExportOptions, export
from boxmend.runs.judgement import Judgement
from tests.fabricated_runs import (
    DISCARDED,
    KEPT,
    NAMES,
    RELABELLED,
    Visit,
    finished_run,
)

CATEGORY_IDS = (3, 5, 9)


def seen(row: int, verdict: Judgement = KEPT, loss: float = 0.0, **others: Any) -> Visit:
    """A visit in the only epoch; `others` are fields of `Visit`."""
    return Visit(0, row, verdict, loss=loss, threshold=1.0, num_candidates=1, **others)


# Doubts are 1 - exp(-loss): 3/4 for log 4, 9/10 for log 10, 0 for 0.
VISITS = [
    seen(0, RELABELLED, log(4), label=1, confidence=0.875),
    seen(1, KEPT, 0.0, confidence=0.5, box=(100, 20, 150, 60)),  # IoU 1600 / 2000
    seen(3, DISCARDED, log(10), confidence=0.25),
    seen(4, KEPT, 0.0, confidence=1.0),
]


@dataclass
class Drawn:
    """A COCO file: six annotations on two images, the third a crowd."""

    names: Sequence[str] = NAMES
    file_names: Sequence[str] = ("a.png", "b.png")
    boxes: list[list[float]] = field(
        default_factory=lambda: [
            [20, 10, 60, 40],  # van, which a run calls a truck
            [100, 20, 40, 40],  # truck, of which the box moves
            [0, 0, 200, 100],  # bus, a crowd
            [10, 50, 20, 40],  # van, of which a run is unsure
            [50, 50, 50, 25],  # truck, fine
            [150, 50, 50, 50],  # bus, never visited
        ]
    )
    size: tuple[int, int] | None = (200, 100)

    def document(self) -> dict[str, Any]:
        size = dict(zip(("width", "height"), self.size, strict=True)) if self.size else {}
        return {
            "images": [
                {"id": k, "file_name": name, **size} for k, name in enumerate(self.file_names, 1)
            ],
            "annotations": [
                {
                    "id": 10 + row,
                    "image_id": 1 if row < 3 else 2,
                    "category_id": CATEGORY_IDS[row % 3],
                    "bbox": box,
                    "iscrowd": int(row == 2),
                }
                for row, box in enumerate(self.boxes)
            ],
            "categories": [
                {"id": identity, "name": name}
                for identity, name in zip(CATEGORY_IDS, self.names, strict=True)
            ],
        }

    def write(self, folder: Path, *, with_images: bool = True) -> str:
        """The address of the file, with the images where they are looked for."""
        for name in self.file_names:
            path = folder / "images" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if with_images:
                Image.new("L", (200, 100), 50).save(path, "PNG")
        path = folder / "instances_train.json"
        path.write_text(json.dumps(self.document()))
        return str(path)


def drawn_run(
    folder: Path,
    drawn: Drawn | None = None,
    visits: Sequence[Visit] = VISITS,
    *,
    with_images: bool = True,
) -> Path:
    """A run in `folder`/run on a dataset in `folder`/data."""
    (folder / "data").mkdir(parents=True)
    address = (drawn or Drawn()).write(folder / "data", with_images=with_images)
    return finished_run(folder / "run", address, visits)


def exported(folder: Path, to: str, drawn: Drawn | None = None, **options: Any) -> Path:
    """What `export` writes of the run above, all changes."""
    run = drawn_run(folder, drawn)
    return export(run, folder / "out", to, options=ExportOptions(**options)).out


def json_of(path: Path) -> Any:
    """A file's content, read by Python's own parser."""
    return json.loads(path.read_bytes())
