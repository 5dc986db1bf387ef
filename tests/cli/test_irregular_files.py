"""Pipes and devices in the place of files: every command refuses them at once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from boxmend.cli import run

COMMANDS = [
    "check FILE.json",
    "convert FILE.json --to voc --out OUT",
    "diff TOYS FILE.json",
    "noise FILE.json --out OUT",
    "noise TOYS --labels matrix:FILE --out OUT",
    "folds FILE.json --out OUT",
    "audit TOYS --predictions FILE --out OUT",
    "evaluate --data TOYS --predictions FILE.json",
    "evaluate --data FILE.json --predictions FILE.json",
    "bench table core --results FILE",
    "train TOYS --settings FILE --out OUT",
    "train TOYS --weights FILE --detector tiny --out OUT",
    "predict FILE TOYS --out OUT",
    "revert FOLDER",
    "apply RUN --out OUT",
    "report RUN",
    "export RUN --to coco --out OUT",
    "import RUN FILE",
]


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    def fail(*_: object) -> None:
        raise AssertionError("the command waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_regular_file_is_refused(
    command: str, kind: str, toys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("file", "file.json", "folder/patch.json", "run/run.json"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    places = {"TOYS": str(toys), "RUN": f"{tmp_path}/run", "FOLDER": f"{tmp_path}/folder"}
    places |= {"FILE": f"{tmp_path}/file", "OUT": f"{tmp_path}/out"}
    for word, place in places.items():
        command = command.replace(word, place)
    status = run(command.split())
    printed = capsys.readouterr().err
    assert status in (2, 3)
    words = (f"a {kind}, not a regular file", "is not a regular file", "no dataset found")
    assert any(one in " ".join(printed.split()) for one in words)
    assert not (tmp_path / "out").exists()
