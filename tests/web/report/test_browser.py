"""The page in a real browser: what a person does with its gallery."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.report.browsed_pages import (
    NAMES,
    NUM_ROWS,
    Visit,
    browsed_page,
    browsed_run,
    watched,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_page(browsed_run(tmp_path_factory.mktemp("browsed")))


@pytest.fixture
def visit(browser: "Browser", page_path: Path) -> Iterator[Visit]:
    with watched(browser, page_path) as made:
        yield made


def test_the_gallery_shows_all_most_doubtful_first(visit: Visit) -> None:
    assert visit.count() == "120 annotations"
    assert visit.files()[:2] == ["59.png · 129", "59.png · 128"]  # losses 1.19 and 1.18
    assert "1.19 > 0.50" in visit.texts(".card .figures-line")[0]
    image = visit.page.locator(".card img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 20


def test_filters_sorting_and_search_choose_cards(visit: Visit) -> None:
    page = visit.page
    page.select_option("#verdict", "discarded")
    assert visit.count() == "30 of 120 annotations"
    assert {"unsure"} == set(visit.texts(".card .badge.discarded"))
    page.select_option("#verdict", "")
    page.select_option("#moved", "yes")
    # Rows 1 and 3 of four, but for those whose box has not got wider: none.
    assert visit.count() == "60 of 120 annotations"
    page.select_option("#sort", "moved")
    assert visit.files()[0] == "59.png · 129"
    page.click("#direction")
    assert visit.files()[0] == "0.png · 11"
    page.click("#reset")
    assert visit.count() == "120 annotations"
    page.select_option("#pair", "0-2")
    # Rows 0, 12, 24 ..: relabelled (every fourth) and a van (every third).
    assert visit.count() == "10 of 120 annotations"
    said = visit.page.locator(".card .open").first.aria_snapshot()
    assert said.startswith('- button "van now bus in 54.png, open"')
    page.click("#reset")
    page.select_option("#from", "2")
    assert visit.count() == "40 of 120 annotations"
    page.fill("#query", "5.PNG")
    # Buses are the rows 2, 5, 8 ..; of the images 5, 15 .. 55 every one has row 2k or 2k + 1.
    assert {name.split(" · ")[0] for name in visit.files()} == {
        "5.png",
        "25.png",
        "35.png",
        "55.png",
    }
    page.fill("#query", "lAKE")
    assert {name.split(" · ")[0] for name in visit.files()} == {"Lake.png"}
    page.fill("#query", "nowhere")
    assert visit.count() == "None of 120 annotations; change a filter"
    assert visit.files() == []
    page.click("#reset")
    page.select_option("#sort", "confidence")
    assert visit.files()[0] == "0.png · 10"
    page.select_option("#sort", "file")
    assert visit.files()[0].startswith("Lake.png")


def test_the_truth_can_be_asked_for(visit: Visit) -> None:
    # The data themselves were given for the truth: every new label did harm.
    visit.page.select_option("#mark", "harmed")
    assert visit.count() == "30 of 120 annotations"
    assert set(visit.texts(".card .badge.bad")) == {"✗ harm"}


def test_cards_come_as_one_scrolls_and_by_the_button(visit: Visit) -> None:
    assert visit.page.locator(".card").count() == 48
    for number in (2 * 48, NUM_ROWS):
        visit.do("window.scrollTo(0, document.body.scrollHeight)")
        visit.page.locator(".card").nth(number - 1).wait_for(state="attached")
    assert not visit.page.locator("#more").is_visible()
    assert visit.page.locator(".card").last.get_attribute("aria-posinset") == "120"


def test_an_annotation_is_stepped_through_by_keys(visit: Visit) -> None:
    page = visit.page
    page.locator(".card .open").first.focus()
    page.keyboard.press("j")
    assert visit.do("document.activeElement.dataset.number") == "1"
    page.keyboard.press("ArrowLeft")
    assert visit.do("document.activeElement.dataset.number") == "0"
    page.keyboard.press("Enter")
    assert page.locator("#detail").is_visible()
    assert visit.texts("#place")[0].endswith(", 1 of 120")
    assert page.locator("#previous").is_disabled()
    for key, place in (("j", "2"), ("ArrowRight", "3"), ("k", "2"), ("j", "3")):
        page.keyboard.press(key)
        assert visit.texts("#place")[0].endswith(f", {place} of 120")
    assert visit.texts("#place") == ["van in 58.png, 3 of 120"]  # the text for screen readers
    facts = dict(zip(visit.texts("#detail-facts dt"), visit.texts("#detail-facts dd"), strict=True))
    assert facts["File"] == "58.png"
    assert facts["Annotation"] == "127"
    assert facts["Loss and threshold"] == "1.17 > 0.50"
    assert facts["Reason"] == "box: mean of 1 visit"
    assert page.locator("#detail-picture img").get_attribute("alt") == f"{NAMES[0]} in 58.png"
    assert visit.address() == "#open=127"
    page.keyboard.press("Escape")
    assert visit.address() == "#gallery"
    assert not page.locator("#detail").is_visible()
    assert visit.do("document.activeElement.dataset.number") == "2"  # back where one was


def test_the_open_view_shows_where_in_the_image_the_picture_lies(visit: Visit) -> None:
    visit.page.locator(".card .open").first.click()
    whole = visit.page.locator("#detail-whole")
    image = whole.locator("img")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 100
    assert image.get_attribute("alt") == "The whole image 59.png; a box marks the picture"
    # Row 119: the box ends at 41.9 x 50; 40 high times 1.6 is 64, and 4/3 of that are 86 wide.
    mark = whole.locator("rect.over")
    assert [float(mark.get_attribute(side) or "nan") for side in ("x", "y", "width", "height")] == [
        *(0, 0),
        *(86, 64),
    ]


def test_the_focus_stays_in_the_open_view(visit: Visit) -> None:
    visit.page.locator(".card .open").first.click()
    for _ in range(12):
        visit.page.keyboard.press("Tab")
        inside = "!document.activeElement || document.activeElement === document.body"
        assert visit.do(
            f"{inside} || document.getElementById('detail').contains(document.activeElement)"
        )


def test_the_focus_is_seen_around_a_card_and_not_below_its_picture(visit: Visit) -> None:
    visit.page.keyboard.press("j")
    ring = "getComputedStyle(document.activeElement.closest('.card'))"
    assert visit.do(f"{ring}.outlineStyle") == "solid"
    assert visit.do(f"{ring}.outlineWidth") == "3px"
    assert visit.do(f"{ring}.outlineOffset") == "2px"
    visit.page.keyboard.press("j")
    assert visit.page.locator(".card").first.evaluate(
        "one => getComputedStyle(one).outlineStyle"
    ) == ("none")


def test_the_focus_is_not_lost_at_the_last_annotation(visit: Visit) -> None:
    visit.page.locator(".card .open").nth(1).click()
    visit.page.locator("#previous").focus()
    visit.page.keyboard.press("Enter")
    assert visit.page.locator("#previous").is_disabled()
    assert visit.do("document.activeElement.id") == "detail-title"


def test_boxes_in_the_same_place_are_distinguishable_without_colour(visit: Visit) -> None:
    drawn = visit.do(
        "[...document.querySelector('.card svg').children].map((one) => one.getAttribute('class'))"
    )
    every = ["annotated", "matched", "final", "true"]
    assert drawn == [f"{part} {name}" for part in ("under", "over") for name in every]
    dashes = visit.do(
        """['.card .over', '.swatch line'].map((chosen) =>
            [...document.querySelectorAll(chosen)].slice(0, 4)
                .map((one) => getComputedStyle(one).strokeDasharray))"""
    )
    assert dashes[0] == dashes[1]  # the key shows the lines that are drawn
    assert len(set(dashes[0])) == 4


def test_boxes_are_switched_by_keys_and_buttons(visit: Visit) -> None:
    page = visit.page
    drawn = page.locator(".card").nth(0).locator("rect.over.annotated")
    assert drawn.is_visible()
    page.keyboard.press("1")
    assert not drawn.is_visible()
    assert page.locator("#layers .annotated").get_attribute("aria-pressed") == "false"
    assert visit.address() == "#hidden=1"
    page.click("#layers .annotated")
    assert drawn.is_visible()
    page.click("#layers .final")
    assert not page.locator(".card rect.over.final").first.is_visible()
    page.keyboard.press("f")
    page.keyboard.type("1?")  # text, where text is typed
    assert page.input_value("#query") == "1?"
    assert drawn.count() == 0


def test_keys_are_listed_on_demand(visit: Visit) -> None:
    visit.page.keyboard.press("?")
    assert visit.page.locator("#keys").is_visible()
    visit.page.keyboard.press("Escape")
    assert not visit.page.locator("#keys").is_visible()


def test_a_view_is_in_the_address_and_comes_back(browser: "Browser", page_path: Path) -> None:
    fragment = "#verdict=relabelled&query=5&sort=file&direction=ascending&hidden=2&open=122"
    page = browser.new_page()
    made = Visit(page, page_path, fragment)
    assert page.input_value("#verdict") == "relabelled"
    assert page.input_value("#query") == "5"
    assert made.texts("#detail-facts dd")[-1] == "122"
    assert made.do("document.body.className") == "no-matched"
    page.keyboard.press("Escape")
    assert made.address() == fragment.replace("&open=122", "")
    hostile = "#verdict=<img src=x onerror=alert(1)>&sort=__proto__&toString=1&hidden=9&pair=9-9"
    made = Visit(browser.new_page(), page_path, f"{hostile}&open=nobody")
    assert made.count() == "120 annotations"
    assert made.complaints == []
    made.page.close()
    page.close()


def test_a_pattern_of_the_summary_leads_to_its_annotations(visit: Visit) -> None:
    visit.page.locator(".patterns a", has_text="bus").first.click()
    visit.page.locator("#reset").wait_for()
    assert visit.page.input_value("#pair") == "0-2"
    assert visit.count() == "10 of 120 annotations"
