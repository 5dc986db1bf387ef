"""The page in a real browser: themes, widths, names and pictures, and that nothing leaves it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.writing import write_report
from tests.web.report.browsed_pages import HOSTILE, Visit, browsed_page, browsed_run, watched
from tests.web.report.drawn_records import seen
from tests.web.report.drawn_runs import drawn_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_run(tmp_path_factory.mktemp("browsed"))


@pytest.fixture(scope="module")
def page_path(run: Path) -> Path:
    return browsed_page(run)


@pytest.fixture
def visit(browser: "Browser", page_path: Path) -> Iterator[Visit]:
    with watched(browser, page_path) as made:
        yield made


def test_the_theme_follows_the_system_and_the_button(visit: Visit) -> None:
    page = visit.page
    color = "getComputedStyle(document.body).backgroundColor"
    light = visit.do(color)
    page.emulate_media(color_scheme="dark")
    dark = visit.do(color)
    assert light != dark
    page.click("#theme")
    assert visit.texts("#theme") == ["Theme: light"]
    assert visit.do(color) == light
    page.emulate_media(color_scheme="light")
    page.click("#theme")
    assert visit.texts("#theme") == ["Theme: dark"]
    assert visit.do(color) == dark
    page.click("#theme")
    assert visit.do(color) == light


def test_paper_is_light_in_every_theme(visit: Visit) -> None:
    inks = """() => ['h1', '.tile dt', '.chart .ink', 'figcaption']
        .map((one) => getComputedStyle(document.querySelector(one)).color)"""
    light = visit.do(inks)
    for _ in range(2):
        visit.page.click("#theme")
    assert visit.texts("#theme") == ["Theme: dark"]
    assert visit.do(inks) != light
    visit.page.emulate_media(media="print", color_scheme="dark")
    assert visit.do(inks) == light


def test_hostile_names_stay_text(visit: Visit) -> None:
    assert HOSTILE in visit.page.locator("#from").inner_text()
    visit.page.select_option("#from", "1")
    assert visit.texts(".card .labels bdi")[0] == HOSTILE
    assert visit.do("document.querySelectorAll('img:not([src^=\"data:\"])').length") == 0


def test_what_the_policy_forbids_does_not_happen(browser: "Browser", page_path: Path) -> None:
    page = browser.new_page()
    made = Visit(page, page_path)
    assert made.complaints == []
    made.do(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.broken = 1';
            document.body.append(script);
            const place = document.createElement('div');
            place.innerHTML = '<img src="data:," onerror="window.broken = 2"><p style="color:red">';
            document.body.append(place);
            const image = new Image();
            image.src = 'https://example.invalid/seen.png';
            document.body.append(image);
        }"""
    )
    page.wait_for_timeout(200)
    assert made.do("window.broken") is None
    refused = [text for text in made.complaints if "Content Security Policy" in text]
    assert len(refused) >= 4
    assert "https://example.invalid/seen.png failed: csp" in made.complaints
    page.close()


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_no_width_scrolls_sideways(browser: "Browser", page_path: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 740})
    made = Visit(page, page_path)
    assert made.do("document.documentElement.scrollWidth") == width
    assert page.locator("#filter-box").get_attribute("open") == (None if width == 360 else "")
    page.locator(".card .open").first.click()
    assert made.do("document.getElementById('detail').scrollWidth") <= width
    cut = made.do(
        """() => [...document.querySelectorAll('.patterns th, .patterns td, .tile')]
            .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""
    )
    assert cut == []
    page.close()


def test_pictures_in_a_folder_are_shown_from_disk(
    browser: "Browser", run: Path, tmp_path: Path
) -> None:
    made = write_report(run, tmp_path / "beside.html", ReportSettings(embed=False))
    visit = Visit(browser.new_page(), made.path)
    image = visit.page.locator(".card img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 20
    assert str(image.get_attribute("src")).startswith("beside-images/")
    assert visit.complaints == []
    assert {url.rpartition("/")[0] for url in visit.requests} == {
        tmp_path.as_uri(),
        (tmp_path / "beside-images").as_uri(),
    }
    visit.page.close()


def test_a_page_without_changes_has_no_gallery_and_no_error(
    browser: "Browser", tmp_path: Path
) -> None:
    made = write_report(drawn_run(tmp_path, [seen(0, 0)]))
    visit = Visit(browser.new_page(), made.path)
    visit.page.click("#theme")
    visit.page.keyboard.press("j")
    assert visit.complaints == []
    assert visit.page.locator(".card").count() == 0
    visit.page.close()


def test_everything_has_a_name_for_those_who_listen(visit: Visit) -> None:
    nameless = visit.do(
        """() => [...document.querySelectorAll('button, a, select, input, img, svg')]
            .filter((one) => !one.closest('[aria-hidden="true"]') && one.checkVisibility())
            .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length
                || one.hasAttribute('alt') || one.getAttribute('role') === 'img'))
            .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert json.loads(visit.do("JSON.stringify([...document.querySelectorAll('h1')].length)")) == 1
    landmarks = visit.do(
        "['header', 'nav', 'main', 'footer'].filter((one) => document.querySelector(one))"
    )
    assert landmarks == ["header", "nav", "main", "footer"]
