"""A server and a visit for every test; test files name this as their plugin."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.web.review.review_visits import Visit, opened
from tests.web.review.reviewed_runs import plain_run
from tests.web.review.served_pages import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


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
    abroad = [
        request for request in made.requests if not request.startswith((server.address, "data:,"))
    ]
    assert abroad == []
