"""Checks of the image files, which Pillow makes here."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from boxmend.data.checks import check
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding
from boxmend.data.joining import join
from tests.data.checks.handmade import INSIDE, dataset_of, find_findings


def with_files(dataset: Dataset, *paths: Path | str) -> Dataset:
    return replace(dataset, images=replace(dataset.images, paths=[str(path) for path in paths]))


def save(path: Path, size: tuple[int, int] = (100, 80), **options: Any) -> Path:
    gradient = Image.linear_gradient("L").resize(size)
    gradient.save(path, **options)
    return path


def make_exif(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def image_kinds(dataset: Dataset) -> list[tuple[str, str | None]]:
    skipped = {"no-annotations", "class-imbalance"}
    findings = check(dataset, jobs=1)
    return [(finding.kind, finding.image) for finding in findings if finding.kind not in skipped]


def test_whole_images_of_the_recorded_size_give_no_findings(tmp_path: Path) -> None:
    dataset = with_files(dataset_of([INSIDE]), save(tmp_path / "0.jpg"))
    assert image_kinds(dataset) == []


def test_missing_unreadable_and_truncated_images_are_reported(tmp_path: Path) -> None:
    whole = save(tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.jpg").write_bytes(b"not an image")
    paths = [tmp_path / name for name in ("gone.jpg", "text.jpg", "cut.jpg")]
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 3), *paths)
    expected = ["missing-image", "unreadable-image", "truncated-image"]
    assert image_kinds(dataset) == [(kind, f"{k}.jpg") for k, kind in enumerate(expected)]
    (finding,) = find_findings(dataset, "missing-image", open_images=True)
    assert finding.message == f"{paths[0]}: no such file"
    assert finding.file == str(Path("data/0.doc"))


@pytest.mark.parametrize("file", [str(Path("data/0.doc")), "data", "nowhere/0.jpg"])
def test_an_image_the_reader_reported_missing_is_not_reported_again(file: str) -> None:
    dataset = with_files(dataset_of(), "nowhere/0.jpg")
    reported = Finding("missing-image", "not there", file, "0.jpg")
    assert image_kinds(replace(dataset, findings=(reported,))) == [("missing-image", "0.jpg")]
    other = replace(reported, file="another/place")
    assert len(image_kinds(replace(dataset, findings=(other,)))) == 2


def test_images_without_a_path_are_not_opened() -> None:
    assert image_kinds(with_files(dataset_of(), "")) == []


def test_no_image_is_opened_unless_asked_for() -> None:
    assert find_findings(with_files(dataset_of(), "nowhere.jpg"), "missing-image") == []


def test_a_size_that_differs_is_reported_with_both_sizes(tmp_path: Path) -> None:
    dataset = with_files(dataset_of(), save(tmp_path / "0.png", (90, 80)))
    (finding,) = find_findings(dataset, "size-differs", open_images=True)
    assert finding.message.endswith("the recorded size is 100 x 80, the file has 90 x 80")
    unknown = with_files(dataset_of(sizes=[(0, 0)]), tmp_path / "0.png")
    assert image_kinds(unknown) == []


def test_swapped_width_and_height_are_blamed_on_exif_only_where_it_turns(tmp_path: Path) -> None:
    for orientation, words in (
        *((turn, f"(EXIF orientation {turn})") for turn in range(5, 9)),
        *((turn, "width and height are swapped") for turn in range(1, 5)),
    ):
        path = save(tmp_path / f"{orientation}.jpg", (80, 100), exif=make_exif(orientation))
        (finding,) = find_findings(with_files(dataset_of(), path), "size-differs", open_images=True)
        assert words in finding.message


def test_exif_rotation_is_reported_with_what_viewers_do(tmp_path: Path) -> None:
    path = save(tmp_path / "0.jpg", exif=make_exif(8))
    dataset = with_files(dataset_of(), path)
    (finding,) = find_findings(dataset, "exif-rotation", open_images=True)
    assert "EXIF orientation 8; viewers turn it by 90 degrees counterclockwise" in finding.message
    upright = with_files(dataset_of(), save(tmp_path / "1.jpg", exif=make_exif(1)))
    assert image_kinds(upright) == []


@pytest.mark.parametrize("orientation", range(2, 9))
def test_what_viewers_do_is_what_pillow_does(orientation: int, tmp_path: Path) -> None:
    operations = {
        2: ["left to right"],
        3: ["180"],
        4: ["top to bottom"],
        5: ["90 degrees clockwise", "left to right"],
        6: ["90 degrees clockwise"],
        7: ["90 degrees counterclockwise", "left to right"],
        8: ["90 degrees counterclockwise"],
    }
    methods = {
        "left to right": Image.Transpose.FLIP_LEFT_RIGHT,
        "top to bottom": Image.Transpose.FLIP_TOP_BOTTOM,
        "180": Image.Transpose.ROTATE_180,
        "90 degrees clockwise": Image.Transpose.ROTATE_270,
        "90 degrees counterclockwise": Image.Transpose.ROTATE_90,
    }
    image = Image.frombytes("L", (3, 2), bytes(range(6)))
    expected = image
    for words in operations[orientation]:
        expected = expected.transpose(methods[words])
    image.getexif()[0x0112] = orientation
    assert ImageOps.exif_transpose(image).tobytes() == expected.tobytes()
    path = save(tmp_path / "0.jpg", exif=make_exif(orientation))
    (finding,) = find_findings(with_files(dataset_of(), path), "exif-rotation", open_images=True)
    assert all(words in finding.message for words in operations[orientation])


def test_the_same_content_twice_names_both_images_and_their_splits(tmp_path: Path) -> None:
    first = save(tmp_path / "first.png")
    for name in ("second.png", "third.png"):
        (tmp_path / name).write_bytes(first.read_bytes())
    other = save(tmp_path / "other.png", (100, 80), compress_level=0)
    paths = [first, other, tmp_path / "second.png", tmp_path / "third.png"]
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 4), *paths)
    dataset.images.splits[3] = "val"
    second, third = find_findings(dataset, "duplicate-image", open_images=True)
    assert (second.image, third.image) == ("2.jpg", "3.jpg")
    assert f"same content as 0.jpg ({first}), both in split 'train'" in second.message
    assert "across splits: this image is in 'val', the other in 'train'" in third.message


def test_one_file_listed_by_two_sources_is_a_duplicate_across_sources(tmp_path: Path) -> None:
    dataset = with_files(dataset_of(), save(tmp_path / "0.png"))
    (finding,) = find_findings(join([dataset, dataset]), "duplicate-image", open_images=True)
    assert "from another source: " in finding.message


def test_empty_files_are_not_called_duplicates(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"")
    dataset = with_files(dataset_of(sizes=[(1, 1)] * 2), tmp_path / "a", tmp_path / "b")
    assert [kind for kind, _ in image_kinds(dataset)] == ["unreadable-image"] * 2


def test_progress_counts_distinct_files(tmp_path: Path) -> None:
    path = save(tmp_path / "0.png")
    dataset = with_files(dataset_of(sizes=[(100, 80)] * 2), path, path)
    ticks: list[tuple[int, int]] = []
    check(dataset, progress=lambda done, n: ticks.append((done, n)))
    assert ticks == [(1, 1)]
