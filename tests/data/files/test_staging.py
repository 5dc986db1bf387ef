"""An output folder is complete or unchanged, whether it is new or empty."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boxmend.data.files import staging, syncing
from boxmend.data.files.staging import stage_folder
from boxmend.data.files.syncing import sync_files, sync_tree
from boxmend.data.files.temporary import temporary_path
from boxmend.errors import OutputError

KILLED = """
import os, signal, sys
from pathlib import Path
from boxmend.data.files import staging

stop = sys.argv[2]
names = []

def audit(event, args):
    is_event = event in ("os.rename", "open", "os.mkdir", "os.rmdir")
    if is_event and str(args[0]).startswith(sys.argv[3]):
        names.append(event)
        if len(names) == int(stop):
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(audit)
with staging.stage_folder(Path(sys.argv[1])) as folder:
    for name in "abc":
        (folder / name).mkdir()
        (folder / name / "file").write_text(name)
print(len(names))
"""


def killed_at(number: int, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", KILLED, str(out), str(number), str(out.parent)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def names_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.mark.parametrize("is_there", [False, True])
def test_a_kill_at_any_moment_leaves_all_or_none_and_a_rerun_cleans_up(
    tmp_path: Path, is_there: bool
) -> None:
    whole = ["a", "a/file", "b", "b/file", "c", "c/file"]
    (tmp_path / "counted").mkdir()
    total = int(killed_at(0, tmp_path / "counted" / "out").stdout)
    assert total > 10
    kills = 0
    for number in range(1, total + 1):
        parent = tmp_path / str(number)
        out = parent / "out"
        (out if is_there else parent).mkdir(parents=True)
        done = killed_at(number, out)
        kills += done.returncode == -signal.SIGKILL
        assert names_below(out) in ([], whole)
        if names_below(out) == whole:
            out = parent / "again"
        with stage_folder(out) as folder:
            (folder / "new").write_text("new")
        assert names_below(out) == ["new"]
        assert not [name for name in os.listdir(parent) if name.startswith(".")]
    assert kills > total // 2


def test_output_into_an_empty_folder_is_one_rename_and_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o750)
    with stage_folder(out) as folder:
        (folder / "a").write_text("a")
        assert folder.parent == tmp_path
        assert not list(out.iterdir())
    assert names_below(tmp_path) == ["out", "out/a"]
    assert out.stat().st_mode & 0o777 == 0o750


def test_of_two_writers_one_gets_a_clear_message(tmp_path: Path) -> None:
    def write() -> None:
        with stage_folder(tmp_path / "out") as second:
            (second / "second").write_text("second")
            with stage_folder(tmp_path / "out") as first:
                (first / "first").write_text("first")

    with pytest.raises(OutputError, match="out: another process wrote there in the meantime"):
        write()
    assert names_below(tmp_path) == ["out", "out/first"]


def test_the_current_folder_and_mount_points_are_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(OutputError, match=r"is the current folder.*such as out"),
        stage_folder(Path()),
    ):
        pass
    volume = tmp_path / "volume"
    volume.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == volume)
    with (
        pytest.raises(OutputError, match=r"is a mount point.*such as .*volume/out"),
        stage_folder(volume),
    ):
        pass


def test_files_are_synced_before_the_rename_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[str]()
    rename = Path.rename

    def record_rename(self: Path, target: Path) -> Path:
        events.append("rename")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", record_rename)
    monkeypatch.setattr(staging, "sync_tree", lambda path: events.append(f"tree {path.name}"))
    monkeypatch.setattr(staging, "sync_folder", lambda path: events.append(f"folder {path.name}"))
    with stage_folder(tmp_path / "out") as folder:
        (folder / "a").write_text("a")
    name = temporary_path(tmp_path / "out").name
    assert events == [f"tree {name}", "rename", f"folder {tmp_path.name}"]
    events.clear()
    with stage_folder(tmp_path / "quick", sync=False) as folder:
        (folder / "a").write_text("a")
    assert events == ["rename"]


@pytest.mark.parametrize("number", [3, 20])
@pytest.mark.parametrize("has_syncfs", [False, True])
def test_a_tree_is_synced_file_by_file_or_by_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, has_syncfs: bool
) -> None:
    for k in range(number):
        (tmp_path / f"{k % 3}").mkdir(exist_ok=True)
        (tmp_path / f"{k % 3}" / f"{k}").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    synced = set[str]()
    monkeypatch.setattr(syncing, "_sync", lambda path: synced.add(path.name))
    calls: list[Path] = []

    def sync_file_system(path: Path) -> bool:
        calls.append(path)
        return has_syncfs

    monkeypatch.setattr(syncing, "_sync_file_system", sync_file_system)
    sync_tree(tmp_path)
    folders = {tmp_path.name, "0", "1", "2"}
    files = {str(k) for k in range(number)}
    is_whole = has_syncfs and number > syncing.FEW_FILES
    assert synced == (folders if is_whole else folders | files)
    assert len(calls) == (number > syncing.FEW_FILES)


@pytest.mark.skipif(sys.platform != "linux", reason="syncfs is a call of Linux")
def test_the_file_system_is_really_synced_and_errors_are_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / str(k) for k in range(syncing.FEW_FILES + 1)]
    for path in paths:
        path.write_text("x")
    monkeypatch.setattr(syncing, "_sync", lambda path: pytest.fail(f"{path} was synced alone"))
    sync_files(paths)

    class Failing:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def syncfs(self, _: int) -> int:
            ctypes.set_errno(errno.EIO)
            return -1

    monkeypatch.setattr(ctypes, "CDLL", Failing)
    with pytest.raises(OSError, match="Input/output error"):
        sync_files(paths)
