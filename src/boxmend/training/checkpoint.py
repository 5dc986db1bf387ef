"""Checkpoints: all that a run needs to go on as if nothing had happened, in one file.

Written beside and renamed, so that a kill leaves the old one or the new one; tensors and plain
values only, so that loading runs no code.
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
PARTS = ("step", "passes", "best", "network", "average", "optimizer", "method", "ledger")
REMEDY = "put the right one back, or remove it to begin the run anew"


def save(run: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint in the place of the last one."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with open_atomic(run / FILE) as file:
        write_zip_with_digest(buffer.getbuffer(), file)


def load(
    run: Path, device: torch.device, network: nn.Module, method: Collection[str]
) -> dict[str, Any] | None:
    """The last checkpoint of a run, or None where there is none yet.

    A DataError tells of one that cannot be read, that is of another network than `network`, or
    that lacks something of what the method remembers, whose names are `method`.
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
        raise  # not the file's fault, or named already
    except Exception as error:  # bytes that lie make it raise nearly anything
        raise DataError(f"{path}: not a readable checkpoint: {_reason(error)}; {REMEDY}") from error
    trouble = _difference(state, network.state_dict(), method)
    if trouble:
        raise DataError(f"{path}: not a checkpoint of this run: {trouble}; {REMEDY}")
    fitting: dict[str, Any] = state
    return fitting


def _ensure_stored(path: Path) -> None:
    """Raise a DataError where loading a checkpoint would take more than the bytes of its file."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        ensure_within_limit("checkpoint_bytes", size, path)
        if zipfile.is_zipfile(file):  # what else it may be is named when it is loaded
            with zipfile.ZipFile(file) as archive:
                parts = archive.infolist()
            unpacked = sum(part.file_size for part in parts)
            if unpacked > size:
                raise DataError(
                    f"{path}: not a readable checkpoint: its {size:,} bytes unpack to "
                    f"{unpacked:,}, and checkpoints are not compressed; {REMEDY}"
                )


def _reason(error: Exception) -> str:
    """Why a file could not be loaded, without torch's advice to trust it."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain values, or is damaged"
    return (str(error) or type(error).__name__).splitlines()[0]


def _difference(
    state: Any, wanted: Mapping[str, torch.Tensor], method: Collection[str]
) -> str | None:
    """What is missing in a checkpoint, or where its weights are those of another network."""
    if not isinstance(state, dict):
        return f"it holds a {type(state).__name__}"
    for part in PARTS:
        if part not in state:
            return f"it has no {part}"
    for part in ("network", "average", "method"):
        if not isinstance(state[part], dict):
            return f"its {part} is a {type(state[part]).__name__}"
    for name in method:
        if name not in state["method"]:
            return f"its method has no {name}, as one that another version of boxmend wrote"
    told = (_other_weights(part, state[part], wanted) for part in ("network", "average"))
    return next(filter(None, told), None)


def _other_weights(
    part: str, weights: Mapping[str, Any], wanted: Mapping[str, torch.Tensor]
) -> str | None:
    shapes = {key: tuple(getattr(value, "shape", ())) for key, value in weights.items()}
    for key, tensor in wanted.items():
        found, shape = shapes.pop(key, None), tuple(tensor.shape)
        if found != shape:
            return f"{key} of its {part} is {found} instead of {shape}"
    return f"its {part} has the unknown {next(iter(shapes))}" if shapes else None


def remove(run: Path) -> None:
    """Remove the checkpoint of a run that is finished."""
    (run / FILE).unlink(missing_ok=True)
