"""Deciding in a real browser: keys, buttons, another class, undo."""

from typing import TYPE_CHECKING

import pytest

from tests.web.review.review_visits import HOSTILE, Visit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Route

pytest_plugins = ["tests.web.review.review_fixtures"]


def test_keys_decide_and_the_file_has_it_at_once(visit: Visit) -> None:
    visit.press("a")
    visit.becomes("#place", "2 of 8")
    visit.press("r")
    visit.becomes("#place", "3 of 8")
    visit.press("s")
    visit.becomes("#place", "4 of 8")
    lines = visit.written(3)
    assert [(line["fix"], line["verdict"], line["mode"]) for line in lines] == [
        ("f0", "accept", "queue"),
        ("f1", "reject", "queue"),
        ("f2", "skip", "queue"),
    ]
    visit.becomes("#decided", "2 of 8 decided")
    assert visit.text("#answers") == "1 accepted, 0 changed, 1 rejected"
    assert visit.text("#last") == f"Skipped: bad box {HOSTILE}"
    visit.press("k")
    visit.becomes("#verdict", "skipped")
    visit.press("ArrowLeft")
    visit.becomes("#verdict", "rejected")
    visit.press("j", "ArrowRight")
    visit.becomes("#place", "4 of 8")


def test_buttons_decide_as_keys_do(visit: Visit) -> None:
    for number, button in enumerate(("#accept", "#reject", "#skip"), start=2):
        visit.page.click(button)
        visit.becomes("#place", f"{number} of 8")
    assert [one["verdict"] for one in visit.written(3)] == ["accept", "reject", "skip"]


def test_undo_takes_back_one_after_the_other_and_shows_it_again(visit: Visit) -> None:
    visit.press("a", "r")
    visit.becomes("#place", "3 of 8")
    visit.press("u")
    visit.becomes("#place", "2 of 8")
    visit.press("u")
    visit.becomes("#place", "1 of 8")
    lines = visit.written(4)
    assert [(line["fix"], line["verdict"]) for line in lines[2:]] == [
        ("f1", "undo"),
        ("f0", "undo"),
    ]
    visit.becomes("#decided", "0 of 8 decided")
    visit.press("u")
    visit.becomes("#last", "Nothing to undo in this window")
    visit.written(4)


def test_another_class_is_found_by_typing(visit: Visit) -> None:
    visit.press("c")
    assert visit.page.locator("#classes").is_visible()
    assert visit.page.locator("#class-list li").count() == 3
    visit.page.keyboard.type("SCRIPT")
    assert visit.page.locator("#class-list li").all_inner_texts() == [HOSTILE]
    visit.press("Enter")
    (line,) = visit.written(1)
    assert (line["verdict"], line["label"]) == ("accept", HOSTILE)
    visit.becomes("#place", "2 of 8")
    visit.press("k")
    visit.becomes("#verdict", f"accepted as {HOSTILE}")
    visit.press("c", "ArrowDown", "ArrowDown", "Enter")  # bus, which was proposed
    assert "label" not in visit.written(2)[1]
    visit.becomes("#place", "2 of 8")
    visit.press("c")
    visit.page.keyboard.type("nothing like it")
    assert visit.text("#class-list") == "No class name contains this text"
    visit.press("Enter", "Escape")
    assert not visit.page.locator("#classes").is_visible()
    visit.written(2)


def test_the_next_key_after_the_list_of_classes_is_not_lost(visit: Visit) -> None:
    visit.press("c")
    is_held = visit.do(
        """(() => {
            const field = document.getElementById('class-query');
            field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
            return document.activeElement === field;
        })()"""
    )
    assert not is_held


def test_the_old_class_is_a_rejection(visit: Visit) -> None:
    visit.press("c")
    visit.page.keyboard.type("van")
    visit.press("Enter")
    assert visit.written(1)[0]["verdict"] == "reject"


@pytest.fixture
def cut_off(context: "BrowserContext") -> None:
    """No verdict gets through; from the start, for a route set later may let the first one pass."""
    context.route("**/verdicts", lambda route: route.abort())


@pytest.fixture
def held_news(context: "BrowserContext") -> list["Route"]:
    """Questions for news after the first, which are answered when a test lets them go."""
    held: list[Route] = []
    context.route("**/news-*", lambda route: held.append(route))
    context.route("**/news-*", lambda route: route.continue_(), times=1)  # this one is asked first
    return held


@pytest.mark.usefixtures("cut_off")
def test_news_do_not_hide_that_a_verdict_is_not_saved(
    held_news: list["Route"], visit: Visit
) -> None:
    while not held_news:
        visit.page.wait_for_timeout(50)
    visit.press("a")
    visit.page.locator("#trouble").wait_for()
    held_news[0].continue_()
    for _ in range(20):
        assert visit.text("#trouble").startswith("Not saved yet")
        visit.page.wait_for_timeout(30)
    visit.complaints = [
        complaint for complaint in visit.complaints if "ERR_FAILED" not in complaint
    ]


@pytest.mark.usefixtures("cut_off")
def test_a_verdict_without_an_answer_is_reported_and_sent_again(
    visit: Visit, context: "BrowserContext"
) -> None:
    visit.press("a")
    visit.page.locator("#trouble").wait_for()
    assert visit.text("#trouble").startswith("Not saved yet")
    visit.becomes("#place", "2 of 8")
    assert visit.server.lines() == []
    context.unroute("**/verdicts")
    visit.press("r")
    lines = visit.written(2)
    assert [line["verdict"] for line in lines] == ["accept", "reject"]
    visit.page.locator("#trouble").wait_for(state="hidden")
    visit.complaints = [
        complaint for complaint in visit.complaints if "ERR_FAILED" not in complaint
    ]


def test_a_held_key_decides_once_and_text_fields_take_letters(visit: Visit) -> None:
    visit.page.keyboard.down("a")
    visit.page.keyboard.down("a")  # a repeat
    visit.page.keyboard.down("a")
    visit.page.keyboard.up("a")
    visit.written(1)
    visit.press("f")
    visit.page.keyboard.type("ars")
    assert visit.page.input_value("#query") == "ars"
    visit.page.wait_for_timeout(200)
    visit.written(1)
