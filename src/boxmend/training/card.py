"""The card of a model file: what prediction needs besides the weights.

It is stored as text in the metadata of model.safetensors.
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
class ModelCard:
    """The detector, its image size, and the meaning of its labels."""

    detector: str
    label_names: tuple[str, ...]
    category_ids: tuple[int | str, ...]
    """The COCO category id of each label."""
    image_size: str

    def metadata(self) -> dict[str, str]:
        """Return the fields that the detector does not store itself, as texts."""
        return {
            "label_names": json.dumps(self.label_names),
            "category_ids": json.dumps(self.category_ids),
            "image_size": self.image_size,
        }


def make_card(settings: TrainSettings, dataset: Dataset) -> ModelCard:
    """Return the card of the model that a training makes."""
    category_ids = get_category_ids(dataset)
    return ModelCard(settings.detector, dataset.label_names, category_ids, settings.image_size)


def read_card(metadata: Mapping[str, str], source: str) -> ModelCard:
    """Read the card in the metadata of a model file; raise a DataError if a field is missing."""
    missing = [name for name in ("detector", "label_names", "image_size") if name not in metadata]
    if missing:
        raise DataError(
            f"{source}: its metadata have no {missing[0]}, so it is not the model of a run; name "
            "the folder of a run, or its model.safetensors"
        )
    fields: dict[str, Any] = {"category_ids": None}
    try:
        fields |= {name: json.loads(metadata[name]) for name in LISTS if name in metadata}
        parse_image_size(metadata["image_size"])
    except (ValueError, RecursionError, UsageError) as error:
        raise DataError(f"{source}: its metadata are damaged ({error})") from error
    names = fields["label_names"]
    category_ids = fields["category_ids"] or [label + 1 for label in range(len(names or []))]
    if not _is_list(names, (str,)) or not _is_list(category_ids, (int, str)):
        raise DataError(f"{source}: its metadata about labels are damaged ({names!r:.80})")
    if len(names) != len(category_ids) or metadata["detector"] not in DETECTORS:
        raise DataError(
            f"{source}: its metadata are damaged ({len(names)} labels with {len(category_ids)} "
            f"category ids of a detector {metadata['detector']!r:.80})"
        )
    image_size = metadata["image_size"]
    return ModelCard(metadata["detector"], tuple(names), tuple(category_ids), image_size)


def _is_list(values: Any, types: tuple[type, ...]) -> bool:
    is_list = isinstance(values, list) and bool(values)
    return is_list and all(type(value) in types for value in values)
