"""The way back from a mended file, whatever it was, and from whatever it became."""

import json
import os
import random
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import boxmend
from boxmend.data.files.locks import try_lock
from boxmend.errors import DataError, OutputError, UsageError
from boxmend.repair import patches
from boxmend.repair.patches import encode, make_patch, read_patches
from tests.fabricated_runs import RELABELLED, Visit, bytes_of, drawn, finished_run

PIECES = st.lists(
    st.sampled_from(
        [b"}", b"\n", b'{"id": 1, ', b"0.5 0.5", b"\xff\x00", b", ", b"<a>", b"x" * 90]
    ),
    max_size=30,
).map(b"".join)


def through_json(before: bytes, after: bytes, folder: Path) -> patches.FilePatch:
    path = folder / "patch.json"
    path.write_bytes(encode({"a/b": make_patch(before, after)}))
    return read_patches(path)["a/b"]


@settings(deadline=None, max_examples=300)
@given(before=PIECES, after=PIECES)
@example(before=b"", after=b"}")
@example(before=b"}", after=b"")
@example(before=b"ab}ab}" * 70, after=b"cd}" * 200)
def test_a_patch_leads_back_from_any_file_to_any_other(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    patch = through_json(before, after, tmp_path_factory.getbasetemp())
    assert patch.undo(after) == before
    assert (patch.before, patch.after) == (patches.sha256(before), patches.sha256(after))


def test_a_short_change_has_a_short_patch() -> None:
    entries = [f'{{"id": {k}, "category_id": {k % 7}, "bbox": [1, 2, 3, 4]}}' for k in range(1000)]
    before = ",".join(entries)
    entries[500] = entries[500].replace("[1, 2", "[1.5, 2").replace("}", ', "boxmend": {"a": 1}}')
    patch = make_patch(before.encode(), ",".join(entries).encode())
    assert len(patch.edits) == 1
    assert patch.deflated is None
    assert len(encode({"a": patch})) < 400  # 147 of them two hashes, 85 a digest
    line = make_patch(b"0 1 2\n3 4 5\n6 7 8\n", b"0 1 2\n3 9 5\n6 7 8\n")
    assert line.edits == ((8, 9, b"4"),)


def test_a_change_of_everything_is_kept_deflated() -> None:
    draw = random.Random(3)
    before = "".join(f'{{"x": {draw.random()}}}' for _ in range(500)).encode()
    after = "".join(f'{{"x": {draw.random()}}}' for _ in range(500)).encode()
    patch = make_patch(before, after)
    assert patch.deflated is not None
    assert len(encode({"a": patch})) < len(before)
    assert patch.undo(after) == before


def test_many_short_changes_are_kept_deflated_where_that_is_shorter() -> None:
    entries = ['{"bbox": [1, 2, 3, 4]}'] * 400
    before = ",".join(entries).encode()
    entries[::2] = ['{"bbox": [5, 6, 7, 8]}'] * 200
    patch = make_patch(before, ",".join(entries).encode())
    assert patch.edits == ()
    assert patch.deflated is not None
    assert len(patch.deflated) < 200  # where each of 200 edits takes more than a byte


@pytest.fixture
def mended_folder(tmp_path: Path) -> Path:
    """A mended VOC dataset: both of its documents differ."""
    visits = [Visit(0, 0, RELABELLED, 0, 1.0), Visit(0, 3, RELABELLED, 0, 1.0)]
    run = finished_run(tmp_path / "run", drawn(tmp_path, "voc"), visits)
    boxmend.apply(run, tmp_path / "out")
    return tmp_path / "out"


def test_a_file_that_was_edited_since_is_named_and_nothing_is_touched(mended_folder: Path) -> None:
    edited = mended_folder / "Annotations/b.xml"
    edited.write_bytes(edited.read_bytes() + b"\n")
    before = bytes_of(mended_folder)
    with pytest.raises(DataError, match=r"Annotations/b\.xml: was edited since .* nothing was"):
        boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before


def test_a_file_that_is_gone_is_named_and_nothing_is_touched(mended_folder: Path) -> None:
    (mended_folder / "Annotations/b.xml").unlink()
    before = bytes_of(mended_folder)
    with pytest.raises(DataError, match=r"Annotations/b\.xml: cannot be read \(No such file"):
        boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before


def test_a_revert_that_was_interrupted_can_be_repeated(
    mended_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = bytes_of(tmp_path / "data")
    real = Path.replace

    def dies_at_the_second_file(self: Path, target: Path) -> Path:
        if target.name == "b.xml":
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dies_at_the_second_file)
        with pytest.raises(KeyboardInterrupt):
            boxmend.revert(mended_folder)
    half = bytes_of(mended_folder)
    assert half["Annotations/a.xml"] == original["Annotations/a.xml"]
    assert half["Annotations/b.xml"] != original["Annotations/b.xml"]
    assert {"patch.json", "changes.csv"} <= half.keys()
    assert boxmend.revert(mended_folder) == ["Annotations/a.xml", "Annotations/b.xml"]
    assert bytes_of(mended_folder) == original


def test_a_folder_in_the_place_of_the_list_of_changes_is_noticed_first(mended_folder: Path) -> None:
    (mended_folder / "changes.csv").unlink()
    (mended_folder / "changes.csv").mkdir()
    before = bytes_of(mended_folder)
    with pytest.raises(DataError, match=r"changes\.csv: is a folder.*nothing was reverted"):
        boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before


def test_of_two_reverts_at_once_one_gets_a_clear_message(mended_folder: Path) -> None:
    before = bytes_of(mended_folder)
    with (
        try_lock(mended_folder),
        pytest.raises(OutputError, match="out: another process is writing into it; run revert"),
    ):
        boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before
    assert boxmend.revert(mended_folder)


def test_a_full_disk_leaves_what_can_be_reverted_later(
    mended_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    before = bytes_of(mended_folder)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before
    boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == bytes_of(tmp_path / "data")


def test_a_folder_without_a_patch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        boxmend.revert(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no patch\.json, so there is nothing to revert"):
        boxmend.revert(tmp_path)


HASH = "0" * 64


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"[" * 100_000,
        b'{"boxmend_patch": 2, "files": {}}',
        b'{"boxmend_patch": 1}',
        b'{"boxmend_patch": 1, "files": [1]}',
        b'{"boxmend_patch": 1, "files": {"a": 3}}',
        *(
            json.dumps(
                {"boxmend_patch": 1, "files": {"a": {"before": HASH, "after": HASH} | document}}
            ).encode()
            for document in (
                {},
                {"ranges": 3},
                {"ranges": [[1, 2]]},
                {"ranges": [[2, 1, ""]]},
                {"ranges": [[0, 3, ""], [2, 4, ""]]},
                {"ranges": [[0, True, ""]]},
                {"ranges": [[0, 1, "\u2603"]]},
                {"deflated": "?"},
                {"deflated": "AAAA", "size": -1},
                {"deflated": "AAAA", "size": "12"},
                {"deflated": "AAAA", "size": True},
            )
        ),
        b'{"boxmend_patch": 1, "files": {"../a": {"before": "", "after": "", "ranges": []}}}',
        b'{"boxmend_patch": 1, "files": {"/a": {"before": "", "after": "", "ranges": []}}}',
    ],
)
def test_a_damaged_patch_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "patch.json").write_bytes(content)
    with pytest.raises(DataError, match=r"patch\.json: is "):
        boxmend.revert(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"abc"


def test_a_deflated_file_says_its_size(tmp_path: Path) -> None:
    patch = through_json(b"a" * 5000, b"b" * 5000, tmp_path)
    assert patch.size == 5000
    assert make_patch(b"a" * 5000, None).size == 5000


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (None, "1,000,001 bytes are more than the limit of 1,000,000"),
        (4096, "it has more than the 4,096 bytes that patch.json states"),
        (10**15, "000 bytes are more than the limit .* BOXMEND_MAX_PATCH_BYTES"),
    ],
)
def test_a_patch_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None, reason: str
) -> None:
    monkeypatch.setenv("BOXMEND_MAX_PATCH_BYTES", "1000000")
    deflated = zlib.compress(b"0" * 50_000_000)
    assert len(deflated) < 50_000  # a thousandth
    patch = patches.FilePatch(HASH, None, deflated=deflated, size=size)
    tracemalloc.start()
    with pytest.raises(DataError, match=f"a: cannot be restored .*{reason}"):
        patches.read_original(tmp_path / "a", patch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_the_limit_is_the_largest_size_that_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = make_patch(b"a" * 5000, None)
    monkeypatch.setenv("BOXMEND_MAX_PATCH_BYTES", "5000")
    assert patches.read_original(tmp_path / "a", patch) == b"a" * 5000
    monkeypatch.setenv("BOXMEND_MAX_PATCH_BYTES", "4999")
    with pytest.raises(DataError, match="5,000 bytes are more than the limit of 4,999"):
        patches.read_original(tmp_path / "a", patch)


def test_a_patch_of_an_earlier_version_still_leads_back(mended_folder: Path) -> None:
    document = json.loads((mended_folder / "patch.json").read_bytes())
    del document["digest"]
    for entry in document["files"].values():
        entry.pop("size", None)
    (mended_folder / "patch.json").write_text(json.dumps(document))
    assert boxmend.revert(mended_folder) == ["Annotations/a.xml", "Annotations/b.xml"]


def change(entry: dict[str, Any]) -> None:
    entry["ranges"][0][2] += "x"


def inflate(entry: dict[str, Any]) -> None:
    entry["deflated"] = "AAAA"


@pytest.mark.parametrize("damage", [change, inflate])
def test_a_patch_that_does_not_lead_back_touches_nothing(mended_folder: Path, damage: Any) -> None:
    document = json.loads((mended_folder / "patch.json").read_bytes())
    del document["digest"]
    damage(document["files"]["Annotations/b.xml"])
    (mended_folder / "patch.json").write_text(json.dumps(document))
    before = bytes_of(mended_folder)
    with pytest.raises(DataError, match=r"b\.xml: patch\.json is damaged"):
        boxmend.revert(mended_folder)
    assert bytes_of(mended_folder) == before


def test_a_link_out_of_the_folder_is_not_followed(mended_folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (mended_folder / "Annotations").rename(elsewhere)
    (mended_folder / "Annotations").symlink_to(elsewhere)
    before = bytes_of(elsewhere)
    with pytest.raises(DataError, match=r"xml: is a link out of the folder.* nothing was reverted"):
        boxmend.revert(mended_folder)
    assert bytes_of(elsewhere) == before
    (mended_folder / "Annotations").unlink()
    elsewhere.rename(mended_folder / "Annotations")
    mended_folder.rename(elsewhere)
    mended_folder.symlink_to(elsewhere)  # the folder itself may be one
    assert boxmend.revert(mended_folder) == ["Annotations/a.xml", "Annotations/b.xml"]
