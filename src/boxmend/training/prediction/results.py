"""The detections of a model as COCO results, in memory and as a file."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from boxmend.data.dataset import Images
from boxmend.data.describing import describe
from boxmend.data.detections import Detections
from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.json_text import encode_json
from boxmend.data.files.temporary import remove_leftovers
from boxmend.errors import OutputError
from boxmend.training.card import ModelCard

BOX_DIGITS = 3  # a thousandth of a pixel
SCORE_DIGITS = 6


@dataclass(frozen=True, repr=False)
class ModelPredictions:
    """The detections of a model in images."""

    __repr__ = describe

    images: Images
    card: ModelCard
    detections: Detections = field(repr=False)
    """By image, then by falling score; rows of `images`, labels of `card`, boxes in pixels."""
    skipped: list[str]
    """A message for each image that cannot be read."""

    def __len__(self) -> int:
        return len(self.detections.labels)

    @property
    def num_images(self) -> int:
        """Return the number of images that were read."""
        return len(self.images) - len(self.skipped)

    def results(self) -> Iterator[dict[str, Any]]:
        """Yield COCO results, with file_name and category_name in addition."""
        ids, names, card = self.images.ids.tolist(), self.images.file_names, self.card
        columns = (
            self.detections.image_rows.tolist(),
            self.detections.labels.tolist(),
            self.detections.scores.tolist(),
            self.detections.boxes.tolist(),
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
        """Write the results as a JSON list, one per line; the file must not exist."""
        path = Path(out)
        ensure_new(path)
        with open_atomic(path, overwrite=False) as file:
            separator = b"[\n"
            for result in self.results():
                file.write(separator + encode_json(result))
                separator = b",\n"
            file.write(b"\n]\n" if len(self) else b"[]\n")


def ensure_new(out: Path) -> None:
    """Raise an OutputError if the file exists, or if its folder does not."""
    remove_leftovers(out.parent)
    if os.path.lexists(out):
        raise OutputError(f"{out}: exists already and is not overwritten; name a new file")
    if not os.path.isdir(out.parent):
        raise OutputError(f"{out}: its folder does not exist; create it first")
