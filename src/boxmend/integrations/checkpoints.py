"""The state of a Mender in a file beside a checkpoint, or in its folder."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import verify_zip, write_zip_with_digest
from boxmend.errors import DataError

ENDING = ".mender.npz"
NAME = "mender.npz"
REMEDY = "start a new training"


def state_path(checkpoint: Path) -> Path:
    """Return the file of the Mender's state for a checkpoint: `last.mender.npz` for `last.pt`.

    In a folder, it is `mender.npz`.
    """
    if checkpoint.is_dir():
        return checkpoint / NAME
    return checkpoint.with_name(f"{checkpoint.stem}{ENDING}")


def save_state(state: Mapping[str, Any], checkpoint: Path) -> None:
    """Write the state of a Mender beside a checkpoint, with a digest."""
    with open_atomic(state_path(checkpoint)) as file:
        write_zip_with_digest(encode_state(state), file)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the state of a Mender beside a checkpoint; raise a DataError without a valid one."""
    path = state_path(checkpoint)
    if not path.is_file():
        raise DataError(
            f"{path} does not exist, so the training of {checkpoint.name} was not mended: resume "
            "it without boxmend, or start a new training"
        )
    verify_zip(path, REMEDY)
    try:
        return decode_state(path.read_bytes())
    except (ValueError, OSError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} cannot be read ({error}): {REMEDY}") from error


def encode_state(state: Mapping[str, Any]) -> memoryview:
    """Return the state of a Mender as the bytes of an archive of arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    return buffer.getbuffer()


def decode_state(data: bytes) -> dict[str, Any]:
    """Return what `encode_state` was called with."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    return {name: value if value.ndim else value.item() for name, value in columns.items()}
