"""The orders of the fixes in a real browser: queue, sample, doubts, patterns, two windows."""

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from boxmend.auditing.fixes.table import Kind
from tests.web.review.review_visits import Visit, opened
from tests.web.review.reviewed_runs import fix, plain_run
from tests.web.review.served_pages import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

pytest_plugins = ["tests.web.review.review_fixtures"]


def test_filters_and_sorting_choose_the_queue(visit: Visit) -> None:
    page = visit.page
    page.select_option("#kind-filter", "0")
    visit.becomes("#place", "1 of 4")
    page.select_option("#from", "2")
    visit.becomes("#place", "1 of 1")
    assert visit.text("#count") == "1 of 8 fixes"
    page.click("#reset")
    visit.becomes("#place", "1 of 8")
    page.select_option("#to", "0")
    visit.becomes("#place", "1 of 1")
    page.click("#reset")
    page.select_option("#sort", "doubt")
    visit.becomes("#kind", "duplicate")  # 0.55 is nearest to a half
    page.select_option("#sort", "p_fix")
    page.click("#direction")
    visit.becomes("#facts .file-name", "quo'te & <i>.png · 24")
    page.click("#reset")
    visit.press("f")
    page.keyboard.type("QUO'")
    visit.becomes("#place", "1 of 1")
    page.fill("#query", "nowhere")
    visit.becomes("#empty", "No fix matches the filters; change one.")
    page.click("#reset")
    visit.press("a")
    visit.written(1)
    page.select_option("#state", "accepted")
    visit.becomes("#place", "1 of 1")
    visit.becomes("#verdict", "accepted")


def test_the_view_is_in_the_address_and_a_reload_keeps_all(visit: Visit) -> None:
    visit.page.select_option("#kind-filter", "0")
    visit.press("a")
    visit.becomes("#place", "2 of 4")
    visit.written(1)
    visit.page.wait_for_timeout(300)
    assert visit.do("location.hash") == "#kind=0&at=1"
    visit.page.reload()
    visit.becomes("#decided", "1 of 8 decided")
    visit.becomes("#place", "1 of 3")  # what is open of the kind
    visit.press("u")  # the window remembers what it said
    assert visit.written(2)[1] == {"fix": "f0", "verdict": "undo", "mode": "queue"}


def test_two_windows_see_what_the_other_decides(
    visit: Visit, context: "BrowserContext", server: Served
) -> None:
    other = opened(context, server)
    other.becomes("#place", "1 of 8")
    visit.press("r")
    visit.written(1)
    other.becomes("#verdict", "rejected")
    other.becomes("#decided", "1 of 8 decided")
    other.press("j", "a")
    visit.becomes("#decided", "2 of 8 decided")
    assert [one["fix"] for one in visit.written(2)] == ["f0", "f1"]
    visit.press("k")
    other.press("k", "k")
    other.becomes("#place", "1 of 8")
    other.press("a")
    other.written(3)
    visit.becomes("#verdict", "accepted")
    visit.press("u")  # it said reject; that is not what stands
    visit.becomes("#last", "Another window has changed the verdict")
    visit.written(3)
    assert other.complaints == []


def test_a_sample_measures_precision_blindly(visit: Visit) -> None:
    visit.press("m")
    visit.becomes("#place", "0 of 3 judged")
    assert "0.9" not in visit.text("#facts")
    assert visit.text("#reason") == ""
    visit.press("a")
    visit.becomes("#place", "1 of 3 judged")
    visit.press("a")
    visit.becomes("#place", "2 of 3 judged")
    visit.press("r")
    visit.becomes("#empty", "All fixes here are decided or skipped.")
    # Two of three, by Wilson: 0.21 to 0.94.
    visit.becomes("#measured", "0.67, 0.21 to 0.94, on 3")
    assert {one["mode"] for one in visit.written(3)} == {"sample"}


def test_a_sample_asks_again_about_what_was_decided_otherwise(visit: Visit) -> None:
    visit.press("a", "a", "a")
    visit.written(3)
    visit.press("m")
    visit.becomes("#place", "0 of 3 judged")
    visit.becomes("#verdict", "accepted")
    visit.press("a")
    visit.becomes("#place", "1 of 3 judged")


def test_the_most_doubtful_come_in_their_order(visit: Visit) -> None:
    visit.press("d")
    visit.becomes("#kind", "missing")  # 0.7: the best of those that would not be taken
    visit.press("a")
    visit.becomes("#kind", "spurious")
    assert visit.written(1)[0] == {"fix": "f3", "verdict": "accept", "mode": "doubtful"}


def test_a_pattern_is_confirmed_at_once(visit: Visit) -> None:
    visit.press("p")
    visit.becomes(".pattern-list tbody tr td .labels strong", "bus")
    assert visit.page.locator(".pattern-list tbody tr").count() == 6
    visit.page.locator(".pattern").first.click()
    visit.page.locator(".card img").nth(2).wait_for()
    assert visit.page.locator(".card").count() == 3
    assert visit.text(".card .piece") == "0.30"  # the least sure first
    image = visit.page.locator(".card img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 20
    visit.page.locator(".card input").first.uncheck()
    visit.becomes("#accept-all b", "Accept 2 of 3")
    visit.press("a")
    assert visit.text("#confirm-title") == "Accept 2: van to bus?"
    visit.press("Enter")
    lines = visit.written(2)
    assert {one["fix"] for one in lines} == {"f0", "f1"}
    assert {(one["verdict"], one["mode"]) for one in lines} == {("accept", "pattern")}
    visit.becomes("#accept-all b", "Accept 1")
    visit.press("u")
    visit.becomes("#accept-all b", "Accept 3")
    assert [one["verdict"] for one in visit.written(4)[2:]] == ["undo", "undo"]


def test_a_pattern_is_gone_through_by_keys(visit: Visit) -> None:
    visit.press("p")
    visit.page.locator(".pattern").first.wait_for()
    visit.press("j", "Enter")
    visit.page.locator(".card img").first.wait_for()
    visit.press("j", "j", "x")
    visit.becomes("#reject-all b", "Reject 2 of 3")
    visit.press("r", "Escape")  # thought better of it
    assert not visit.page.locator("#confirm").is_visible()
    visit.press("j")
    visit.press("Enter")
    visit.becomes("#place", "3 of 3")
    visit.press("a")
    assert visit.written(1)[0] == {"fix": "f0", "verdict": "accept", "mode": "queue"}
    visit.press("Escape")
    visit.page.locator("#cards").wait_for()
    visit.press("Escape")
    visit.page.locator(".pattern-list").wait_for()


def test_a_long_queue_is_quick(context: "BrowserContext", tmp_path: Path) -> None:
    vans = (0, 2, 5, 7, 14)
    many = [
        fix(Kind.WRONG_LABEL, row, label=2, p_fix=number / 5000)
        for number, row in zip(range(5000), cycle(vans), strict=False)
    ]
    with served(plain_run(tmp_path, many)) as server:
        visit = opened(context, server)
        visit.becomes("#place", "1 of 5,000")
        visit.press("p")
        visit.page.locator(".pattern").first.click()
        visit.page.locator(".card img").first.wait_for()
        assert visit.page.locator(".card").count() <= 120  # not all at once
        visit.press("r", "Enter")
        visit.becomes("#decided", "5,000 of 5,000 decided")
        assert len(server.lines()) == 5000
        assert visit.complaints == []
