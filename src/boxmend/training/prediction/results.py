"""What was found, as COCO's results have it, and one file of it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boxmend.data.dataset import Images
from boxmend.data.detections import Detections
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.temporary import remove_leftovers
from boxmend.errors import OutputError
from boxmend.training.card import Card

BOX_DIGITS = 3  # a thousandth of a pixel
SCORE_DIGITS = 6


@dataclass(frozen=True)
class ModelPredictions:
    """What a model found in images."""

    images: Images
    card: Card
    found: Detections = field(repr=False)
    """Image by image, the best first; rows of `images`, labels of `card`, boxes in pixels."""
    skipped: list[str]
    """A message for each image that cannot be read."""

    def __len__(self) -> int:
        return len(self.found.labels)

    @property
    def num_images(self) -> int:
        """How many images were looked at."""
        return len(self.images) - len(self.skipped)

    def results(self) -> Iterator[dict[str, Any]]:
        """Yield COCO's results, with file_name and category_name beside the numbers."""
        ids, names, card = self.images.ids.tolist(), self.images.file_names, self.card
        columns = (
            self.found.image_rows.tolist(),
            self.found.labels.tolist(),
            self.found.scores.tolist(),
            self.found.boxes.tolist(),
        )
        for row, label, score, (x1, y1, x2, y2) in zip(*columns, strict=True):
            yield {
                "image_id": ids[row],
                "category_id": card.category_ids[label],
                "bbox": [round(value, BOX_DIGITS) for value in (x1, y1, x2 - x1, y2 - y1)],
                "score": round(score, SCORE_DIGITS),
                "file_name": names[row],
                "category_name": card.label_names[label],
            }

    def save(self, out: str | Path) -> None:
        """Write the results as a JSON list, one to a line; the file must not be there."""
        path = Path(out)
        ensure_new(path)
        with open_atomic(path, overwrite=False) as file:
            before = b"[\n"
            for result in self.results():
                file.write(before + encode_json(result))
                before = b",\n"
            file.write(b"\n]\n" if len(self) else b"[]\n")


def ensure_new(out: Path) -> None:
    """Raise where something is in the place of a file, or where its folder is not there."""
    remove_leftovers(out.parent)
    if os.path.lexists(out):
        raise OutputError(f"{out}: is there already, and nothing is overwritten; name a new file")
    if not os.path.isdir(out.parent):
        raise OutputError(f"{out}: its folder is not there; make it first")
