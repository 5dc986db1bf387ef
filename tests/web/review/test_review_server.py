"""What the server answers: fixes, images by number, and verdicts that are written."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from boxmend.errors import UsageError
from boxmend.web.review import cuts
from boxmend.web.review.cuts import Cutter, NoPictureError
from boxmend.web.review.serving import Server, open_session, open_socket
from boxmend.web.thumbnails import jpeg_of
from tests.web.review.reviewed_runs import BOX, FIXES, MOVED, NAMES, SIZE, plain_run
from tests.web.review.served_pages import Served, served


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Served]:
    with served(plain_run(tmp_path)) as made:
        yield made


def test_the_fixes_come_in_columns(page: Served) -> None:
    fixes = page.get("fixes")
    assert fixes["name"] == "run"
    assert fixes["labels"] == list(NAMES)
    assert fixes["kind"] == [int(fix.kind) for fix in FIXES]
    assert fixes["old"] == [0, 0, 1, -1, 0, 2, 2, 0]
    assert fixes["new"] == [2, 2, 1, 2, -1, -1, 0, 2]
    assert fixes["old_box"][2:5] == [list(MOVED), None, list(MOVED)]
    assert fixes["new_box"][2:5] == [list(BOX), list(BOX), None]
    assert fixes["p_fix"][:3] == [0.98, 0.97, 0.96]
    assert fixes["id"][:4] == ["10", "12", "14", ""]
    assert fixes["reasons"][fixes["reason"][0]] == "a bus, by <b>5</b>"
    assert [fixes["files"][one] for one in fixes["file"]][-1] == "quo'te & <i>.png"
    assert sorted(fixes["sample"]) == [0, 1, 2]


def test_an_image_is_known_by_number_with_its_annotations(page: Served) -> None:
    five, zero = page.get("places-5-0")
    assert (five["image"], five["width"], five["height"], five["problem"]) == (5, *SIZE, "")
    assert five["rows"] == [10, 11]
    assert five["labels"] == [2, 2]
    assert five["boxes"] == [list(MOVED), list(BOX)]
    assert zero["rows"] == [0, 1]


def test_a_part_of_an_image_is_a_picture_of_the_wanted_size(page: Served) -> None:
    status, content, headers = page.ask(f"/{page.token}/cut-0-40-30-120-100-40.jpg")
    assert status == 200
    assert headers["content-type"] == "image/jpeg"
    image = Image.open(io.BytesIO(content))
    assert image.size == (40, 35)  # 80 x 70 at half the size
    assert np.abs(np.array(image)[17, 20].astype(int) - (200, 180, 60)).max() < 12
    again = page.ask(f"/{page.token}/cut-0-40-30-120-100-40.jpg")
    assert again[1] == content


def test_verdicts_are_written_and_the_state_is_answered(page: Served) -> None:
    status, news = page.post([{"row": 0, "answer": "accept", "label": 1, "box": [1, 2, 3, 4]}])
    assert status == 200
    assert news["verdicts"] == [
        {"row": 0, "answer": "accept", "label": 1, "box": [1, 2, 3, 4], "mode": "queue"}
    ]
    assert news["figures"]["decided"] == 1
    assert page.lines() == [
        {"fix": "f0", "verdict": "accept", "label": NAMES[1], "box": [1, 2, 3, 4], "mode": "queue"}
    ]
    assert page.get("news-1")["verdicts"] == []


def test_two_windows_see_each_other_and_lose_nothing(page: Served) -> None:
    page.post([{"row": 0, "answer": "accept"}])
    assert [verdict["row"] for verdict in page.get("news-0")["verdicts"]] == [0]
    _, news = page.post([{"row": 1, "answer": "reject"}], seen=0)
    assert [verdict["row"] for verdict in news["verdicts"]] == [0, 1]
    assert page.get("news-1")["verdicts"][0]["row"] == 1


def test_many_at_once_are_all_written(page: Served) -> None:
    def give(number: int) -> int:
        answer = "accept" if number % 2 else "reject"
        return page.post([{"row": number % 8, "answer": answer}])[0]

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(give, range(40))) == {200}
    assert len(page.lines()) == 40
    assert page.get("news-0")["seen"] == 40


@pytest.mark.parametrize(
    "verdict",
    [
        {"row": 8, "answer": "accept"},
        {"row": "0", "answer": "accept"},
        {"row": 0, "answer": "maybe"},
        {"row": 0, "answer": "accept", "label": 99},
        {"row": 0, "answer": "accept", "label": "bus"},
        {"row": 0, "answer": "accept", "box": [1, 2, 3]},
        {"row": 0, "answer": "accept", "box": [1, 2, 3, 1e999]},
        {"row": 0, "answer": "accept", "path": "/etc/passwd"},
        {"row": 0, "answer": "accept", "mode": "import"},
        {"row": 10**30, "answer": "accept"},
        {"answer": "accept"},
        "accept",
    ],
)
def test_what_is_no_verdict_is_refused_and_nothing_written(page: Served, verdict: object) -> None:
    body = json.dumps({"seen": 0, "verdicts": [{"row": 1, "answer": "accept"}, verdict]})
    kind = {"Content-Type": "application/json"}
    result = body.replace("Infinity", "1e999").encode()
    assert page.ask(f"/{page.token}/verdicts", result, kind)[0] == 400
    assert page.lines() == []


def test_a_body_that_is_no_json_or_too_long_is_refused(page: Served) -> None:
    kind = {"Content-Type": "application/json"}
    path = f"/{page.token}/verdicts"
    assert page.ask(path, b"\xff\xfe", kind)[0] == 400
    assert page.ask(path, b"[" * 100_000, kind)[0] == 400
    assert page.ask(path, b" " * (8 * 2**20 + 1), kind)[0] == 413
    assert page.ask(path, b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert page.lines() == []


def test_a_full_disk_is_reported_and_the_page_can_try_again(page: Served) -> None:
    (page.run / "verdicts.jsonl").mkdir()
    status, said = page.post([{"row": 0, "answer": "accept"}])
    assert status == 500
    assert "could not be written" in said or "cannot be read" in said


def test_missing_and_broken_images_have_a_problem(tmp_path: Path) -> None:
    run = plain_run(tmp_path)
    images = sorted((tmp_path / "data").rglob("*.png"))
    by_name = {path.name: path for path in images}
    by_name["0.png"].unlink()
    by_name["1.png"].unlink()
    by_name["1.png"].write_bytes(b"no image")
    whole = by_name["2.png"].read_bytes()
    by_name["2.png"].unlink()
    by_name["2.png"].write_bytes(whole[:60])
    by_name["3.png"].unlink()
    by_name["3.png"].mkdir()
    with served(run) as page:
        zero, one, _, three = page.get("places-0-1-2-3")
        assert (zero["problem"], zero["width"], zero["height"]) == ("no such file", *SIZE)
        assert "not a known image format" in one["problem"]
        assert three["problem"]
        for number in range(4):
            status, content, _ = page.ask(f"/{page.token}/cut-{number}-0-0-50-50-100.jpg")
            assert status == 404, number
            assert str(tmp_path).encode() not in content
        assert page.post([{"row": 0, "answer": "reject"}])[0] == 200


def test_a_huge_image_has_a_problem_and_is_not_decoded(tmp_path: Path) -> None:
    session = open_session(plain_run(tmp_path))
    path = tmp_path / "huge.png"
    Image.new("1", (20_000, 10_000)).save(path)
    session.dataset.images.paths[0] = str(path)
    place = Cutter(session.dataset.images).place(0)
    assert place.problem  # 200 million pixels
    with pytest.raises(NoPictureError):
        Cutter(session.dataset.images).cut(0, (0, 0, 10, 10), 100)


@pytest.mark.parametrize(
    "window", [(0, 0, 201, 10), (0, 0, 10, 151), (5, 5, 5, 9), (5, 5, 9, 5), (-1, 0, 10, 10)]
)
def test_a_part_that_is_not_in_the_image_has_no_picture(
    tmp_path: Path, window: tuple[int, int, int, int]
) -> None:
    cutter = Cutter(open_session(plain_run(tmp_path)).dataset.images)
    assert cutter.place(0).size == SIZE == (200, 150)
    with pytest.raises(NoPictureError, match="the requested part is not inside the image"):
        cutter.cut(0, window, 100)


def test_pictures_are_remembered_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cutter = Cutter(open_session(plain_run(tmp_path)).dataset.images)
    sizes = list[int]()

    def record(*arguments: Any) -> bytes:
        made = jpeg_of(*arguments)
        sizes.append(len(made))
        return made

    monkeypatch.setattr(cuts, "jpeg_of", record)
    first, second = (0, 0, 100, 100), (50, 50, 150, 150)
    cutter.cut(0, first, 100)
    cutter.cut(0, first, 100)
    assert len(sizes) == 1
    monkeypatch.setattr(cuts, "MAX_CACHED_BYTES", sizes[0])
    cutter.cut(0, second, 100)  # has no room beside the first
    cutter.cut(0, first, 100)
    assert len(sizes) == 3


def test_an_image_annotated_as_viewers_turn_it_is_turned(tmp_path: Path) -> None:
    session = open_session(plain_run(tmp_path))
    stored = Image.new("RGB", (150, 200), (0, 0, 200))
    stored.paste((200, 0, 0), (0, 0, 150, 40))  # the top, as stored
    exif = Image.Exif()
    exif[0x0112] = 6  # viewers turn it by a quarter clockwise: the top becomes the right
    path = tmp_path / "turned.jpg"
    stored.save(path, exif=exif, quality=95)
    session.dataset.images.paths[0] = str(path)  # recorded as 200 x 150
    cutter = Cutter(session.dataset.images)
    assert (cutter.place(0).size, cutter.place(0).is_turned) == ((200, 150), True)
    pixels = np.array(Image.open(io.BytesIO(cutter.cut(0, (0, 0, 200, 150), 200))))
    assert pixels.shape == (150, 200, 3)
    assert pixels[75, 190, 0] > 150 > pixels[75, 10, 0]
    session.dataset.images.widths[1], session.dataset.images.heights[1] = 150, 200  # as stored
    session.dataset.images.paths[1] = str(path)
    assert cutter.place(1).size == (150, 200)
    as_stored = np.array(Image.open(io.BytesIO(cutter.cut(1, (0, 0, 150, 200), 200))))
    assert as_stored[10, 75, 0] > 150 > as_stored[190, 75, 0]


def test_pictures_carry_nothing_of_the_file(tmp_path: Path) -> None:
    session = open_session(plain_run(tmp_path))
    path = tmp_path / "picture.jpg"
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    Image.new("RGB", SIZE).save(path, exif=exif, comment=b"secret place")
    session.dataset.images.paths[0] = str(path)
    assert b"secret" not in Cutter(session.dataset.images).cut(0, (0, 0, 100, 100), 100)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "1", "LA"])
def test_images_of_any_mode_become_pictures(tmp_path: Path, mode: str) -> None:
    session = open_session(plain_run(tmp_path))
    path = tmp_path / ("odd.tif" if mode == "CMYK" else "odd.png")
    Image.new(mode, SIZE).save(path)
    session.dataset.images.paths[0] = str(path)
    made = Cutter(session.dataset.images).cut(0, (0, 0, *SIZE), 100)
    assert Image.open(io.BytesIO(made)).size == (100, 75)


def test_a_zoom_is_cut_from_the_full_image_after_a_small_one(tmp_path: Path) -> None:
    session = open_session(plain_run(tmp_path))
    rng = np.random.default_rng(0)
    path = tmp_path / "large.jpg"
    Image.fromarray(rng.integers(0, 255, (1600, 2000, 3), dtype=np.uint8)).save(path, quality=95)
    session.dataset.images.paths[0] = str(path)
    cutter = Cutter(session.dataset.images)
    small = Image.open(io.BytesIO(cutter.cut(0, (0, 0, 2000, 1600), 200)))
    assert small.size == (200, 160)
    sharp = Image.open(io.BytesIO(cutter.cut(0, (500, 500, 700, 700), 400)))
    assert sharp.size == (200, 200)  # never enlarged
    assert np.array(sharp).std() > 40  # noise as it is; averaged it would be grey


def test_a_port_in_use_is_named_with_a_way_out(page: Served, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"port {page.server.port} is in use; choose another"):
        open_socket(page.server.port)
    with pytest.raises(UsageError, match="from 0"):
        open_socket(65536)
    with pytest.raises(UsageError, match="from 0"):
        Server(open_session(page.run), -1)


def test_each_server_has_a_token_of_its_own(page: Served) -> None:
    other = Server(open_session(page.run))
    assert other.address.rpartition(":")[2] != page.address.rpartition(":")[2]
    assert other.address.split("/")[3] != page.token
    other.run(lambda address: other.stop())  # comes to its end at once
