"""What tests of several files ask for by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from boxmend.cli import run


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The drawn dataset that the commands are tried on."""
    out = tmp_path_factory.mktemp("toys") / "toys"
    assert run(["synth", "--images", "30", "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that predictions are made with."""
    from prediction_runs import finished_run  # lies beside the tests that use it

    return finished_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread for torch: on small tensors more would only wait for each other."""
    import torch  # not at the top: most tests do without it

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
