"""A file is complete or absent."""

import os
from multiprocessing import get_context
from pathlib import Path

import pytest

from boxmend.data.files import atomic
from boxmend.data.files.atomic import open_atomic, replace_files
from boxmend.data.files.temporary import temporary_path
from boxmend.errors import OutputError


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with open_atomic(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        assert temporary_path(path).read_bytes() == b"new"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(error: BaseException) -> None:
        with open_atomic(path) as file:
            file.write(b"ne")
            raise error

    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    with pytest.raises(OutputError, match=r"a: could not be written \(No space left"):
        fail(OSError(28, "No space left on device"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_does_not_overwrite_one_that_appeared_in_the_meantime(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def write() -> None:
        with open_atomic(path, overwrite=False) as file:
            file.write(b"second")
            path.write_bytes(b"first")

    with pytest.raises(OutputError, match="a: another process wrote it in the meantime"):
        write()
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_appears_without_hard_links_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", fail)
    with open_atomic(tmp_path / "a", overwrite=False) as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    with (
        pytest.raises(OutputError, match="exists already"),
        open_atomic(tmp_path / "a", overwrite=False),
    ):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def write_many(path: Path, byte: bytes) -> None:
    for _ in range(20):
        with open_atomic(path) as file:
            for _ in range(50):
                file.write(byte * 1000)


def test_two_processes_that_write_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "a"
    context = get_context("fork")
    workers = [context.Process(target=write_many, args=(path, byte)) for byte in (b"x", b"y")]
    for worker in workers:
        worker.start()
    seen = set[bytes]()
    while any(worker.is_alive() for worker in workers):
        if path.exists():
            seen.add(path.read_bytes())
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert seen | {path.read_bytes()} <= {b"x" * 50_000, b"y" * 50_000}
    assert list(tmp_path.iterdir()) == [path]


def test_content_and_name_are_synced_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, events = tmp_path / "a", list[str]()
    fsync, replace = os.fsync, Path.replace

    def record_sync(handle: int) -> None:
        events.append(f"sync {os.readlink(f'/proc/self/fd/{handle}')}")
        fsync(handle)

    def record_rename(self: Path, target: Path) -> Path:
        events.append(f"rename {self}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(Path, "replace", record_rename)
    with open_atomic(path) as file:
        file.write(b"new")
    temporary = temporary_path(path)
    assert events == [f"sync {temporary}", f"rename {temporary}", f"sync {tmp_path}"]


def test_many_files_are_replaced_each_whole_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "FILES_PER_BATCH", 3)
    contents = [(tmp_path / name, name.encode() * 2) for name in "abcdefg"]
    synced: list[list[str]] = []
    monkeypatch.setattr(
        atomic, "sync_files", lambda paths: synced.append([path.read_text() for path in paths])
    )
    replace_files(iter(contents))
    assert synced == [["aa", "bb", "cc"], ["dd", "ee", "ff"], ["gg"]]
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == dict(contents)


def test_a_batch_that_cannot_be_written_leaves_the_old_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "sync_files", fail)
    with pytest.raises(OutputError, match="No space left"):
        replace_files([(tmp_path / "a", b"new"), (tmp_path / "b", b"new")])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}
