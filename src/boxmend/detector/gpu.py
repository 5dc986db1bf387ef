"""Availability of the package's Triton kernels: they need a GPU, Triton and a C compiler."""

import importlib.util
import os
import shutil
from functools import cache
from types import ModuleType

from torch import Tensor


def kernels_for(tensor: Tensor) -> ModuleType | None:
    """Return the module of kernels if they can process a tensor, else None."""
    return _kernels() if tensor.is_cuda else None


@cache
def _kernels() -> ModuleType | None:
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")  # Triton compiles launchers
    if importlib.util.find_spec("triton") is None or not any(map(shutil.which, compilers)):
        return None
    from boxmend.detector import kernels

    return kernels
