"""Open the model of a run, from its folder or from its model file."""

import json
import os
from pathlib import Path
from typing import Any

from boxmend.detector import Detector, build, ensure_num_labels, read_metadata
from boxmend.errors import DataError, UsageError
from boxmend.runs.folder import SETTINGS_FILE, Run, open_run
from boxmend.runs.settings.files import convert_run_settings
from boxmend.training.card import ModelCard, read_card
from boxmend.training.train import MODEL_FILE


def open_model(path: Path) -> tuple[Detector, ModelCard]:
    """Build the detector of a finished run or of its model file; return it with its card."""
    if not os.path.exists(path):
        raise UsageError(f"{path}: no such run, and no such model file")
    file, metadata = path, dict[str, str]()
    if os.path.isdir(path):
        run = open_run(path)
        if not run.is_finished:
            raise DataError(
                f"{path}: the run is not finished, so it has no model; continue it with "
                "boxmend train --resume"
            )
        if run.facts().get("kind") == "audit":
            raise DataError(f"{path}: an audit has no model; name a run of boxmend train")
        file, metadata = path / MODEL_FILE, _metadata_of(run)
    card = read_card(metadata | read_metadata(file), str(file))
    ensure_num_labels(file, len(card.label_names))
    return build(card.detector, len(card.label_names), file, frozen_stages=0), card


def _metadata_of(run: Run) -> dict[str, str]:
    """Return the metadata of a model from its run, for model files that lack them."""
    data: Any = run.facts().get("data")
    names = data.get("label_names") if isinstance(data, dict) else None
    settings = run.settings()
    convert_run_settings(run.path / SETTINGS_FILE, settings)
    size = settings.get("image_size")
    metadata = {} if names is None else {"label_names": json.dumps(names)}
    return metadata | ({"image_size": size} if isinstance(size, str) else {})
