"""The page of a drawn run in a real browser: what it shows, requests and logs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boxmend.data.types import Box
from boxmend.web.report.gathering import ReportSettings
from boxmend.web.report.writing import write_report
from tests.fabricated_runs import DISCARDED, KEPT, RELABELLED
from tests.fabricated_runs import Visit as LedgerVisit
from tests.web.report.drawn_runs import drawn_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
else:
    pytest.importorskip("playwright", reason="playwright is not installed: no browser to drive")

NAMES = ("van", "</script><img src=x onerror=alert(1)>", "bus")
HOSTILE = NAMES[1]
NUM_ROWS = 120  # more than one helping of cards


def visits() -> list[LedgerVisit]:
    """Rows in turn: a van that is a bus; a hostile one, moved; a bus that is unsure; a moved van.

    The loss of a row is its number in hundredths, the confidence falls with it.
    """
    made = []
    for row in range(NUM_ROWS):
        verdict = (RELABELLED, KEPT, DISCARDED, KEPT)[row % 4]
        final = (10.0, 10.0, 30.0 + row / 10, 50.0) if row % 4 in (1, 3) else None
        made.append(
            LedgerVisit(
                *(0, row, verdict, (row + 2) % 3 if verdict == RELABELLED else None),
                *(1 - row / 200, final),
                loss=row / 100,
                threshold=0.5,
            )
        )
    return made


def browsed_run(folder: Path) -> Path:
    """A run with 120 annotations on 60 images."""
    boxes: list[Box] = [(10, 10, 30, 50)] * NUM_ROWS
    files = [f"{number}.png" if number != 7 else "Lake.png" for number in range(NUM_ROWS // 2)]
    return drawn_run(folder, visits(), boxes=boxes, names=NAMES, files=files)


def browsed_page(run: Path) -> Path:
    """The report with its pictures in it, and the truth: the data themselves."""
    truth = str(run.parent / "data")
    return write_report(run, settings=ReportSettings(truth=truth, embed=True)).path


class Visit:
    """A page that is open, and all that it complained of or asked for."""

    def __init__(self, page: "Page", path: Path, fragment: str = "") -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "requestfailed",
            lambda request: self.complaints.append(f"{request.url} failed: {request.failure}"),
        )
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(5000)
        page.goto(path.as_uri() + fragment)

    def texts(self, selector: str) -> list[str]:
        """What elements say."""
        return [text.strip() for text in self.page.locator(selector).all_text_contents()]

    def files(self) -> list[str]:
        """The file and id of each card."""
        return self.texts(".card .file")

    def count(self) -> str:
        """Return the text about the number of shown annotations."""
        return self.texts("#count")[0]

    def address(self) -> str:
        """The fragment of the page's address, once it is written."""
        self.page.wait_for_timeout(300)
        return str(self.do("location.hash"))

    def do(self, script: str) -> Any:
        """Run a script on the page, as a test may and the page's policy forbids others."""
        return self.page.evaluate(script)


@contextmanager
def watched(browser: "Browser", page_path: Path) -> Iterator[Visit]:
    """The page, wide and light; when all is done nothing may have gone wrong."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    made = Visit(context.new_page(), page_path)
    yield made
    assert made.complaints == [], made.complaints
    asked = [url for url in made.requests if not url.startswith("data:image/jpeg;base64,")]
    assert asked == [page_path.as_uri()], asked
    context.close()
