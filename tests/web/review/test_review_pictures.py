"""The pictures of a fix in a real browser: boxes, zoom, and edges that are dragged."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.review.review_visits import Visit, opened
from tests.web.review.reviewed_runs import plain_run
from tests.web.review.served_pages import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytest_plugins = ["tests.web.review.review_fixtures"]


def test_a_suspect_is_shown_before_and_after(visit: Visit) -> None:
    visit.drawn()
    assert visit.text("#kind") == "wrong label"
    assert visit.text("#title s") == "van"
    assert visit.text("#title strong") == "bus"
    assert (visit.text("#before-words"), visit.text("#after-words")) == ("van", "bus")
    assert "0.99" in visit.text("#facts")
    assert "0.98" in visit.text("#facts")
    assert "0.png" in visit.text("#facts")
    assert visit.text("#reason") == "a bus, by <b>5</b>"
    assert (visit.text("#accept-words"), visit.text("#reject-words")) == (
        "it is bus",
        "it stays van",
    )
    boxes = visit.do(
        """['before', 'after'].map((id) => [...document.querySelectorAll(`#${id} .boxes .over`)]
            .map((one) => ['x', 'y', 'width', 'height']
                .map((name) => Number(one.getAttribute(name)))))"""
    )
    assert boxes[0] == [[40, 30, 80, 70]]
    assert boxes[1][-1] == [40, 30, 80, 70]
    assert visit.do("document.querySelector('#after image[href]').getAttribute('href')").startswith(
        "cut-0-"
    )


def test_a_box_is_edited_by_keys(visit: Visit) -> None:
    visit.drawn()
    visit.press("e")
    focused = "document.activeElement.getAttribute('aria-label')"
    assert visit.do(focused) == "left edge"
    visit.press("ArrowLeft", "Shift+ArrowLeft")
    assert visit.do("document.activeElement.getAttribute('aria-valuenow')") == "29"
    visit.press("Tab")
    assert visit.do(focused) == "top edge"
    visit.press("ArrowDown", "Tab", "Tab", "Tab")
    assert visit.do(focused) == "whole box"
    visit.press("ArrowRight")
    assert visit.text("#accept-words") == "the edited box"
    visit.press("a")
    assert visit.written(1)[0]["box"] == [30, 31, 121, 100]


def test_an_edge_stops_at_the_image_and_at_the_other_edge(visit: Visit) -> None:
    visit.drawn()
    visit.press("e")
    for _ in range(6):
        visit.press("Shift+ArrowLeft")
    assert visit.do("document.activeElement.getAttribute('aria-valuenow')") == "0"
    for _ in range(14):
        visit.press("Shift+ArrowRight")
    assert visit.do("document.activeElement.getAttribute('aria-valuenow')") == "119"
    visit.press("Escape")
    assert visit.text("#accept-words") == "it is bus"
    visit.press("a")
    assert "box" not in visit.written(1)[0]


def test_a_box_is_dragged_by_its_corner(visit: Visit) -> None:
    visit.drawn()
    visit.page.hover("#after")
    grip = visit.page.locator(".at-bottom-right").bounding_box()
    assert grip is not None
    x, y = grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2
    scale = visit.do(
        """document.getElementById('after').clientWidth
            / document.querySelector('#after svg').viewBox.baseVal.width"""
    )
    visit.page.mouse.move(x, y)
    visit.page.mouse.down()
    visit.page.mouse.move(x + 5 * scale, y + 8 * scale, steps=4)
    visit.page.mouse.up()
    visit.press("a")
    assert visit.written(1)[0]["box"] == pytest.approx([40, 30, 125, 108], abs=0.5)


def test_a_finger_drags_an_edge(browser: "Browser", server: Served) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    visit = opened(context, server)
    visit.drawn()
    visit.page.tap("#edit")
    grip = visit.page.locator(".at-left").bounding_box()
    assert grip is not None
    x, y = grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2
    session = context.new_cdp_session(visit.page)
    for kind, way in (("touchStart", 0), ("touchMove", 8), ("touchMove", 16), ("touchEnd", None)):
        points = [] if way is None else [{"x": x + way, "y": y}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    visit.becomes("#accept-words", "the edited box")
    visit.press("a")  # not by a tap: so soon after a moving finger, browsers ignore it
    box = visit.written(1)[0]["box"]
    assert box[0] > 42
    assert box[1:] == [30, 120, 100]
    assert visit.complaints == []
    context.close()


def test_what_is_to_go_can_be_kept_with_another_class_or_box(visit: Visit) -> None:
    visit.page.select_option("#kind-filter", "3")
    visit.becomes("#kind", "spurious")
    assert visit.text("#after-words") == "removed"
    visit.page.wait_for_timeout(100)
    visit.press("Escape", "e", "ArrowRight", "a")
    assert visit.written(1)[0]["box"] == [51, 40, 130, 110]


def test_missing_and_duplicates_show_what_is_around(visit: Visit) -> None:
    visit.page.select_option("#kind-filter", "2")
    visit.becomes("#kind", "missing")
    visit.drawn()
    assert visit.text("#before-words") == "no annotation"
    assert visit.page.locator("#before .boxes rect").count() == 0
    assert visit.page.locator("#before .others rect").count() == 2
    visit.page.click("#others")
    assert visit.page.locator("#before .others rect").count() == 0
    visit.page.select_option("#kind-filter", "4")
    visit.becomes("#kind", "duplicate")
    visit.drawn()
    stays = visit.page.locator("#after .boxes .over.final")
    assert stays.get_attribute("x") == "40"


def test_the_picture_is_zoomed_by_wheel_keys_and_buttons(visit: Visit) -> None:
    visit.drawn()
    width = "document.querySelector('#after svg').viewBox.baseVal.width"
    first = visit.do(width)
    visit.page.hover("#before")
    visit.page.mouse.wheel(0, -300)
    visit.until(f"{width} < {first * 0.9}")
    assert visit.do("document.querySelector('#before svg').viewBox.baseVal.width") == visit.do(
        width
    )
    visit.press("0")
    assert visit.do(width) == pytest.approx(first)
    visit.press("+")
    assert visit.do(width) == pytest.approx(first * 0.7, rel=0.01)
    visit.page.click("#zoom-out")
    visit.press("z")
    assert visit.page.locator("#whole").get_attribute("aria-pressed") == "true"
    assert visit.do(width) >= 200
    visit.press("h")
    assert not visit.page.locator("#before .boxes").is_visible()
    visit.press("h", "z")
    assert visit.do(width) == pytest.approx(first)


def test_a_missing_image_says_so_and_can_be_decided(
    context: "BrowserContext", tmp_path: Path
) -> None:
    run = plain_run(tmp_path)
    for path in (tmp_path / "data").rglob("*.png"):
        path.unlink()
    with served(run) as server:
        visit = opened(context, server)
        visit.becomes("#before .no-picture", "No picture: no such file")
        assert visit.page.locator("#after .boxes rect").count() > 0
        visit.press("a")
        visit.becomes("#place", "2 of 8")
        visit.written(1)
        visit.press("p")
        visit.page.locator(".pattern").first.click()
        visit.becomes(".card .no-picture", "No picture: no such file")
        assert visit.complaints == []
