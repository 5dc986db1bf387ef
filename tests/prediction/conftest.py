"""One run for all tests of this folder, which only read it."""

from pathlib import Path

import pytest
from prediction_runs import finished_run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs") / "run")
