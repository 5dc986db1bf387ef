"""Run commands, and the data that they run on."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boxmend.cli import run


def answer(capsys: pytest.CaptureFixture[str], *tokens: object) -> Any:
    """Run a command with --json; its status and what it printed."""
    capsys.readouterr()
    status = run([*map(str, tokens), "--json"])
    printed = capsys.readouterr()
    return status, json.loads(printed.out) if printed.out else printed.err


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def coco(folder: Path, **changes: Any) -> Path:
    """A COCO file of one image and one annotation, with changes to the annotation."""
    annotation = {"id": 7, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]} | changes
    document = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 20}],
        "annotations": [annotation],
        "categories": [{"id": 1, "name": "cat"}],
    }
    path = folder / "instances_train.json"
    path.write_text(json.dumps(document))
    return path


def in_a_process(tokens: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "boxmend", *tokens]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)
