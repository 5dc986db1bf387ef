"""Opening users' files: only regular files, up to a limit, without waiting."""

import os
import socket
import stat
from pathlib import Path

import pytest

from boxmend.data.files.reading import (
    NotRegularError,
    ensure_few_values,
    open_file,
    read_bytes,
    read_limited,
    read_record,
)
from boxmend.errors import DataError


def test_a_regular_file_is_read_and_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"some\r\nbytes")
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "link"):
        assert read_bytes(tmp_path / name) == b"some\r\nbytes"
    with open_file(tmp_path / "a") as file:
        assert file.read(4) == b"some"


def test_pipes_devices_sockets_and_folders_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
    places = {
        tmp_path: "a folder",
        tmp_path / "pipe": "a pipe",
        tmp_path / "socket": "a socket",
        Path("/dev/zero"): "a device",
    }
    for path, kind in places.items():
        with pytest.raises(NotRegularError, match=f"^{kind}, not a regular file$"):
            open_file(path)
        with pytest.raises(DataError, match=rf"{path}: cannot be read \({kind}, not a regular"):
            read_bytes(path)


def test_a_pipe_that_takes_the_place_of_a_file_after_the_check_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    os.mkfifo(tmp_path / "pipe")
    regular = os.stat(tmp_path / "file")
    assert stat.S_ISREG(regular.st_mode)
    closed = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path, **_: regular)  # what the first check saw
        patch.setattr(os, "close", lambda handle, close=os.close: closed.append(close(handle)))
        with pytest.raises(NotRegularError, match="a pipe"):
            open_file(tmp_path / "pipe")
    assert len(closed) == 1


def test_a_file_above_its_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"12345678")
    monkeypatch.setenv("BOXMEND_MAX_RECORD_BYTES", "7")
    with pytest.raises(OSError, match=r"8 bytes are more than the limit of 7; .*RECORD_BYTES"):
        read_limited(path, "record_bytes")
    with pytest.raises(DataError, match=r"large: cannot be read \(8 bytes are more"):
        read_bytes(path, "record_bytes")
    assert read_limited(path, "annotation_bytes") == b"12345678"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: cannot be read \(No such file"):
        read_bytes(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read"):
        read_bytes(tmp_path / "a\0b")


@pytest.mark.parametrize("unit", [b"{},", b"[],", b"1,", b'"a",', b"[", b'{"a":'])
def test_json_of_too_many_values_is_refused_before_it_is_decoded(
    unit: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = unit * (2**20 // len(unit) + 1)
    ensure_few_values(data, "run.json")  # the default is larger
    monkeypatch.setenv("BOXMEND_MAX_RECORD_VALUES", "100000")
    with pytest.raises(DataError, match=r"run\.json: .* values are more .*MAX_RECORD_VALUES"):
        ensure_few_values(data, "run.json")
    (tmp_path / "run.json").write_bytes(data)
    with pytest.raises(DataError, match=r"run\.json: .* values are more"):
        read_record(tmp_path / "run.json")
