"""Checkpoints: one file with all that a run needs to continue exactly where it stopped.

A new checkpoint replaces the old one atomically, so a kill leaves one of them. The file holds
tensors and plain values only, so loading it runs no code.
"""

import io
import os
import pickle
import warnings
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from boxmend.data.files.atomic import open_atomic
from boxmend.data.files.digests import verify_zip, write_zip_with_digest
from boxmend.data.files.limits import ensure_within_limit
from boxmend.data.files.reading import open_file
from boxmend.errors import DataError

FILE = "checkpoint.pt"
FORMAT_VERSION = 2
"""Of the file. Format 1, which has no number, is read through RENAMED_KEYS."""
RENAMED_KEYS = {"passes": "epochs_done"}
"""Keys of a checkpoint by their names in format 1."""
PARTS = ("step", "epochs_done", "best", "network", "average", "optimizer", "method", "ledger")
REMEDY = "restore the right file, or remove it to start the run from the beginning"


def save(run: Path, state: dict[str, Any]) -> None:
    """Write the checkpoint of a run; replaces the last one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with open_atomic(run / FILE) as file:
        write_zip_with_digest(buffer.getbuffer(), file)


def load(
    run: Path, device: torch.device, network: nn.Module, method: Collection[str]
) -> dict[str, Any] | None:
    """Return the last checkpoint of a run; None if there is none yet.

    Raises a DataError if the file cannot be read, if its weights do not fit `network`, or if the
    state of the method lacks one of the names in `method`.
    """
    path = run / FILE
    if not path.exists():
        return None
    try:
        verify_zip(path, REMEDY)
        _ensure_stored(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the file was pickled
            state: Any = torch.load(path, map_location=device, weights_only=True)
    except (torch.OutOfMemoryError, MemoryError, DataError):
        raise  # the file is sound, or the error names it already
    except Exception as error:  # damaged bytes raise nearly anything
        raise DataError(f"{path}: not a readable checkpoint: {_reason(error)}; {REMEDY}") from error
    state = _upgrade(state)
    problem = _find_problem(state, network.state_dict(), method)
    if problem:
        raise DataError(f"{path}: not a checkpoint of this run: {problem}; {REMEDY}")
    checked: dict[str, Any] = state
    return checked


def _upgrade(state: Any) -> Any:
    """Return a checkpoint of format 1 with the present keys; others unchanged."""
    if not isinstance(state, dict) or "format" in state:
        return state
    return {RENAMED_KEYS.get(key, key): value for key, value in state.items()}


def _ensure_stored(path: Path) -> None:
    """Raise a DataError if the parts of a checkpoint are larger than its file."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        ensure_within_limit("checkpoint_bytes", size, path)
        if zipfile.is_zipfile(file):  # loading reports anything else
            with zipfile.ZipFile(file) as archive:
                parts = archive.infolist()
            unpacked = sum(part.file_size for part in parts)
            if unpacked > size:
                raise DataError(
                    f"{path}: not a readable checkpoint: its {size:,} bytes unpack to "
                    f"{unpacked:,}, and checkpoints are not compressed; {REMEDY}"
                )


def _reason(error: Exception) -> str:
    """Return why a file could not be loaded, without torch's advice to trust it."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain values, or is damaged"
    return (str(error) or type(error).__name__).splitlines()[0]


def _find_problem(
    state: Any, expected: Mapping[str, torch.Tensor], method: Collection[str]
) -> str | None:
    """Return what is missing in a checkpoint or differs from the expected weights, or None."""
    if not isinstance(state, dict):
        return f"it holds an object of type {type(state).__name__}"
    if (version := state.get("format", FORMAT_VERSION)) != FORMAT_VERSION:
        return f"its format is {version!r}, and this version of boxmend reads {FORMAT_VERSION}"
    for part in PARTS:
        if part not in state:
            return f"it has no {part}"
    for part in ("network", "average", "method"):
        if not isinstance(state[part], dict):
            return f"its {part} is of type {type(state[part]).__name__}"
    for name in method:
        if name not in state["method"]:
            return f"its method has no {name}; another version of boxmend wrote it"
    problems = (_weight_problem(part, state[part], expected) for part in ("network", "average"))
    return next(filter(None, problems), None)


def _weight_problem(
    part: str, weights: Mapping[str, Any], expected: Mapping[str, torch.Tensor]
) -> str | None:
    shapes = {key: tuple(getattr(value, "shape", ())) for key, value in weights.items()}
    for key, tensor in expected.items():
        shape, expected_shape = shapes.pop(key, None), tuple(tensor.shape)
        if shape != expected_shape:
            return f"{key} of its {part} is {shape} instead of {expected_shape}"
    return f"its {part} has the unknown {next(iter(shapes))}" if shapes else None


def remove(run: Path) -> None:
    """Remove the checkpoint of a finished run."""
    (run / FILE).unlink(missing_ok=True)
