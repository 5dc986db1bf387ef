"""Checkpoints: all that a run needs to go on as if nothing had happened, in one file.

Written beside and renamed, so that a kill leaves the old one or the new one; tensors and plain
values only, so that loading runs no code.
"""

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from boxmend.errors import DataError
from boxmend.ledger.files import replacing

FILE = "checkpoint.pt"


def save(run: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint in the place of the last one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with replacing(run / FILE) as file:
        file.write(buffer.getbuffer())


def load(run: Path, device: torch.device) -> dict[str, Any] | None:
    """The last checkpoint of a run, or None where there is none yet."""
    path = run / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        raise DataError(f"{path}: not a readable checkpoint: {error}") from error
    return state


def remove(run: Path) -> None:
    """Remove the checkpoint of a run that is finished."""
    (run / FILE).unlink(missing_ok=True)
