"""Image names that tools wrote differently: what they may mean, and which file they stand for."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

import boxmend
from boxmend.data.dataset import Dataset
from boxmend.data.formats import read
from boxmend.data.formats.image_names import ImageFolder, find_inexact_names, interpret
from boxmend.data.formats.reading import is_safe_name
from boxmend.errors import DataError


def put(folder: Path, *names: str, size: tuple[int, int] = (20, 10)) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size).save(folder / name, format="png")


def coco(folder: Path, *names: str, size: tuple[int, int] = (20, 10)) -> Path:
    """Write a COCO file with one annotation for each of these images."""
    width, height = size
    top = {
        "images": [
            {"id": k, "file_name": name, "width": width, "height": height}
            for k, name in enumerate(names)
        ],
        "annotations": [
            {"id": k, "image_id": k, "category_id": 1, "bbox": [1, 2, 3, 4]}
            for k in range(len(names))
        ],
        "categories": [{"id": 1, "name": "cat"}],
    }
    path = folder / "instances_train.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(top))
    return path


def kinds(dataset: Dataset) -> list[str]:
    return [finding.kind for finding in dataset.findings]


# What a name may mean


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("a.png", []),
        ("a%20b.png", ["a b.png"]),
        ("x\\a.png", ["x/a.png", "a.png"]),
        ("5e6f7a8b-c.png", ["c.png"]),
        ("5e6f7a8-c.png", []),  # seven digits are no prefix
        ("5e6f7a8b-", []),
        ("../x/a.png", ["x/a.png", "a.png"]),
        ("/data/a%2Fb.png", ["data/a%2Fb.png", "a%2Fb.png", "data/a/b.png", "a/b.png", "b.png"]),
        ("/data/local-files/?d=x/a%20b.png", ["x/a b.png", "a b.png"]),
        ("/data/local-files?d=x%2Fa.png&t=1", ["x/a.png", "a.png"]),
        ("https://host:80/x/a.png", ["x/a.png", "a.png"]),
        ("s3://bucket/a.png", ["a.png"]),
        ("C:\\x\\a.png", ["x/a.png", "a.png"]),
        ("%2e%2e/a.png", ["a.png"]),
        ("a\0b.png", []),
        ("x" * 5000, []),
        ("", []),
    ],
)
def test_a_name_may_mean_these_files(written: str, names: list[str]) -> None:
    assert [one.name for one in interpret(written)] == names


def test_an_interpretation_says_how_it_came_about() -> None:
    hows = {one.name: one.how for one in interpret("/data/upload/1/5e6f7a8b-a%20b.png")}
    assert hows["5e6f7a8b-a b.png"] == "url-encoded, another folder"
    assert hows["a b.png"] == "url-encoded, another folder, upload prefix"
    assert next(one.how for one in interpret("x\\a.png")) == "backslashes"


@given(st.text(max_size=40) | st.text("./\\%2eE5fF-:?d=&ab", max_size=40))
def test_every_interpretation_stays_inside_the_folder(name: str) -> None:
    found = [one.name for one in interpret(name)]
    assert all(map(is_safe_name, found))
    assert name not in found
    assert len(found) == len(set(found))


# Which file it stands for


def test_a_file_of_another_size_is_not_meant(tmp_path: Path) -> None:
    put(tmp_path, "a b.png")
    folder = ImageFolder(tmp_path)
    for size in ((20, 10), (10, 20), (0, 0), None):  # annotated upright, or turned
        match = folder.find("a%20b.png", size)
        assert match is not None
        assert (match.found, match.how) == ("a b.png", "url-encoded")
    assert folder.find("a%20b.png", (20, 11)) is None


def test_a_file_in_a_nested_folder_is_meant_if_it_is_the_only_one(tmp_path: Path) -> None:
    put(tmp_path, "x/a.png", "x/y/b.png", "z/b.png", ".git/a.png")
    folder = ImageFolder(tmp_path)
    match = folder.find("a.png")
    assert match is not None
    assert (match.found, match.how) == ("x/a.png", "nested folder")
    assert folder.find("b.png") is None
    assert (match := folder.find("y/b.png")) is not None
    assert match.found == "x/y/b.png"
    assert folder.find("c.png") is None


def test_a_file_that_two_names_may_mean_counts_for_neither(tmp_path: Path) -> None:
    put(tmp_path, "c.png", "d.png")
    names = {0: "aaaaaaaa-c.png", 1: "bbbbbbbb-c.png", 2: "aaaaaaaa-d.png"}
    found = find_inexact_names(ImageFolder(tmp_path), names, {}, set())
    assert {row: match.found for row, match in found.items()} == {2: "d.png"}
    assert find_inexact_names(ImageFolder(tmp_path), names, {}, {"d.png"}) == {}


def test_links_out_of_the_folder_are_not_searched(tmp_path: Path) -> None:
    put(tmp_path / "secret", "a.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "secret")
    assert ImageFolder(tmp_path / "in").find("a.png") is None


# COCO files


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("images/a%20b.png", "images/a b.png"),
        ("images\\5e6f-b.png", "images/5e6f-b.png"),
        ("/data/upload/1/5e6f7a8b-b.png", "images/5e6f7a8b-b.png"),
        ("/data/upload/1/5e6f7a8b-b.png", "images/b.png"),
        ("/data/local-files/?d=store/b%20c.png", "images/store/b c.png"),
        ("../media/b.png", "images/b.png"),
        ("b.png", "images/one/two/b.png"),
    ],
)
def test_the_image_is_found_and_the_file_keeps_its_bytes(
    written: str, there: str, tmp_path: Path
) -> None:
    put(tmp_path / "in", there)
    path = coco(tmp_path / "in", written)
    dataset = boxmend.load(path)
    assert [Path(place) for place in dataset.images.paths] == [tmp_path / "in" / there]
    (finding,) = dataset.findings
    assert (finding.kind, finding.severity) == ("inexact-name", "warning")
    assert repr(written) in finding.message
    dataset.save(tmp_path / "out")
    assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert (tmp_path / "out" / there).is_symlink()
    again = boxmend.load(tmp_path / "out")
    assert again.images.file_names == dataset.images.file_names


def test_the_literal_name_counts_if_both_files_exist(tmp_path: Path) -> None:
    put(tmp_path / "images", "a%20b.png", "a b.png")
    dataset = boxmend.load(coco(tmp_path, "a%20b.png"))
    assert dataset.images.file_names == ["a%20b.png"]
    assert dataset.findings == ()


def test_a_file_that_another_entry_names_is_not_taken_from_it(tmp_path: Path) -> None:
    put(tmp_path / "images", "a b.png")
    dataset = read(coco(tmp_path, "a%20b.png", "a b.png"))
    assert dataset.images.file_names == ["a%20b.png", "a b.png"]
    assert dataset.findings == ()  # `check` reports that the first one is missing


def test_backslashes_without_a_file_become_slashes_and_are_reported(tmp_path: Path) -> None:
    dataset = boxmend.load(coco(tmp_path, "images\\e5f6-b.jpg"))
    assert dataset.images.file_names == ["images/e5f6-b.jpg"]
    assert kinds(dataset) == ["inexact-name"]
    assert "no such image" in dataset.findings[0].message


def test_a_file_with_a_backslash_in_its_name_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "images", "a\\b.png")
    put(tmp_path / "images", "a/b.png")
    with pytest.raises(DataError, match=r"a\\\\b\.png' has backslashes"):
        boxmend.load(coco(tmp_path, "a\\b.png"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/etc/passwd", "is absolute"),
        ("C:\\x.png", "is absolute"),
        ("../../x.png", "leads out of the folder of the images"),
        ("x/", "is not the name of a file"),
        ("a\0b", "has a NUL character"),
    ],
)
def test_an_unsafe_name_that_means_no_image_is_refused_with_the_reason(
    name: str, words: str, tmp_path: Path
) -> None:
    put(tmp_path, "x.png")  # outside of the folder of the file
    with pytest.raises(DataError, match=words):
        boxmend.load(coco(tmp_path / "in", name))


def test_every_command_reports_inexact_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "images", "a b.png")
    boxmend.load(coco(tmp_path, "a%20b.png"))
    assert "'a%20b.png' as 'a b.png' (url-encoded)" in caplog.text


def _join_backslashes(name: str) -> str:
    return name.replace("/", "\\")


WAYS: tuple[Callable[[str], str], ...] = (
    str,
    lambda name: quote(name),
    lambda name: quote(name, safe=""),
    _join_backslashes,
    lambda name: f"/data/upload/7/{quote(name)}",
    lambda name: f"/data/local-files/?d={quote(name)}",
    lambda name: f"../elsewhere/{name}",
)
plain_names = st.lists(
    st.from_regex(r"[a-d é%+][a-d é%+]{0,3}(/[a-d]{1,2})?", fullmatch=True).filter(is_safe_name),
    min_size=1,
    max_size=4,
    unique=True,
)


@settings(max_examples=60, deadline=None)
@given(plain_names, st.data())
def test_however_names_are_written_the_file_keeps_its_bytes_and_is_read_alike(
    stems: list[str], data: st.DataObject
) -> None:
    names = [f"{stem}.png" for stem in stems]
    way = data.draw(st.sampled_from(WAYS))  # a tool writes all names in the same way
    written = [way(name) for name in names]
    assume(all(name == name.strip() for name in names))
    # Which of several files of one name is meant can depend on which others are there.
    assume(len({name.rpartition("/")[2] for name in names}) == len(names))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        put(root / "in/images", *names)
        path = coco(root / "in", *written)
        before = path.read_bytes()
        dataset = read(path)
        found = dict(zip(written, dataset.images.file_names, strict=True))
        for text, name in zip(written, names, strict=True):
            literal = is_safe_name(text) and os.path.isfile(root / "in/images" / text)
            if literal:
                assert found[text] == text  # the literal name counts first
            elif len(set(written)) == 1:
                assert found[text] == name
        dataset.save(root / "out")
        assert (root / "out" / path.name).read_bytes() == before == path.read_bytes()
        again = read(root / "out")
        assert again.images.file_names == dataset.images.file_names
        assert kinds(again) == kinds(dataset)
