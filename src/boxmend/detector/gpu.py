"""Where kernels of our own can be had: on a GPU, with Triton and a C compiler beside it."""

import importlib.util
import os
import shutil
from functools import cache
from types import ModuleType

from torch import Tensor


def kernels_for(tensor: Tensor) -> ModuleType | None:
    """Give the module of kernels where they can work on a tensor, else None."""
    return _kernels() if tensor.is_cuda else None


@cache
def _kernels() -> ModuleType | None:
    compilers = (os.environ.get("CC", ""), "cc", "gcc", "clang")  # Triton builds what calls them
    if importlib.util.find_spec("triton") is None or not any(map(shutil.which, compilers)):
        return None
    from boxmend.detector import kernels

    return kernels
