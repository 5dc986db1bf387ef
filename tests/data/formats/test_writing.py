"""Writing: completely or not at all, with images, and without changes to the input."""

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.files.staging import stage_folder
from boxmend.data.formats import coco, read
from boxmend.data.formats.documents import Document
from boxmend.errors import DataError, LossyError, OutputError, UsageError
from tests.data.formats.coco_documents import box, document


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    folder = tmp_path / "in"
    (folder / "images/sub").mkdir(parents=True)
    (folder / "images/1.jpg").write_bytes(b"one")
    (folder / "images/sub/2.jpg").write_bytes(b"two")
    names = ("1.jpg", "sub/2.jpg", "gone.jpg")
    images = [
        {"id": k, "file_name": name, "width": 9, "height": 9} for k, name in enumerate(names, 1)
    ]
    (folder / "instances_train.json").write_bytes(document(box(), images=images))
    return boxmend.load(folder)


def everything(folder: Path) -> dict[str, bytes | None]:
    """Return all files of a folder with their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# What is written


def test_checksums_are_those_of_the_files(dataset: Dataset, tmp_path: Path) -> None:
    dataset.boxes += 1
    saved = dataset.save(tmp_path / "out")
    assert set(saved.files) == {"instances_train.json"}
    for name, digest in saved.files.items():
        assert hashlib.sha256((saved.out / name).read_bytes()).hexdigest() == digest
    assert (saved.out, saved.format, saved.losses) == (tmp_path / "out", "coco", ())


def test_images_are_linked_copied_or_left(dataset: Dataset, tmp_path: Path) -> None:
    for images_as in ("link", "copy", "none"):
        saved = dataset.save(tmp_path / images_as, images_as=images_as)
        names = sorted(path for path in everything(saved.out) if path.endswith(".jpg"))
        if images_as == "none":
            assert names == []
            continue
        assert names == ["images/1.jpg", "images/sub/2.jpg"]
        assert (saved.out / "images/1.jpg").is_symlink() == (images_as == "link")
        assert (saved.out / "images/sub/2.jpg").read_bytes() == b"two"
        assert saved.images_missing == 1
        again = boxmend.load(saved.out)
        assert [Path(path).is_file() for path in again.images.paths] == [True, True, False]


def test_links_hold_in_any_working_folder(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    boxmend.load("in").save("out")
    monkeypatch.chdir("/")
    assert (tmp_path / "out/images/1.jpg").read_bytes() == b"one"


def test_images_are_copied_where_no_links_can_be_made(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    saved = dataset.save(tmp_path / "out")
    assert not (saved.out / "images/1.jpg").is_symlink()
    assert (saved.out / "images/1.jpg").read_bytes() == b"one"


def test_image_listed_twice_is_placed_once(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(b"one")
    names = ("1.jpg", "1.jpg", "./1.jpg")
    images = [{"id": k, "file_name": name, "width": 9, "height": 9} for k, name in enumerate(names)]
    for split in ("train", "val"):
        (tmp_path / f"instances_{split}.json").write_bytes(document(images=images))
        data = (tmp_path / f"instances_{split}.json").read_bytes()
        saved = boxmend.load(tmp_path).save(tmp_path / f"out{split}")
        assert saved.images_missing == 0
        assert (saved.out / f"instances_{split}.json").read_bytes() == data
        assert all(Path(path).is_file() for path in boxmend.load(saved.out).images.paths)


def test_the_input_does_not_change(dataset: Dataset, tmp_path: Path) -> None:
    before = everything(tmp_path / "in")
    boxes = dataset.boxes.copy()
    dataset.boxes += 3
    changed = dataset.boxes.copy()
    dataset.save(tmp_path / "out", images_as="copy")
    assert everything(tmp_path / "in") == before
    assert dataset.boxes.tolist() == changed.tolist()
    assert dataset.sources[0].boxes.tolist() == boxes.tolist()


def test_several_addresses_get_a_folder_each_inside_the_output(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in ("a", "b"):
        dataset.take_images(np.array([0])).save(f"../{name}", format="voc", images_as="copy")
    monkeypatch.chdir(tmp_path / "a")
    pair = boxmend.load(".", "../b")
    before = everything(tmp_path / "b")
    pair.save(tmp_path / "out", images_as="none")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "b"]
    assert everything(tmp_path / "b") == before


def test_folder_of_an_address_is_never_named_as_the_one_above(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        dataset.take_images(np.array([0])).save(tmp_path / name, format="yolo", images_as="copy")
    (tmp_path / "a/sub").mkdir()
    monkeypatch.chdir(tmp_path / "a/sub")
    pair = read("../data.yaml", tmp_path / "b/data.yaml")
    saved = pair.save(tmp_path / "out/pair", images_as="none")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["pair"]
    assert all((saved.out / name).is_file() for name in saved.files)


# Wrong calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images_as": "teleport"}, "images_as must be one of link, copy, none"),
        ({"segmentation": "lose"}, "segmentation must be one of flag, drop"),
        ({"format": "csv"}, "unknown format 'csv'; known are coco, voc, yolo"),
    ],
)
def test_unknown_choices_are_refused(
    dataset: Dataset, tmp_path: Path, options: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        dataset.save(tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


def test_columns_that_were_broken_are_refused_before_anything_is_written(
    dataset: Dataset, tmp_path: Path
) -> None:
    dataset.labels = np.array([7])
    with pytest.raises(ValueError, match="labels must lie between"):
        dataset.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


# Where it is written


def test_folder_that_is_not_empty_is_refused_and_stays(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"out: the folder is not empty"):
        dataset.save(tmp_path / "out")
    assert everything(tmp_path / "out") == {"mine.txt": b"mine"}
    with pytest.raises(OutputError, match="not empty"):
        dataset.save(tmp_path / "in")


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_output_that_is_not_a_folder_is_refused_and_stays(
    dataset: Dataset, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / ("in" if kind == "link" else "nowhere"))
    before = everything(tmp_path)
    with pytest.raises(OutputError, match="not a folder"):
        dataset.save(out)
    assert everything(tmp_path) == before


def test_output_below_a_file_or_of_an_impossible_name_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file/out", tmp_path / ("x" * 300)):
        with pytest.raises(OutputError, match="could not be written"):
            dataset.save(out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "in"]


def test_folders_above_are_made_and_an_empty_folder_is_filled(
    dataset: Dataset, tmp_path: Path
) -> None:
    dataset.save(tmp_path / "a/b/out")
    (tmp_path / "empty").mkdir(mode=0o750)
    dataset.save(tmp_path / "empty")
    assert everything(tmp_path / "empty") == everything(tmp_path / "a/b/out")
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == ["out"]


def test_the_current_folder_is_refused_with_a_remedy(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(OutputError, match="name a new folder inside, such as out"):
        dataset.save(".")
    dataset.save("out")
    assert sorted(os.listdir("out")) == ["images", "instances_train.json"]


# Failures in the middle


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), MemoryError(), ValueError("x"), OSError(errno.EIO, "broken")]
)
def test_no_failure_leaves_anything_behind(
    tmp_path: Path, error: BaseException, is_there: bool
) -> None:
    out = tmp_path / "deep/out"
    if is_there:
        out.mkdir(parents=True)
    before = everything(tmp_path)
    expected = OutputError if isinstance(error, OSError) else type(error)

    def write() -> None:
        with stage_folder(out) as folder:
            (folder / "sub").mkdir()
            (folder / "sub/file").write_text("half")
            raise error

    with pytest.raises(expected):
        write()
    assert everything(tmp_path) == before


def test_failure_of_the_last_step_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if target == tmp_path / "out":
            raise OSError(errno.EIO, "broken")
        return rename(self, target)

    def write() -> None:
        with stage_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("a")
            (folder / "b").write_text("b")

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OutputError, match="broken"):
        write()
    assert everything(tmp_path) == {"out": None}


def test_folder_that_fills_up_in_the_meantime_is_not_overwritten(tmp_path: Path) -> None:
    def write() -> None:
        with stage_folder(tmp_path / "out") as folder:
            (folder / "a").write_text("a")
            (tmp_path / "out").mkdir()
            (tmp_path / "out/mine").write_text("mine")

    with pytest.raises(OutputError, match="another process wrote there in the meantime"):
        write()
    assert everything(tmp_path) == {"out": None, "out/mine": b"mine"}


def test_interrupt_in_the_middle_of_a_document_leaves_nothing_behind(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def documents(_: Dataset, __: str) -> Iterator[Document]:
        def pieces() -> Iterator[bytes]:
            yield b"{" * 100_000
            raise KeyboardInterrupt

        yield Document("instances_train.json", pieces())

    monkeypatch.setattr(coco, "build_documents", documents)
    with pytest.raises(KeyboardInterrupt):
        dataset.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


def test_conversion_that_would_lose_something_leaves_nothing_behind(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coco, "list_losses", lambda _: ["a thing"])
    with pytest.raises(LossyError, match="a thing"):
        dataset.save(tmp_path / "deep/out")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


@pytest.mark.parametrize("name", ["../x.json", "/x.json", "a/../../x.json"])
def test_documents_and_images_never_lie_outside(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.setattr(coco, "assign_image_paths", lambda _: [name] * 3)
    with pytest.raises(OutputError, match="outside"):
        dataset.save(tmp_path / "out")
    monkeypatch.setattr(coco, "build_documents", lambda *_: iter([Document(name, [b"x"])]))
    with pytest.raises(OutputError, match="outside"):
        dataset.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


def test_disk_that_is_full_is_reported_and_nothing_is_left_behind(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OutputError, match=r"the disk is full.*nothing was left behind"):
        dataset.save(tmp_path / "out", images_as="copy")
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="no limit on file sizes here")
def test_a_file_at_its_size_limit_is_reported_and_nothing_is_left_behind(tmp_path: Path) -> None:
    entries = [box(id=k) for k in range(5000)]
    (tmp_path / "instances_train.json").write_bytes(document(*entries))
    script = """
        import resource, signal, sys
        import boxmend
        dataset = boxmend.load(sys.argv[1])
        dataset.boxes += 0.5
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that writing fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        try:
            dataset.save(sys.argv[2])
        except boxmend.BoxmendError as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(Path(boxmend.__file__).parents[1])},
    )
    assert done.stdout.startswith(f"OutputError {tmp_path / 'out'}: could not be written (File too")
    assert [path.name for path in tmp_path.iterdir()] == ["instances_train.json"]


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_to_what_is_not_an_image_is_not_copied(tmp_path: Path, linked: str) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "1.jpg").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----")
    folder = tmp_path / "in"
    folder.mkdir()
    if linked == "folder":
        (folder / "images").symlink_to(private)
    else:
        (folder / "images").mkdir()
        (folder / "images/1.jpg").symlink_to(private / "1.jpg")
    images = [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}]
    (folder / "instances_train.json").write_bytes(document(box(), images=images))
    dataset = boxmend.load(folder)
    words = rf"images/1\.jpg: is a link to {private}/1\.jpg, which is not a readable image"
    with pytest.raises(DataError, match=words):
        dataset.save(tmp_path / "out", images_as="copy")
    assert not (tmp_path / "out").exists()
    dataset.save(tmp_path / "out")  # a link gives nothing away
    assert (tmp_path / "out/images/1.jpg").is_symlink()


def test_links_to_images_are_copied(tmp_path: Path) -> None:
    (tmp_path / "in/images").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "in/images/1.png")
    images = [{"id": 1, "file_name": "1.png", "width": 9, "height": 9}]
    (tmp_path / "in/instances_train.json").write_bytes(document(box(), images=images))
    boxmend.load(tmp_path / "in").save(tmp_path / "links")
    boxmend.load(tmp_path / "links").save(tmp_path / "copies", images_as="copy")
    copied = tmp_path / "copies/images/1.png"
    assert not copied.is_symlink()
    assert copied.read_bytes() == (tmp_path / "in/images/1.png").read_bytes()
