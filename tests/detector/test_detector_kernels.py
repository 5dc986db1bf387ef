"""Kernels for GPUs: interpreted on the CPU they compute what PyTorch's operations compute."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from boxmend.detector.gpu import kernels_for
from tests import ROOT

PLACES = filter(None, [os.environ.get("PYTHONPATH")])


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_interpreted_kernels_agree_with_the_operations_they_replace() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.detector.kernel_results"],
        env={
            **os.environ,
            "TRITON_INTERPRET": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *PLACES]),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result = dict(line.split() for line in done.stdout.splitlines())
    smooth = {"pooled", "gradient", "activated", "with-shortcut"}
    assert set(result) == {*smooth, "suppressors", "ungrouped", "some"}
    assert max(float(result[name]) for name in smooth) < 1e-5
    assert float(result["suppressors"]) == float(result["ungrouped"]) == float(result["some"]) == 0


def test_there_are_no_kernels_for_the_cpu() -> None:
    assert kernels_for(torch.zeros(1)) is None
