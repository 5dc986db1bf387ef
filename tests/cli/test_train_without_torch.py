"""boxmend train where torch is not installed."""

import sys
from pathlib import Path

import pytest

from boxmend.cli import run


def test_training_without_torch_says_what_to_install(
    toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("boxmend.training.train")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    assert run(["train", str(toys), "--out", str(tmp_path / "run")]) == 2
    assert "boxmend[train]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
