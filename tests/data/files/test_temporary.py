"""Temporary files and folders: locked by a living process, reused after a kill."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boxmend.data.files import temporary
from boxmend.data.files.temporary import (
    is_temporary,
    remove_leftovers,
    temporary_file,
    temporary_folder,
    temporary_path,
)

HOLDER = """
import sys, time
from pathlib import Path
from boxmend.data.files import temporary
with getattr(temporary, sys.argv[1])(Path(sys.argv[2])) as path:
    (path / "half" if path.is_dir() else path).write_text("half")
    print(path, flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(kind: str, target: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Start a process that holds a temporary file or folder for `target`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind, str(target)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().rstrip("\n"))
    finally:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["temporary_file", "temporary_folder"])
def test_a_living_process_keeps_its_path_and_that_of_a_dead_one_is_reused(
    tmp_path: Path, kind: str
) -> None:
    make = getattr(temporary, kind)
    with holder(kind, tmp_path / "a") as (process, theirs):
        assert theirs == tmp_path / ".a.boxmend-partial"
        with make(tmp_path / "a") as mine:
            assert mine == tmp_path / ".a.boxmend-partial-1"
        remove_leftovers(tmp_path)
        assert list(tmp_path.iterdir()) == [theirs]
        kill(process)
        assert list(tmp_path.iterdir()) == [theirs]
        with make(tmp_path / "a") as mine:
            assert mine == theirs
            assert not (list(mine.iterdir()) if mine.is_dir() else mine.read_bytes())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["temporary_file", "temporary_folder"])
def test_leftovers_of_dead_processes_are_removed_for_any_target(tmp_path: Path, kind: str) -> None:
    with holder(kind, tmp_path / "other") as (process, _):
        kill(process)
    (tmp_path / ".other.partial").write_text("of another program")
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".other.partial"]


def test_a_leftover_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    temporary_path(tmp_path / "a").symlink_to(tmp_path / "mine")
    remove_leftovers(tmp_path)
    with temporary_file(tmp_path / "a") as path:
        path.write_text("new")
        assert path == temporary_path(tmp_path / "a", 1)
    assert (tmp_path / "mine").read_text() == "mine"
    assert temporary_path(tmp_path / "a").is_symlink()


def test_a_file_in_the_place_of_a_temporary_folder_is_skipped(tmp_path: Path) -> None:
    temporary_path(tmp_path / "a").write_text("")
    with temporary_folder(tmp_path / "a") as path:
        assert path == temporary_path(tmp_path / "a", 1)


def test_without_locks_names_are_random_and_leave_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def fail(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with temporary_file(tmp_path / "a") as first, temporary_file(tmp_path / "a") as second:
        assert first != second
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name}
        assert is_temporary(first.name)
        remove_leftovers(tmp_path)
        assert first.exists()
    assert not list(tmp_path.iterdir())


def test_names_are_hidden_and_never_too_long(tmp_path: Path) -> None:
    assert temporary_path(Path("x/a"), 2) == Path("x/.a.boxmend-partial-2")
    long = tmp_path / ("ü" * 127)
    with temporary_file(long) as path:
        path.replace(long)
    assert os.listdir(tmp_path) == [long.name]
    assert not any(map(is_temporary, ("a", ".a.partial", "a.boxmend-partial", ".boxmend-partial")))
