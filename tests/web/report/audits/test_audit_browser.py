"""The pages of audits and runs in a real browser: the gallery of fixes, and the command."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boxmend.auditing.fixes.verdicts import Verdict, append_verdicts
from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.writing import write_report
from tests.web.report.audits.audited_folders import made_audit
from tests.web.report.browsed_pages import Visit, browsed_page, browsed_run, watched
from tests.web.review.reviewed_runs import NAMES

if TYPE_CHECKING:
    from playwright.sync_api import Browser

START = "boxmend apply run"


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = made_audit(tmp_path_factory.mktemp("audited"))
    append_verdicts(run, [Verdict("f7", "reject")])
    truth = str(run.parent / "data")
    return write_report(run, settings=ReportSettings(truth=truth)).path


@pytest.fixture
def visit(browser: "Browser", page_path: Path) -> Iterator[Visit]:
    with watched(browser, page_path) as made:
        yield made


def shown_command(visit: Visit) -> tuple[str, str]:
    """The command and the note below it."""
    return visit.texts("#command-text")[0], visit.texts("#command-note")[0]


def test_the_gallery_shows_every_fix_the_surest_first(visit: Visit) -> None:
    assert visit.count() == "8 fixes"
    titles = visit.texts(".card .labels")
    assert titles[0] == "van →  now bus"
    assert titles[2] == NAMES[1]  # a bad box of the hostile label, as text
    assert titles[3] == "add bus"
    assert titles[4] == "van →  now remove"
    badges = [text.split()[0] for text in visit.texts(".card .badges")]
    assert badges[2:6] == ["bad", "missing", "spurious", "duplicate"]
    assert visit.texts(".card .figures-line")[2].endswith("IoU +0.25")


def test_filters_choose_fixes(visit: Visit) -> None:
    page = visit.page
    page.select_option("#kind", "0")
    assert visit.count() == "4 of 8 fixes"
    page.select_option("#pair", "0-2")
    assert visit.count() == "3 of 8 fixes"
    page.click("#reset")
    page.select_option("#precision", "0.9")
    assert visit.count() == "4 of 8 fixes"
    page.select_option("#precision", "none")
    assert visit.count() == "1 of 8 fixes"
    page.click("#reset")
    page.select_option("#sure", "0.95")
    assert visit.count() == "3 of 8 fixes"
    page.select_option("#sure", "less")
    assert visit.count() == "2 of 8 fixes"
    page.click("#reset")
    page.select_option("#answer", "rejected")
    assert visit.count() == "1 of 8 fixes"
    page.click("#reset")
    page.select_option("#mark", "wrong")
    assert visit.count() == "8 fixes"
    page.select_option("#from", "2")
    assert visit.count() == "3 of 8 fixes"  # the added bus, and two annotated ones
    page.click("#reset")
    page.fill("#query", "A BUS, BY <b>5")
    assert visit.count() == "1 of 8 fixes"  # by its reason
    page.fill("#query", "3.png")
    assert visit.count() == "1 of 8 fixes"  # by its file
    page.click("#reset")
    page.select_option("#sort", "error")
    page.click("#direction")
    assert visit.texts(".card .figures-line")[0].startswith("error 10")  # rejected


def test_the_command_applies_what_a_precision_shows(visit: Visit) -> None:
    command, note = shown_command(visit)
    assert command == f"{START} --precision 0.95 --out mended"
    assert note == (
        "No command applies exactly what is shown. This one applies 3 of the 8 fixes shown. "
        "Choose a precision in the filters to see what it applies."
    )
    visit.page.select_option("#precision", "0.8")
    assert shown_command(visit) == (
        f"{START} --precision 0.8 --out mended",
        "This command applies exactly what is shown: 5 fixes.",
    )
    visit.page.select_option("#kind", "2")
    assert visit.count() == "None of 8 fixes; change a filter"  # alone, it reaches only 0.7
    assert not visit.page.locator("#command").is_visible()
    visit.page.select_option("#precision", "0.7")
    assert shown_command(visit) == (
        f"{START} --precision 0.7 --only missing --out mended",
        "This command applies exactly what is shown: 1 fix.",
    )


def test_a_view_that_no_command_expresses_gets_the_nearest_and_says_so(visit: Visit) -> None:
    visit.page.select_option("#precision", "0.9")
    visit.page.fill("#query", "3.png")
    assert shown_command(visit) == (
        f"{START} --precision 0.9 --out mended",
        "No command applies exactly what is shown. This one applies 1 of the 1 fix shown, and "
        "3 that are not shown.",
    )
    visit.page.click("#reset")
    visit.page.select_option("#answer", "rejected")
    assert visit.texts("#command-note") == [
        "No command applies anything of what is shown. Choose a precision in the filters to see "
        "what it applies."
    ]
    assert not visit.page.locator(".command-line").is_visible()


def test_labels_alone_have_a_precision_of_their_own(visit: Visit) -> None:
    # Without the rejected one, labels have 0.98, 0.97 and 0.4, lowered by the rejection.
    visit.page.select_option("#kind", "0")
    visit.page.select_option("#precision", "0.95")
    assert visit.count() == "2 of 8 fixes"
    assert shown_command(visit)[0] == f"{START} --precision 0.95 --only labels --out mended"


def test_the_button_and_a_key_copy_the_command(browser: "Browser", page_path: Path) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    made = Visit(context.new_page(), page_path, "#precision=0.9")
    expected = f"{START} --precision 0.9 --out mended"
    made.page.click("#copy")
    made.page.wait_for_function("document.getElementById('copy').textContent.startsWith('Copied')")
    assert made.texts("#copied") == ["Copied the command"]
    assert made.do("navigator.clipboard.readText()") == expected
    made.page.select_option("#precision", "0.95")
    made.page.locator("#gallery").focus()
    made.page.keyboard.press("c")
    made.page.wait_for_function(
        "navigator.clipboard.readText().then((text) => text.includes('0.95'))"
    )
    assert made.complaints == []
    context.close()


def test_without_a_clipboard_the_command_is_selected(browser: "Browser", page_path: Path) -> None:
    made = Visit(browser.new_page(), page_path, "#precision=0.9")
    made.do("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    made.do("() => { document.execCommand = () => false; }")
    made.page.click("#copy")
    made.page.wait_for_function("getSelection().toString().includes('--precision 0.9')")
    assert made.texts("#copied") == ["The command is selected: copy it by a key"]
    made.page.close()


def test_a_fix_is_opened_with_its_facts(visit: Visit) -> None:
    visit.page.locator(".card .open").nth(5).click()
    facts = dict(zip(visit.texts("#detail-facts dt"), visit.texts("#detail-facts dd"), strict=True))
    assert facts["Kind"] == "duplicate"
    assert facts["Fix right"] == "probability 55\u00a0%"
    assert facts["Applied"] == "at precision 0.7 and below"
    assert facts["Compared with the truth"] == "wrong fix"
    assert facts["Stays"].startswith("annotation ")
    assert visit.address() == "#open=f5"
    drawn = visit.do(
        """[...document.querySelectorAll('#detail-picture rect.over')].map((one) => one.getAttribute('class'))"""  # noqa: E501
    )
    assert drawn == ["over annotated", "over matched", "over true"]
    assert visit.texts("#detail-layers .layer") == ["annotated", "kept", "proposed", "truth"]


def test_a_precision_of_the_summary_leads_to_its_fixes(visit: Visit) -> None:
    visit.page.locator(".numbers a", has_text="0.8").click()
    visit.page.locator("#reset").wait_for()
    assert visit.page.input_value("#precision") == "0.8"
    assert visit.count() == "5 of 8 fixes"


@pytest.mark.parametrize("width", [360, 768, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_scrolls_sideways(
    browser: "Browser", page_path: Path, width: int, scheme: str
) -> None:
    page = browser.new_page(
        viewport={"width": width, "height": 740},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    made = Visit(page, page_path)
    assert made.do("document.documentElement.scrollWidth") == width
    page.locator(".card .open").first.click()
    assert made.do("document.getElementById('detail').scrollWidth") <= width
    assert made.complaints == []
    page.close()


def test_everything_has_a_name_for_those_who_listen(visit: Visit) -> None:
    nameless = visit.do(
        """() => [...document.querySelectorAll('button, a, select, input, img, svg')]
            .filter((one) => !one.closest('[aria-hidden="true"]') && one.checkVisibility())
            .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length
                || one.hasAttribute('alt') || one.getAttribute('role') === 'img'))
            .map((one) => one.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


def test_an_audit_without_fixes_has_no_gallery_and_no_error(
    browser: "Browser", tmp_path: Path
) -> None:
    made = Visit(browser.new_page(), write_report(made_audit(tmp_path, [])).path)
    made.page.keyboard.press("c")
    made.page.keyboard.press("j")
    assert made.complaints == []
    assert made.page.locator(".card").count() == 0
    made.page.close()


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return browsed_page(browsed_run(tmp_path_factory.mktemp("browsed")))


@pytest.fixture
def run_visit(browser: "Browser", run_page: Path) -> Iterator[Visit]:
    with watched(browser, run_page) as made:
        yield made


def test_the_page_of_a_run_has_the_command_for_its_changes(run_visit: Visit) -> None:
    # 30 rows are relabelled, 30 unsure, and 60 moved: labels and boxes change in different rows.
    assert shown_command(run_visit) == (
        f"{START} --out mended",
        "This command applies exactly what is shown: 90 changes. "
        "30 of the annotations shown stay as annotated.",
    )
    run_visit.page.select_option("#verdict", "relabelled")
    assert shown_command(run_visit) == (
        f"{START} --only labels --out mended",
        "This command applies exactly what is shown: 30 changes.",
    )
    run_visit.page.select_option("#verdict", "")
    run_visit.page.select_option("#moved", "yes")
    assert shown_command(run_visit)[0] == f"{START} --only boxes --out mended"
    run_visit.page.select_option("#from", "0")
    command, note = shown_command(run_visit)
    assert command == f"{START} --only boxes --out mended"
    assert note == (
        "No command applies exactly what is shown. This one applies 20 of the 20 changes shown, "
        "and 40 that are not shown."
    )
    run_visit.page.click("#reset")
    run_visit.page.select_option("#verdict", "discarded")
    assert run_visit.texts("#command-note") == [
        "No command applies anything of what is shown. "
        "30 of the annotations shown stay as annotated."
    ]
