"""The page of the review in a real browser: widths, themes, names, and what it forbids."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.review.review_visits import HOSTILE, Visit, opened
from tests.web.review.reviewed_runs import plain_run
from tests.web.review.served_pages import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

pytest_plugins = ["tests.web.review.review_fixtures"]


def test_hostile_names_stay_text(visit: Visit) -> None:
    assert HOSTILE in visit.page.locator("#from").inner_text()
    visit.page.select_option("#kind-filter", "1")
    visit.becomes("#title", HOSTILE)
    visit.page.select_option("#kind-filter", "")
    visit.page.fill("#query", "<i>")
    visit.becomes("#facts .file-name", "quo'te & <i>.png · 24")
    assert visit.do("document.querySelectorAll('img[src=x], main i, main script').length") == 0


def test_a_run_without_fixes_says_so(context: "BrowserContext", tmp_path: Path) -> None:
    with served(plain_run(tmp_path, [])) as server:
        visit = opened(context, server)
        visit.becomes("#empty", "The audit proposed no fixes: there is nothing to review.")
        visit.press("a", "r", "j", "z", "e", "c", "m", "d", "p", "q")
        visit.page.wait_for_timeout(200)
        assert visit.complaints == []


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_no_width_scrolls_sideways(browser: "Browser", server: Served, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 740})
    visit = Visit(page, server)
    visit.drawn()
    for keys in (("q",), ("m",), ("p",)):
        visit.press(*keys)
        page.wait_for_timeout(150)
        assert visit.do("document.documentElement.scrollWidth") == width
    page.locator(".pattern").first.click()
    page.locator(".card img").first.wait_for()
    assert visit.do("document.documentElement.scrollWidth") == width
    assert visit.complaints == []
    page.close()


def test_on_a_phone_all_that_decides_is_on_the_screen(browser: "Browser", server: Served) -> None:
    page = browser.new_page(viewport={"width": 360, "height": 740})
    visit = Visit(page, server)
    visit.drawn()
    for one in ("#title", "#before", "#after", "#accept", "#reject", "#skip", "#undo"):
        box = page.locator(one).bounding_box()
        assert box is not None
        assert box["y"] >= 0, one
        assert box["y"] + box["height"] <= 741, one
    page.close()


def test_the_theme_follows_the_system_and_the_button(visit: Visit) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    light = visit.do(color)
    visit.page.emulate_media(color_scheme="dark")
    dark = visit.do(color)
    assert light != dark
    visit.page.click("#theme")
    assert visit.do(color) == light
    visit.page.click("#theme")
    assert visit.do(color) == dark


def test_everything_has_a_name_for_those_who_listen(visit: Visit) -> None:
    visit.drawn()
    for mode in ("q", "p"):
        visit.press(mode)
        visit.page.wait_for_timeout(100)
        nameless = visit.do(
            """() => [...document.querySelectorAll('button, a, select, input, img, svg')]
                .filter((one) => !one.closest('[aria-hidden="true"]') && one.checkVisibility())
                .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length
                    || one.hasAttribute('alt')))
                .map((one) => one.outerHTML.slice(0, 80))"""
        )
        assert nameless == []
    assert visit.do("document.querySelectorAll('h1').length") == 1
    visit.press("q")
    visit.becomes("#place", "1 of 8")
    visit.press("a")
    visit.becomes("#announcement", "Accepted: van to bus")


def test_keys_are_listed_on_demand_and_the_focus_is_seen(visit: Visit) -> None:
    visit.press("?")
    assert visit.page.locator("#keys").is_visible()
    visit.press("a")  # nothing is decided behind a dialog
    visit.press("Escape")
    assert visit.server.lines() == []
    visit.page.focus("#reject")
    visit.press("Tab")
    ring = "getComputedStyle(document.activeElement)"
    assert visit.do("document.activeElement.id") == "skip"
    assert visit.do(f"{ring}.outlineStyle") == "solid"
    assert visit.do(f"{ring}.outlineWidth") == "3px"


def test_what_the_policy_forbids_does_not_happen(visit: Visit) -> None:
    visit.do(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.broken = 1';
            document.body.append(script);
            const image = new Image();
            image.src = 'https://example.invalid/seen.png';
            document.body.append(image);
        }"""
    )
    visit.page.wait_for_timeout(150)
    assert visit.do("window.broken") is None
    refused = [
        complaint for complaint in visit.complaints if "Content Security Policy" in complaint
    ]
    assert len(refused) == 2
    visit.complaints = []
    visit.requests = [request for request in visit.requests if "example.invalid" not in request]


def test_a_wrong_token_and_a_hostile_fragment(context: "BrowserContext", server: Served) -> None:
    page = context.new_page()
    page.goto(server.address.replace(server.token, "A" * 32))
    assert page.locator("body").inner_text().startswith("refused")
    hostile = "#mode=<img src=x onerror=alert(1)>&sort=__proto__&at=99999&kind=9&toString=1"
    visit = opened(context, server, hostile)
    visit.becomes("#place", "1 of 8")
    visit = opened(context, server, "#mode=patterns&pattern=9_9_9")
    visit.page.locator(".pattern-list").wait_for()
    assert visit.complaints == []
