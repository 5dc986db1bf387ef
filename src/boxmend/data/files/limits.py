"""Limits on how much boxmend reads, decodes or unpacks from a file of others.

A small file can expand to a lot: a PNG of 300 KB to 178 million pixels, a zip file of 2 MB to a
gigabyte. Each limit has a default and an environment variable, `BOXMEND_MAX_<NAME>`, that replaces
it. They are variables because everyday use does not need them and worker processes inherit them.
"""

import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from boxmend.errors import DataError, UsageError

PREFIX = "BOXMEND_MAX_"
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = re.compile(r"([0-9]{1,15})\s*(KiB|MiB|GiB|TiB)?")


@dataclass(frozen=True)
class Limit:
    """The default of a limit, what it counts, and what it is for."""

    default: int
    unit: str
    purpose: str


LIMITS = {
    "image_bytes": Limit(2**30, "bytes", "size of an image file"),
    "image_pixels": Limit(
        178_956_970,  # Pillow, too, suspects an attack above this
        "pixels",
        "width times height of one image; costly formats count several times (see below)",
    ),
    "pixels_in_flight": Limit(
        178_956_970,  # 4 bytes each while they are decoded and converted: 0.7 GB
        "pixels",
        "all images that one command decodes at the same time, counted likewise",
    ),
    "annotation_bytes": Limit(2**32, "bytes", "size of a COCO file, or of a list of images"),
    "annotation_objects": Limit(
        20_000_000, "objects", "objects in a COCO file or in JSON predictions, counted by braces"
    ),
    "annotation_values": Limit(
        10_000_000,
        "values",
        "values in a COCO file or JSON predictions whose entries are not all objects, or hold NaN",
    ),
    "malformed_entries": Limit(
        1_000_000, "entries", "findings about entries of a COCO file that are malformed"
    ),
    "label_file_bytes": Limit(
        2**23, "bytes", "size of the annotations or predictions of one image: VOC XML, YOLO txt"
    ),
    "prediction_bytes": Limit(2**32, "bytes", "size of a file of predictions: JSON or CSV"),
    "table_bytes": Limit(
        2**29,
        "bytes",
        "memory for the columns of Parquet files that are small for it (see below)",
    ),
    "expansion": Limit(
        100, "times", "memory for the columns of Parquet files, as a multiple of their size"
    ),
    "record_bytes": Limit(
        2**30, "bytes", "size of a JSON or CSV file that boxmend wrote, such as `patch.json`"
    ),
    "record_values": Limit(
        20_000_000, "values", "values in a JSON file that boxmend or a labelling tool wrote"
    ),
    "patch_bytes": Limit(2**29, "bytes", "a file that `patch.json` holds compressed"),
    "export_bytes": Limit(2**30, "bytes", "size of a labelling tool's export, packed or unpacked"),
    "export_elements": Limit(3_000_000, "elements", "XML elements in an export of CVAT"),
    "settings_bytes": Limit(
        2**24, "bytes", "size of a file of settings, a `data.yaml`, or a label matrix"
    ),
    "model_bytes": Limit(2**30, "bytes", "size of a model or of weights"),
    "model_header_bytes": Limit(2**24, "bytes", "header of a safetensors file"),
    "model_labels": Limit(15_000, "labels", "classes of a detector; each takes up to 60 KB"),
    "checkpoint_bytes": Limit(2**33, "bytes", "size of a checkpoint"),
}


def get_limit(name: str) -> int:
    """Return the value of a limit: its environment variable if set, else its default."""
    text = os.environ.get(variable_name(name), "").strip()
    if not text:
        return LIMITS[name].default
    match = _AMOUNT.fullmatch(text)
    amount = int(match[1]) * UNITS[match[2] or ""] if match else 0
    if amount < 1:
        raise UsageError(
            f"{variable_name(name)} is {text!r:.80}; set it to a whole number of "
            f"{LIMITS[name].unit}, at least 1, such as 500000000 or 2GiB"
        )
    return amount


def check_environment() -> None:
    """Raise a UsageError if an environment variable names an unknown limit or an invalid amount."""
    for text in sorted(os.environ):
        if text.startswith(PREFIX):
            name = text.removeprefix(PREFIX).lower()
            if name not in LIMITS or text != variable_name(name):
                similar = get_close_matches(name, LIMITS, n=1)
                hint = f"; did you mean {variable_name(similar[0])}?" if similar else ""
                raise UsageError(f"{text}: no such limit{hint}")
            get_limit(name)


def variable_name(name: str) -> str:
    """Return the environment variable that replaces a limit."""
    return f"{PREFIX}{name.upper()}"


def describe_excess(name: str, amount: int) -> str | None:
    """Return a message if an amount is above a limit, with how to raise the limit; else None."""
    limit = get_limit(name)
    if amount <= limit:
        return None
    unit = LIMITS[name].unit
    return (
        f"{amount:,} {unit} are more than the limit of {limit:,}; if you trust the file, set "
        f"{variable_name(name)} to at least {amount}"
    )


def ensure_within_limit(name: str, amount: int, path: str | Path, what: str = "") -> None:
    """Raise a DataError that names the file and `what` if an amount is above a limit."""
    if message := describe_excess(name, amount):
        raise DataError(f"{path}: {what + ': ' if what else ''}{message}")
