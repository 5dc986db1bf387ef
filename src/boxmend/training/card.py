"""What a model file says about itself, so that it can be used without the data it was trained on.

It stands in the metadata of model.safetensors, as text.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boxmend.data.dataset import Dataset
from boxmend.data.formats.coco.sizes import get_category_ids
from boxmend.detector import DETECTORS
from boxmend.errors import DataError, UsageError
from boxmend.runs.settings import TrainSettings, parse_image_size

LISTS = ("label_names", "category_ids")


@dataclass(frozen=True)
class Card:
    """How to build a detector, what to feed it, and what its labels mean."""

    detector: str
    label_names: tuple[str, ...]
    category_ids: tuple[int | str, ...]
    """COCO's number of each label."""
    image_size: str

    def metadata(self) -> dict[str, str]:
        """Give what a detector does not tell of itself, as texts."""
        return {
            "label_names": json.dumps(self.label_names),
            "category_ids": json.dumps(self.category_ids),
            "image_size": self.image_size,
        }


def card_of(settings: TrainSettings, dataset: Dataset) -> Card:
    """Describe the model of a training."""
    numbers = get_category_ids(dataset)
    return Card(settings.detector, dataset.label_names, numbers, settings.image_size)


def read_card(metadata: Mapping[str, str], source: str) -> Card:
    """Read what a model file says; a DataError names what it leaves open."""
    missing = [name for name in ("detector", "label_names", "image_size") if name not in metadata]
    if missing:
        raise DataError(
            f"{source}: does not tell its {missing[0]}, so it is no model of a run; give the "
            "folder of a run, or its model.safetensors"
        )
    told: dict[str, Any] = {"category_ids": None}
    try:
        told |= {name: json.loads(metadata[name]) for name in LISTS if name in metadata}
        parse_image_size(metadata["image_size"])
    except (ValueError, RecursionError, UsageError) as error:
        raise DataError(f"{source}: what it tells of itself is damaged ({error})") from error
    names = told["label_names"]
    numbers = told["category_ids"] or [label + 1 for label in range(len(names or []))]
    if not _is_list(names, (str,)) or not _is_list(numbers, (int, str)):
        raise DataError(f"{source}: what it tells of its labels is damaged ({names!r:.80})")
    if len(names) != len(numbers) or metadata["detector"] not in DETECTORS:
        raise DataError(
            f"{source}: what it tells of itself is damaged ({len(names)} labels with "
            f"{len(numbers)} category ids of a detector {metadata['detector']!r:.80})"
        )
    return Card(metadata["detector"], tuple(names), tuple(numbers), metadata["image_size"])


def _is_list(values: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(values, list) and all(type(one) in kinds for one in values) and bool(values)
