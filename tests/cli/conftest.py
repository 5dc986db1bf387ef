"""The drawn dataset that the commands are tried on."""

from pathlib import Path

import pytest

from boxmend.cli import run


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("toys") / "toys"
    assert run(["synth", "--images", "30", "--out", str(out)]) == 0
    return out
