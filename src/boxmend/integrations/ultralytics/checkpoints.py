"""The state of a Mender in a file beside each of Ultralytics' checkpoints."""

from pathlib import Path
from typing import Any

import numpy as np

from boxmend.data.files.atomic import open_atomic
from boxmend.errors import DataError

ENDING = ".mender.npz"


def state_path(checkpoint: Path) -> Path:
    """Return the file of the Mender's state for a checkpoint, like `last.mender.npz`."""
    return checkpoint.with_name(f"{checkpoint.stem}{ENDING}")


def save_state(state: dict[str, Any], checkpoint: Path) -> None:
    """Write the state of a Mender beside a checkpoint."""
    with open_atomic(state_path(checkpoint)) as file:
        np.savez(file, **state)  # type: ignore[arg-type]


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the state of a Mender beside a checkpoint; raise a DataError without a valid one."""
    path = state_path(checkpoint)
    if not path.is_file():
        raise DataError(
            f"{path} does not exist, so the training of {checkpoint.name} was not mended: resume "
            "it without boxmend, or start a new training"
        )
    try:
        with np.load(path, allow_pickle=False) as file:
            columns = {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} is damaged ({error}): start a new training") from error
    return {name: value if value.ndim else value.item() for name, value in columns.items()}
