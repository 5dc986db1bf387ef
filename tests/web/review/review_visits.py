"""A real browser on the page of a review: what it shows, requests and logs."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.web.review.reviewed_runs import NAMES
from tests.web.review.served_pages import Served

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page
else:
    pytest.importorskip("playwright", reason="playwright is not installed: no browser to drive")

HOSTILE = NAMES[1]
PATIENCE = 15_000  # milliseconds; what is waited for comes at once on an idle machine


class Visit:
    """A page that is open, and all that it complained of or asked for."""

    def __init__(self, page: "Page", server: Served, fragment: str = "") -> None:
        self.page, self.server = page, server
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(PATIENCE)
        page.goto(server.address + fragment)
        self.until("document.getElementById('decided').textContent.includes('of')")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        """What the first of the elements says."""
        return str(self.page.locator(selector).first.inner_text()).strip()

    def until(self, script: str, argument: Any = None) -> None:
        """Wait until a script is true; the page's policy forbids the browser to do so by itself."""
        for _ in range(PATIENCE // 20):
            if self.page.evaluate(script, argument):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"{script} never became true for {argument}")

    def becomes(self, selector: str, text: str) -> None:
        """Wait until an element says something."""
        script = "([s, t]) => document.querySelector(s)?.innerText.trim() === t"
        self.until(script, [selector, text])

    def written(self, number: int) -> list[dict[str, Any]]:
        """The lines in the file of verdicts, once there are so many."""
        for _ in range(PATIENCE // 25):
            if len(self.server.lines()) >= number:
                break
            self.page.wait_for_timeout(25)
        lines = self.server.lines()
        assert len(lines) == number, f"{len(lines)} lines, not {number}"
        return lines

    def drawn(self) -> None:
        """Wait until both pictures are there."""
        self.until("document.querySelectorAll('.well image[href]').length >= 2")

    def do(self, script: str) -> Any:
        """Run a script on the page, as a test may and the page's policy forbids others."""
        return self.page.evaluate(script)


def opened(context: "BrowserContext", server: Served, fragment: str = "") -> Visit:
    """A visit in a new window."""
    return Visit(context.new_page(), server, fragment)
