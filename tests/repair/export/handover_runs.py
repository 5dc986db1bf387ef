"""Finished runs made by hand on a COCO file made by hand: two images of 200 x 100 pixels."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log, nan
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import fingerprint
from boxmend.data.formats import load
from boxmend.repair.export import ExportOptions, export
from boxmend.runs import folder as runs
from boxmend.runs.ledger import Entries, Judgement, Ledger

Box = tuple[float, float, float, float]
NAMES = ("van", "truck", "bus")
CATEGORY_IDS = (3, 5, 9)


@dataclass(frozen=True)
class Visit:
    """One row of a ledger; label and box are the annotated ones where none are given."""

    row: int
    verdict: Judgement = Judgement.KEPT
    loss: float = 0.0
    label: int | None = None
    confidence: float = nan
    box: Box | None = None


# Doubts are 1 - exp(-loss): 3/4 for log 4, 9/10 for log 10, 0 for 0.
VISITS = [
    Visit(0, Judgement.RELABELLED, log(4), label=1, confidence=0.875),
    Visit(1, Judgement.KEPT, 0.0, confidence=0.5, box=(100, 20, 150, 60)),  # IoU 1600 / 2000
    Visit(3, Judgement.DISCARDED, log(10), confidence=0.25),
    Visit(4, Judgement.KEPT, 0.0, confidence=1.0),
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


def entries_of(dataset: Dataset, visits: Sequence[Visit]) -> Entries:
    """The rows of a ledger of one epoch."""
    rows = np.array([visit.row for visit in visits], np.int64)
    noisy = dataset.boxes[rows].astype(np.float32).reshape(-1, 4)
    final = [noisy[k] if visit.box is None else visit.box for k, visit in enumerate(visits)]
    old = dataset.labels[rows]
    new = [old[k] if visit.label is None else visit.label for k, visit in enumerate(visits)]
    n = len(visits)
    return Entries(
        epochs=np.zeros(n, np.int64),
        steps=np.zeros(n, np.int64),
        annotation_ids=dataset.annotation_ids[rows],
        image_ids=dataset.image_ids[rows],
        losses=np.array([visit.loss for visit in visits], np.float32),
        thresholds=np.ones(n, np.float32),
        verdicts=np.array([visit.verdict for visit in visits], np.int8),
        num_candidates=np.ones(n, np.int64),
        old_labels=old,
        new_labels=np.array(new, np.int64),
        confidences=np.array([visit.confidence for visit in visits], np.float32),
        noisy_boxes=noisy,
        matched_boxes=noisy,
        final_boxes=np.array(final, np.float32).reshape(-1, 4),
        is_kept=np.ones(n, np.bool_),
    )


def run_on(dataset: Dataset, out: Path, addresses: list[str], visits: Sequence[Visit]) -> Path:
    """The folder of a finished run with these visits."""
    facts = {"data": {"sha256": fingerprint(dataset)}, "addresses": addresses}
    run = runs.create(out, {"warm_up": 0.0}, facts)
    book = Ledger.create(out)
    book.append(entries_of(dataset, visits))
    book.flush()
    run.finish({"steps": 1, "ledger_rows": book.num_rows})
    return out


def finished_run(
    folder: Path,
    drawn: Drawn | None = None,
    visits: Sequence[Visit] = VISITS,
    *,
    with_images: bool = True,
) -> Path:
    """A run in `folder`/run on a dataset in `folder`/data."""
    (folder / "data").mkdir(parents=True)
    address = (drawn or Drawn()).write(folder / "data", with_images=with_images)
    return run_on(load(address), folder / "run", [address], visits)


def exported(folder: Path, to: str, drawn: Drawn | None = None, **options: Any) -> Path:
    """What `export` writes of the run above, all changes."""
    run = finished_run(folder, drawn)
    return export(run, folder / "out", to, options=ExportOptions(**options)).out


def json_of(path: Path) -> Any:
    """A file's content, read by Python's own parser."""
    return json.loads(path.read_bytes())
