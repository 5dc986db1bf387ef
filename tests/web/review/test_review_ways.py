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


def test_patterns_are_sorted_by_sureness(visit: Visit) -> None:
    visit.press("p")
    visit.page.locator(".pattern-list").wait_for()
    shares = visit.page.locator(".pattern-list td:nth-child(5)")
    # a bad box 0.96, van to bus (0.98 0.97 0.30) / 3, missing 0.7, spurious 0.6,
    # duplicate 0.55, 0.40
    assert shares.all_inner_texts() == ["0.96", "0.75", "0.70", "0.60", "0.55", "0.40"]
    visit.press("q", "r", "r", "p")  # the two sure ones of van to bus
    last = ".pattern-list tbody tr:last-child"  # van to bus: what is open of it has less than 0.30
    visit.until(f"Number(document.querySelector('{last} td:nth-child(5)')?.textContent) < 0.3")
    assert visit.text(f"{last} strong") == "bus"
    assert visit.text(f"{last} td:nth-child(4)") == "1"


def test_a_pattern_is_confirmed_at_once(visit: Visit) -> None:
    visit.press("p")
    visit.page.locator(".pattern").nth(1).click()
    visit.page.locator(".card img").nth(2).wait_for()
    assert visit.page.locator(".card").count() == 3
    assert visit.text(".card .piece") == "0.30"  # the least sure first
    image = visit.page.locator(".card img").first
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 20
    assert not visit.page.locator(".card input").first.is_checked()  # 0.30 is below 0.95
    visit.becomes("#accept-all b", "Accept 2 of 3")
    visit.press("a", "r")  # the keys of a single fix decide nothing here
    assert not visit.page.locator("#confirm").is_visible()
    visit.press("Shift+A")
    assert visit.text("#confirm-title") == "Accept 2: van to bus?"
    visit.press("Enter")
    lines = visit.written(2)
    assert {line["fix"] for line in lines} == {"f0", "f1"}
    assert {(line["verdict"], line["mode"]) for line in lines} == {("accept", "pattern")}
    visit.becomes("#accept-all b", "Accept 0 of 1")
    assert visit.page.locator("#accept-all").is_disabled()
    visit.press("Shift+A")
    assert not visit.page.locator("#confirm").is_visible()
    visit.press("u")
    visit.becomes("#accept-all b", "Accept 2 of 3")
    assert [one["verdict"] for one in visit.written(4)[2:]] == ["undo", "undo"]


def test_all_fixes_of_a_pattern_are_ticked_by_one_key(visit: Visit) -> None:
    visit.press("p")
    visit.page.locator(".pattern").nth(1).click()
    visit.becomes("#accept-all b", "Accept 2 of 3")
    visit.press("t")
    visit.becomes("#accept-all b", "Accept 3")
    assert visit.page.locator(".card input:checked").count() == 3
    visit.press("t")
    visit.becomes("#accept-all b", "Accept 0 of 3")
    assert visit.page.locator(".card input:checked").count() == 0
    visit.page.click("#tick-all")
    visit.becomes("#reject-all b", "Reject 3")


def test_every_fourth_of_a_queue_is_a_random_check(visit: Visit) -> None:
    checks = visit.server.get("fixes")["checks"]
    assert sorted(checks) == [0, 1, 2, 3, 4, 5]  # more likely right than not
    expected = next(row for row in checks if row > 2)
    for _ in range(3):
        assert not visit.page.locator("#check").is_visible()
        visit.press("j")
    visit.becomes("#place", "4 of 8")
    assert visit.page.locator("#check").is_visible()
    visit.press("a")
    assert visit.written(1)[0] == {"fix": f"f{expected}", "verdict": "accept", "mode": "queue"}
    visit.page.select_option("#sort", "file")  # an order that reveals nothing
    visit.becomes("#place", "1 of 7")
    visit.press("j", "j", "j")
    visit.becomes("#place", "4 of 7")
    assert not visit.page.locator("#check").is_visible()


def test_errors_that_remain_and_the_end_of_a_review_are_shown(visit: Visit) -> None:
    # Errors left: 0.8 + 0.7 + 0.6 + 0.5 + 0.4; wrong changes: 0.02 + 0.03 + 0.04.
    visit.becomes("#remaining", "about 3 errors")
    left = "3 listed errors are left, 0 changes are wrong"
    visit.becomes("#remaining-note", f"if you apply now: {left}")
    assert visit.text("#stop").startswith("5 more verdicts are worth it")
    visit.press("j", "j", "j", "r", "r", "r", "r", "r")
    visit.written(5)
    visit.until("document.getElementById('stop').textContent.startsWith('Reasonable to stop')")


def test_nothing_to_measure_is_said(context: "BrowserContext", tmp_path: Path) -> None:
    with served(plain_run(tmp_path, [fix(Kind.SPURIOUS, 8, p_fix=0.6)])) as server:
        visit = opened(context, server)
        visit.becomes("#measured", "nothing to measure")
        visit.press("m")
        visit.until("!document.getElementById('empty').hidden")
        assert visit.text("#empty").startswith("Nothing to measure: without a review, apply")
        assert visit.complaints == []


def test_a_pattern_is_gone_through_by_keys(visit: Visit) -> None:
    visit.press("p")
    visit.page.locator(".pattern").first.wait_for()
    visit.press("j", "j", "Enter")
    visit.page.locator(".card img").first.wait_for()
    visit.press("j", "j", "x")
    visit.becomes("#reject-all b", "Reject 1 of 3")
    visit.press("Shift+R", "Escape")  # thought better of it
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
        visit.press("t", "Shift+R", "Enter")
        visit.becomes("#decided", "5,000 of 5,000 decided")
        assert len(server.lines()) == 5000
        assert visit.complaints == []
