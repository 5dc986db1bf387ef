"""Files that change while boxmend works with them are noticed."""

import os
import time
from pathlib import Path

import pytest

from boxmend.data.files import change_detection
from boxmend.data.files.change_detection import (
    ensure_states_unchanged,
    ensure_unchanged,
    read_file,
    read_states,
    record_missing_file,
)
from boxmend.errors import DataError

HOUR = 3600


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file whose last change seems an hour old to boxmend."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + HOUR * 10**9)
    file = tmp_path / "a.txt"
    file.write_bytes(b"first")
    return file


def test_a_file_that_stays_is_fine_and_is_not_read_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = read_file(path)
    assert file.content == b"first"
    assert file.state is not None
    monkeypatch.setattr(change_detection, "_read_content", lambda path: b"would be read")
    ensure_unchanged([file, record_missing_file(path.with_name("none"))])


def test_other_bytes_are_noticed_even_under_the_same_size_and_time(path: Path) -> None:
    status = path.stat()
    file = read_file(path)
    path.write_bytes(b"other")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DataError, match=r"a\.txt: changed after .*run the command again"):
        ensure_unchanged([file])


def test_a_file_replaced_removed_or_new_is_noticed(path: Path) -> None:
    file, new = read_file(path), record_missing_file(path.with_name("new"))
    ensure_unchanged([file, new])
    (path.parent / "new").write_bytes(b"")
    with pytest.raises(DataError, match="new: changed after"):
        ensure_unchanged([file, new])
    path.unlink()
    with pytest.raises(DataError, match=r"a\.txt: changed after"):
        ensure_unchanged([file])


def test_a_file_that_was_merely_touched_is_fine(path: Path) -> None:
    file = read_file(path)
    os.utime(path, ns=(1, 1))
    ensure_unchanged([file])
    path.write_bytes(b"first")
    ensure_unchanged([file])


def test_a_file_changed_just_before_is_compared_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"first")
    file = read_file(path)  # its time stamp may be too coarse to show a second change
    assert file.state is None
    ensure_unchanged([file])
    path.write_bytes(b"other")
    with pytest.raises(DataError, match="changed after"):
        ensure_unchanged([file])


def test_a_file_that_grows_while_it_is_read_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat, calls = os.fstat, list[int]()

    def fstat_and_grow(number: int) -> os.stat_result:
        status = fstat(number)
        if len(calls) == 1:  # the first call is that of opening it
            with path.open("ab") as file:
                file.write(b"more")
        calls.append(number)
        return status

    monkeypatch.setattr(os, "fstat", fstat_and_grow)
    with pytest.raises(DataError, match=r"a\.txt: changed while boxmend was reading it"):
        read_file(path)


def test_the_working_folder_may_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    file, states = read_file(path.name), read_states([path.name])
    monkeypatch.chdir("/")
    ensure_unchanged([file])
    ensure_states_unchanged(states)


def test_states_show_a_change_of_files_that_others_read(path: Path) -> None:
    states = read_states([path, path.with_name("none")])
    ensure_states_unchanged(states)
    path.write_bytes(b"longer than before")
    with pytest.raises(DataError, match=r"a\.txt: changed after"):
        ensure_states_unchanged(states)


def test_a_pipe_that_appears_where_no_file_was_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ensure_unchanged([record_missing_file(tmp_path / "pipe")])
    (tmp_path / "zero").symlink_to("/dev/zero")
    ensure_unchanged([record_missing_file(tmp_path / "zero")])
