"""What tests of several files ask for by name."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boxmend.cli import run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--no-first-run", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """One browser for all tests of a file."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed to open pages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drawn dataset that the commands are tried on."""
    out = tmp_path_factory.mktemp("toys") / "toys"
    assert run(["synth", "--images", "30", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that predictions are made with."""
    from tests.training.prediction.prediction_runs import (
        finished_run,  # lies beside the tests that use it
    )

    return finished_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for torch: on small tensors more would only wait for each other."""
    import torch  # not at the top: most tests do without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
