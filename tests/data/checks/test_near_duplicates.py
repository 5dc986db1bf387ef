"""Near-duplicates across splits: copies are found, other images and images of one split are not."""

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from boxmend.data.checks import check
from boxmend.data.checks.near_duplicates import Match, find_matches
from boxmend.data.dataset import Dataset
from boxmend.data.findings import Finding, Severity
from boxmend.data.images.appearance import Appearance, describe_appearance, shrink_image
from boxmend.data.images.reading import InspectedImage
from boxmend.data.joining import join
from boxmend.data.synth.scene import draw_scene
from tests.data.checks.handmade import dataset_of


def draw(number: int, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Return a scene of large soft spots, different for each number, like a blurred photograph."""
    rng = np.random.default_rng(number)
    spots = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    grain = rng.normal(0, 6, (size[1], size[0], 3))
    scene = np.asarray(spots.resize(size, Image.Resampling.BICUBIC)) + grain
    return Image.fromarray(scene.clip(0, 255).astype(np.uint8))


def compress(image: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=30)
    return Image.open(buffer)


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "re-encoded": compress,
    "half as large": lambda image: image.resize((160, 120), Image.Resampling.BICUBIC),
    "squeezed": lambda image: image.resize((256, 256), Image.Resampling.BILINEAR),
    "enlarged": lambda image: image.resize((640, 480), Image.Resampling.BICUBIC),
    "cropped": lambda image: image.crop((5, 4, 315, 236)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.2),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.7),
    "more contrast": lambda image: ImageEnhance.Contrast(image).enhance(1.3),
    "grey": lambda image: image.convert("L"),
    "with a palette": lambda image: image.quantize(64),
}


def find_copies(
    folder: Path, pictures: dict[str, Image.Image], splits: list[str], jobs: int = 1
) -> list[Finding]:
    """Return the findings about near-duplicates after saving the pictures as 0.png, 1.png, ..."""
    dataset = with_pictures(folder, pictures, splits)
    findings = check(dataset, jobs=jobs)
    return [finding for finding in findings if finding.kind == "near-duplicate"]


def with_pictures(folder: Path, pictures: dict[str, Image.Image], splits: list[str]) -> Dataset:
    for name, picture in pictures.items():
        picture.save(folder / name)
    dataset = dataset_of(sizes=[picture.size for picture in pictures.values()])
    paths = [str(folder / name) for name in pictures]
    images = replace(dataset.images, paths=paths, file_names=list(pictures), splits=splits)
    return replace(dataset, images=images)


@pytest.mark.parametrize("kind", COPIES)
def test_a_copy_in_another_split_is_a_warning_with_both_names(kind: str, tmp_path: Path) -> None:
    pictures = {f"{k}.png": draw(k) for k in range(4)} | {"copy.png": COPIES[kind](draw(2))}
    (finding,) = find_copies(tmp_path, pictures, ["train"] * 4 + ["val"])
    assert finding.severity is Severity.WARNING
    assert finding.image == "copy.png"
    assert f"{tmp_path / 'copy.png'}: looks like 2.png ({tmp_path / '2.png'})" in finding.message
    assert "this image is in 'val', the other in 'train'" in finding.message


def test_the_closest_pairs_come_first(tmp_path: Path) -> None:
    copies = {"2.png": COPIES["cropped"](draw(0)), "3.png": COPIES["half as large"](draw(1))}
    pictures = {"0.png": draw(0), "1.png": draw(1)} | copies
    found = find_copies(tmp_path, pictures, ["train", "train", "val", "val"])
    assert [finding.image for finding in found] == ["3.png", "2.png"]


def test_copies_in_one_split_are_not_reported(tmp_path: Path) -> None:
    pictures = {"a.png": draw(0), "b.png": compress(draw(0)), "c.png": draw(1)}
    assert find_copies(tmp_path, pictures, ["train"] * 3) == []
    assert find_copies(tmp_path, pictures, ["train", "train", "val"]) == []


def test_the_same_bytes_are_a_duplicate_and_not_a_near_duplicate(tmp_path: Path) -> None:
    dataset = with_pictures(tmp_path, {"a.png": draw(0), "b.png": draw(0)}, ["train", "val"])
    kinds = {finding.kind for finding in check(dataset, jobs=1)}
    assert "duplicate-image" in kinds
    assert "near-duplicate" not in kinds


def test_different_images_are_no_near_duplicates(tmp_path: Path) -> None:
    names = [f"{k}.png" for k in range(60)]
    pictures = {name: draw(k, (80, 60)) for k, name in enumerate(names)}
    assert find_copies(tmp_path, pictures, ["train", "val"] * 30) == []


def test_blank_and_nearly_blank_images_are_no_near_duplicates(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(250, 256, (60, 80), np.uint8)
    ramp = np.tile(np.linspace(0, 255, 80).astype(np.uint8), (60, 1))
    arrays = [np.zeros_like(noise), np.full_like(noise, 255), noise, noise[::-1], ramp, ramp.T[:60]]
    pictures = {f"{k}.png": Image.fromarray(array) for k, array in enumerate(arrays)}
    assert find_copies(tmp_path, pictures, ["train", "val"] * 3) == []


def test_addresses_without_splits_count_as_splits(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    dataset = with_pictures(tmp_path, {"a.png": draw(0)}, ["all"])
    other = with_pictures(tmp_path / "b", {"a.png": compress(draw(0))}, ["all"])
    other.sources[0].group = 1
    findings = check(join([dataset, other]), jobs=1)
    (message,) = [finding.message for finding in findings if finding.kind == "near-duplicate"]
    assert "the other is in another dataset: " in message


def test_worker_processes_find_the_same(tmp_path: Path) -> None:
    pictures = {f"{k}.png": draw(k, (40, 30)) for k in range(63)}
    pictures |= {"copy.png": draw(7, (40, 30)).resize((60, 40))}
    (finding,) = find_copies(tmp_path, pictures, ["train"] * 63 + ["val"], jobs=2)
    assert (finding.image, "looks like 7.png" in finding.message) == ("copy.png", True)


def inspected(bits: int | Sequence[int], thumbnail: int = 0) -> InspectedImage:
    """Return an image whose hash has these bits set, or that many of the first ones."""
    chosen = range(bits) if isinstance(bits, int) else bits
    hash = np.packbits(np.isin(np.arange(256), list(chosen))).tobytes()
    pixels = np.random.default_rng(thumbnail).integers(0, 256, 256, np.uint8).tobytes()
    return InspectedImage("image.jpg", appearance=Appearance(hash, pixels))


def test_the_most_similar_image_of_an_earlier_split_is_named() -> None:
    images = [inspected(bits) for bits in (0, 6, 9, 200, 7)]
    splits = np.array([0, 0, 1, 2, 2])
    assert list(find_matches(images, splits)) == [Match(2, 1, 3), Match(4, 1, 1)]


def test_hashes_and_thumbnails_must_both_agree() -> None:
    splits = np.array([0, 1])
    assert list(find_matches([inspected(0), inspected(32)], splits)) == [Match(1, 0, 32)]
    assert list(find_matches([inspected(0), inspected(32, thumbnail=1)], splits)) == []


@pytest.mark.parametrize(("bits", "is_found"), [(range(184, 256), True), (range(183, 256), False)])
def test_at_most_72_bits_differ(bits: range, is_found: bool) -> None:
    found = list(find_matches([inspected(0), inspected(bits)], np.array([0, 1])))
    assert found == [Match(1, 0, 72)] * is_found


@pytest.mark.parametrize(("rows", "is_found"), [((8, 8, 4), True), ((8, 8, 5), False)])
def test_at_most_20_bits_of_the_lowest_frequencies_differ(
    rows: tuple[int, ...], is_found: bool
) -> None:
    bits = [16 * row + column for row, count in enumerate(rows) for column in range(count)]
    found = list(find_matches([inspected(0), inspected(bits)], np.array([0, 1])))
    assert found == [Match(1, 0, 20)] * is_found


def test_many_pairs_are_compared_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [inspected(k % 7) for k in range(40)]
    splits = np.array([0] * 10 + [1] * 30)
    whole = list(find_matches(images, splits))
    monkeypatch.setattr("boxmend.data.checks.near_duplicates.PAIRS_PER_BLOCK", 25)
    assert list(find_matches(images, splits)) == whole
    assert [(match.row, match.other) for match in whole] == [(k, k % 7) for k in range(10, 40)]


def test_no_images_give_no_matches() -> None:
    assert list(find_matches([], np.array([], np.int64))) == []


def test_drawn_toys_do_not_look_alike() -> None:
    scenes = [Image.fromarray(draw_scene(0, k).pixels) for k in range(30)]
    looks = [describe_appearance(shrink_image(scene)) for scene in scenes]
    images = [InspectedImage(f"{k}", appearance=look) for k, look in enumerate(looks)]
    assert list(find_matches(images, np.arange(30) % 2)) == []
