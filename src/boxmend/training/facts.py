"""The facts of a run: versions, hardware, and a fingerprint of its annotations."""

import hashlib
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from boxmend import __version__
from boxmend.data.dataset import Dataset
from boxmend.data.fingerprint import describe_data, fingerprint
from boxmend.training.processes import Processes

__all__ = ["collect_facts", "fingerprint", "hash_state"]


def collect_facts(
    addresses: Sequence[str], dataset: Dataset, processes: Processes
) -> dict[str, Any]:
    """Return the facts to save with a run; a resumed run must have the same ones under "data"."""
    device = processes.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {
        "versions": {
            "boxmend": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "torchvision", "numpy")},
        },
        "device": str(device),
        "processes": processes.world_size,
        "hardware": name or platform.machine(),
        "data": describe_data(dataset),
        "addresses": [str(Path(address).absolute()) for address in addresses],  # PATH or PATH:SPLIT
    }


def hash_state(state: Mapping[str, Any]) -> str:
    """Return a hash of tensors and plain numbers with their names."""
    digest = hashlib.sha256()
    for name, value in state.items():
        content = value.detach().cpu().contiguous() if isinstance(value, torch.Tensor) else None
        digest.update(name.encode() + b"\0")
        if content is None:
            digest.update(repr(value).encode())
        else:
            digest.update(content.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
