"""A browser, a server and a visit for every test; test files name this as their plugin."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from review_visits import Visit, opened
from reviewed_runs import plain_run
from served_pages import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--no-first-run", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """One browser for all tests of a file."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed to open pages")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(plain_run(tmp_path)) as made:
        yield made


@pytest.fixture
def context(browser: "Browser") -> Iterator["BrowserContext"]:
    made = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    yield made
    made.close()


@pytest.fixture
def visit(context: "BrowserContext", server: Served) -> Iterator[Visit]:
    """The page, wide and light; when all is done nothing may have gone wrong or abroad."""
    made = opened(context, server)
    made.becomes("#place", "1 of 8")
    yield made
    assert made.complaints == []
    abroad = [one for one in made.requests if not one.startswith((server.address, "data:,"))]
    assert abroad == []
