"""What tests of a run's folder share."""

from pathlib import Path

SETTINGS = {"method": "mend", "epochs": 12, "judgment": {"length": 128, "rate": 0.6}}
FACTS = {"versions": {"numpy": "2.0"}, "seed": 3, "data": [{"address": "voc:train", "sha": "ab"}]}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
