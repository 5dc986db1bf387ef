"""The model of a run, from its folder or from its file alone."""

import json
import os
from pathlib import Path
from typing import Any

from boxmend.detector import Detector, build, ensure_num_labels, read_metadata
from boxmend.errors import DataError, UsageError
from boxmend.runs.folder import SETTINGS_FILE, Run, open_run
from boxmend.runs.settings.files import convert_run_settings
from boxmend.training.card import Card, read_card
from boxmend.training.train import MODEL_FILE


def open_model(path: Path) -> tuple[Detector, Card]:
    """Build the detector of a finished run, or of its model file, with what it says of itself."""
    if not os.path.exists(path):
        raise UsageError(f"{path}: no such run, and no such model file")
    file, told = path, dict[str, str]()
    if os.path.isdir(path):
        run = open_run(path)
        if not run.is_finished:
            raise DataError(
                f"{path}: the run is not finished, so there is no model; go on with it by "
                "boxmend train --resume"
            )
        if run.facts().get("kind") == "audit":
            raise DataError(f"{path}: is an audit, which has no model; name a run of boxmend train")
        file, told = path / MODEL_FILE, _told_by(run)
    card = read_card(told | read_metadata(file), str(file))
    ensure_num_labels(file, len(card.label_names))
    return build(card.detector, len(card.label_names), file, frozen_stages=0), card


def _told_by(run: Run) -> dict[str, str]:
    """What a run knows about its model, for files that do not tell it themselves."""
    data: Any = run.facts().get("data")
    names = data.get("label_names") if isinstance(data, dict) else None
    settings = run.settings()
    convert_run_settings(run.path / SETTINGS_FILE, settings)
    size = settings.get("image_size")
    told = {} if names is None else {"label_names": json.dumps(names)}
    return told | ({"image_size": size} if isinstance(size, str) else {})
