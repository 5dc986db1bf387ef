"""A file is there whole or not at all."""

from pathlib import Path

import pytest

from boxmend.errors import OutputError
from boxmend.files.atomic import partial, replacing


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        assert partial(path).read_bytes() == b"new"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail(error: BaseException) -> None:
        with replacing(path) as file:
            file.write(b"ne")
            raise error

    for error in (ValueError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    with pytest.raises(OutputError, match=r"a: could not be written \(No space left"):
        fail(OSError(28, "No space left on device"))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_kill_left_behind_is_written_over(tmp_path: Path) -> None:
    partial(tmp_path / "a").write_bytes(b"half of something longer")
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_the_partial_file_is_hidden_and_lies_beside() -> None:
    assert partial(Path("x/finished")) == Path("x/.finished.partial")
