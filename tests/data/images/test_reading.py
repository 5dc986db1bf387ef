"""Valid and broken image files, made here by Pillow or byte by byte."""

import io
import os
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from boxmend.data.images import reading as photos
from boxmend.data.images.reading import InspectedImage, inspect_image, inspect_images
from boxmend.errors import BoxmendError, UsageError

Write = Callable[..., str]  # bytes and a name to a path
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def picture(width: int = 48, height: int = 32) -> Image.Image:
    gradient = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", [gradient, gradient.rotate(180), gradient])


def encode_image(format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture().save(buffer, format, **options)
    return buffer.getvalue()


def with_orientation(orientation: object) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode_image("JPEG", exif=exif)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_that_claims(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" * 100)
    return PNG_HEAD + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.fixture
def file(tmp_path: Path) -> Write:
    def write(data: bytes, name: str = "image.bin") -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


WHOLE = {
    "jpeg": encode_image("JPEG"),
    "progressive jpeg": encode_image("JPEG", progressive=True),
    "png": encode_image("PNG"),
    "webp": encode_image("WEBP"),
    "lossless webp": encode_image("WEBP", lossless=True),
    "bmp": encode_image("BMP"),
    "tiff": encode_image("TIFF"),
    "gif": encode_image("GIF"),
    "ppm": encode_image("PPM"),
}
CUT_ANYWHERE = ("jpeg", "progressive jpeg", "png", "webp", "lossless webp")


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_image_has_size_and_digest_and_no_problem(name: str, file: Write) -> None:
    path = file(WHOLE[name])
    digest = blake2b(WHOLE[name], digest_size=20).hexdigest()
    assert inspect_image(path) == InspectedImage(path, (48, 32), 1, digest, None, "")


@pytest.mark.parametrize("name", WHOLE)
def test_the_second_half_cut_off_is_reported_as_truncated(name: str, file: Write) -> None:
    photo = inspect_image(file(WHOLE[name][: len(WHOLE[name]) // 2]))
    assert photo.problem == "truncated"
    assert photo.detail
    assert photo.digest is not None


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(CUT_ANYWHERE), cut=st.floats(0, 1, exclude_max=True))
def test_a_cut_at_any_byte_is_found(
    name: str, cut: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = WHOLE[name][: int(cut * len(WHOLE[name]))]
    path = tmp_path_factory.getbasetemp() / "cut.bin"
    path.write_bytes(data)
    assert inspect_image(str(path)).problem == (
        "truncated" if len(data) > 7 else photo_of_stump(data)
    )


def photo_of_stump(data: bytes) -> str:
    """Inspect a file with only the first bytes of an image."""
    known = data.startswith((b"\xff\xd8", b"RIFF"))
    return "truncated" if known else "unreadable"


@pytest.mark.parametrize("name", CUT_ANYWHERE)
def test_a_missing_last_byte_is_noticed(name: str, file: Write) -> None:
    assert inspect_image(file(WHOLE[name][:-1])).problem == "truncated"


def test_bytes_after_the_end_do_no_harm(file: Write) -> None:
    for k, name in enumerate(CUT_ANYWHERE):
        assert inspect_image(file(WHOLE[name] + b"\0trailer", f"{k}.bin")).problem is None


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_bytes_raise_an_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spoiled = bytearray(WHOLE[data.draw(st.sampled_from(sorted(WHOLE)))])
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(st.integers(0, len(spoiled) - 1))
        spoiled[at] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "spoiled.bin"
    path.write_bytes(bytes(spoiled))
    photo = inspect_image(str(path))
    assert (photo.problem is None) == (photo.detail == "")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_is_that_of_exif_and_the_size_as_stored(
    orientation: int, file: Write
) -> None:
    photo = inspect_image(file(with_orientation(orientation)))
    assert (photo.orientation, photo.size, photo.problem) == (orientation, (48, 32), None)


@pytest.mark.parametrize("nonsense", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_upright(nonsense: int, file: Write) -> None:
    assert inspect_image(file(with_orientation(nonsense))).orientation == 1


def test_broken_exif_is_upright_and_no_warning_leaks(file: Write) -> None:
    data = with_orientation(6)
    at = data.index(b"Exif\0\0")
    broken = data[: at + 6] + b"MM\0*\0\0\xff\xff" + data[at + 14 :]
    with warnings.catch_warnings(record=True) as leaked:
        warnings.simplefilter("always")
        photo = inspect_image(file(broken))
    assert (photo.orientation, photo.problem, leaked) == (1, None, [])


@pytest.mark.parametrize(("width", "height"), [(100_000, 100_000), (65_535, 57_000)])
def test_a_header_that_claims_gigabytes_is_unreadable_and_costs_no_memory(
    width: int, height: int, file: Write
) -> None:
    path = file(png_that_claims(width, height))
    tracemalloc.start()
    photo = inspect_image(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert photo.problem == "unreadable"
    assert f"{width * height:,} pixels" in photo.detail
    assert photo.size is None
    assert peak < 50_000_000


def test_the_limit_holds_where_the_caller_switched_off_that_of_pillow(
    file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    photo = inspect_image(file(png_that_claims(100_000, 100_000)))
    assert photo.problem == "unreadable"
    assert photo.detail.startswith("its header claims 100000 x 100000 pixels; ")
    assert photo.detail.endswith("set BOXMEND_MAX_IMAGE_PIXELS to at least 10000000000")


def test_a_size_that_pillow_only_warns_about_is_no_problem_and_no_warning(
    file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 32 - 1)
    with warnings.catch_warnings(record=True) as leaked:
        warnings.simplefilter("always")
        assert inspect_image(file(WHOLE["png"])).problem is None
    assert leaked == []


def test_a_caller_who_loads_truncated_images_does_not_hide_them(
    file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    path = file(WHOLE["jpeg"][:-20])
    with Image.open(path) as image:
        image.load()  # Pillow lets it pass
    assert inspect_image(path).problem == "truncated"
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True  # and finds the switch as it was


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.jpg")
    assert inspect_image(path) == InspectedImage(path, problem="missing", detail="no such file")


def test_a_file_in_the_place_of_a_folder_makes_the_image_missing(file: Write) -> None:
    photo = inspect_image(file(b"x") + "/image.jpg")
    assert photo.problem == "missing"


def test_a_broken_link_is_missing_and_names_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link.jpg"
    link.symlink_to(tmp_path / "gone.jpg")
    photo = inspect_image(str(link))
    assert photo.problem == "missing"
    assert "gone.jpg" in photo.detail


def test_a_link_to_itself_is_unreadable(tmp_path: Path) -> None:
    link = tmp_path / "link.jpg"
    link.symlink_to(link)
    assert inspect_image(str(link)).problem == "unreadable"


def test_a_folder_is_unreadable(tmp_path: Path) -> None:
    photo = inspect_image(str(tmp_path))
    assert (photo.problem, photo.detail) == ("unreadable", "a folder, not a regular file")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jpg"
    os.mkfifo(pipe)
    assert inspect_image(str(pipe)).detail == "a pipe, not a regular file"


def test_an_empty_file_is_unreadable(file: Write) -> None:
    photo = inspect_image(file(b""))
    assert (photo.problem, photo.detail) == ("unreadable", "the file is empty")


def test_a_text_file_is_unreadable(file: Write) -> None:
    photo = inspect_image(file(b"<html>404</html>"))
    assert (photo.problem, photo.detail) == ("unreadable", "not a known image format")


def test_postscript_is_not_decoded_by_another_program(file: Write) -> None:
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    assert inspect_image(file(script)).detail == "not a known image format"


def test_a_file_too_large_to_be_an_image_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.jpg"
    with path.open("wb") as sparse:
        sparse.truncate(2**40)
    photo = inspect_image(str(path))
    assert (photo.problem, photo.digest) == ("unreadable", None)
    assert "1,099,511,627,776 bytes" in photo.detail


def test_a_file_that_may_not_be_read_is_unreadable(
    file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # root may read everything
    photo = inspect_image(file(WHOLE["png"]))
    assert (photo.problem, photo.detail) == ("unreadable", "Permission denied")


@pytest.mark.parametrize("path", ["a\0b.jpg", "x" * 5000, "\ud800.jpg"])
def test_an_impossible_path_is_unreadable(path: str) -> None:
    assert inspect_image(path).problem == "unreadable"


def test_workers_find_the_same_as_this_process_in_the_same_order(tmp_path: Path) -> None:
    paths = []
    for k in range(photos.MIN_IMAGES_FOR_WORKERS + 6):
        path = tmp_path / f"{k}.jpg"
        path.write_bytes(WHOLE["jpeg"] if k % 3 else WHOLE["png"][: 20 + k])
        paths.append(str(path))
    paths.append(str(tmp_path / "nowhere.jpg"))
    ticks: list[tuple[int, int]] = []
    parallel = list(inspect_images(paths, jobs=2, progress=lambda done, n: ticks.append((done, n))))
    assert parallel == [inspect_image(path) for path in paths]
    assert ticks == [(k + 1, len(paths)) for k in range(len(paths))]


def test_few_images_start_no_process(file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "ProcessPoolExecutor", None)
    ticks: list[tuple[int, int]] = []
    inspected = list(
        inspect_images([file(WHOLE["png"])], jobs=8, progress=lambda *t: ticks.append(t))
    )
    assert [photo.size for photo in inspected] == [(48, 32)]
    assert ticks == [(1, 1)]
    assert list(inspect_images([])) == []


def die(_: str, *, appearance: bool) -> None:
    os._exit(1)


def test_a_worker_that_dies_is_reported_with_the_image_it_died_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(photos, "inspect_image", die)
    paths = [f"{k}.jpg" for k in range(photos.MIN_IMAGES_FOR_WORKERS)]
    with pytest.raises(BoxmendError, match=r"0\.jpg: a worker process died"):
        list(inspect_images(paths, jobs=2))


def test_less_than_one_job_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        list(inspect_images(["a.jpg"], jobs=0))
