"""Only the page with the token on this machine gets an answer."""

import asyncio
import json
import os
from collections.abc import Awaitable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from boxmend.auditing.fixes.verdicts import VERDICTS_FILE
from boxmend.web.review.guarding import Receive, Scope, Send, guard
from tests.web.review.reviewed_runs import plain_run
from tests.web.review.served_pages import Served, served


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(plain_run(tmp_path_factory.mktemp("guarded"))) as made:
        yield made


def test_the_address_opens_the_page(page: Served) -> None:
    status, content, headers = page.ask(f"/{page.token}/")
    assert status == 200
    assert b"boxmend review" in content
    assert headers["content-type"].startswith("text/html")
    assert page.address == f"http://127.0.0.1:{page.server.port}/{page.token}/"
    assert len(page.token) == 32


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/fixes", "/verdicts", "/news-0", "/page.css", "//", "/favicon.ico"),
        *("/{wrong}/", "/{wrong}/fixes", "/{short}/fixes", "/{token}", "/{token}x/fixes"),
        *("/x/{token}/fixes", "/?token={token}", "/%00/fixes", "/%C3%A9/fixes", "/%ff/fixes"),
    ],
)
def test_without_the_token_nothing_is_served(page: Served, path: str) -> None:
    result = path.format(wrong="A" * 32, short=page.token[:-1], token=page.token)
    status, content, _ = page.ask(result)
    assert status == 403
    assert content == b"refused: use the address that `boxmend review` printed"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""],
)
def test_another_host_name_is_refused(page: Served, host: str) -> None:
    name = {"Host": host.format(port=page.server.port)}
    assert page.ask(f"/{page.token}/fixes", headers=name)[0] == 421


OWN, FOREIGN = b"127.0.0.1:80", b"evil.example"


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [([OWN], 200), ([OWN, FOREIGN], 421), ([FOREIGN, OWN], 421), ([OWN, OWN], 421), ([], 421)],
)
def test_exactly_one_host_name_is_accepted(hosts: list[bytes], expected: int) -> None:
    # uvicorn refuses some of these requests itself; the guard does not rely on it
    statuses = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> MutableMapping[str, Any]:
        return {}

    headers = [(b"host", host) for host in hosts]
    scope = {"type": "http", "path": "/secret/fixes", "headers": headers}
    asyncio.run(_wait_for(guard(app, "secret", 80)(scope, receive, send)))
    assert statuses == [expected]


def test_a_web_socket_is_closed_and_reaches_nothing() -> None:
    sent = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("the app was reached")

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    scope = {"type": "websocket", "path": "/secret/fixes", "headers": [(b"host", OWN)]}
    asyncio.run(_wait_for(guard(app, "secret", 80)(scope, receive, send)))
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_headers_of_the_app_are_kept() -> None:
    sent = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"Cache-Control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.extend(message["headers"])

    async def receive() -> MutableMapping[str, Any]:
        return {}

    scope = {"type": "http", "path": "/secret/fixes", "headers": [(b"host", OWN)]}
    asyncio.run(_wait_for(guard(app, "secret", 80)(scope, receive, send)))
    assert [value for name, value in sent if name.lower() == b"cache-control"] == [b"max-age=60"]
    assert (b"x-frame-options", b"DENY") in sent


async def _wait_for(answer: Awaitable[None]) -> None:
    await answer


def test_localhost_is_this_machine(page: Served) -> None:
    name = {"Host": f"LocalHost:{page.server.port}"}
    assert page.ask(f"/{page.token}/fixes", headers=name)[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_another_origin_is_refused_even_with_the_token(
    page: Served, headers: dict[str, str]
) -> None:
    assert page.ask(f"/{page.token}/fixes", headers=headers)[0] == 403
    body = json.dumps({"seen": 0, "verdicts": [{"row": 0, "answer": "accept"}]}).encode()
    result = {"Content-Type": "application/json"} | headers
    assert page.ask(f"/{page.token}/verdicts", body, result)[0] == 403
    assert not (page.run / VERDICTS_FILE).exists()


def test_a_person_may_open_the_address_from_another_page(page: Served) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert page.ask(f"/{page.token}/", headers=headers)[0] == 200


def test_every_answer_forbids_what_is_not_its_own(page: Served) -> None:
    for path in (f"/{page.token}/", "/", f"/{page.token}/fixes", f"/{page.token}/nothing"):
        headers = page.ask(path)[2]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    "name",
    [
        *("../run.json", "..%2frun.json", "%2e%2e/run.json", "/etc/passwd", "//etc/passwd"),
        *("page.css/../../run.json", "run.json", "verdicts.jsonl", "page.css%00.js", "."),
        *("cut-0-0-0-10-10-100.jpg/../x", "cut-..-0-0-10-10-100.jpg", "places-..", "news--1"),
        *("static/page.css", "page.html.j2", "index.html", "cut-0-0-0-10-10-100.png"),
        "cut-" + "9" * 5000 + "-0-0-10-10-100.jpg",
        *("places-" + "-".join("0" * 200), "places-99999", "cut-99999-0-0-10-10-100.jpg"),
        *("cut-0-0-0-10-10-0.jpg", "cut-0-0-0-10-10-9999.jpg", "cut-0-5-5-5-9-100.jpg"),
        *("cut-0-0-0-201-10-100.jpg", "cut-0-0-0-200-151-100.jpg"),
    ],
)
def test_a_path_in_a_request_reaches_no_file(page: Served, name: str) -> None:
    status, content, _ = page.ask(f"/{page.token}/{name}")
    assert status == 404
    assert b"root:" not in content
    assert b"addresses" not in content
    assert b"/tmp" not in content


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_do_nothing(page: Served, method: str) -> None:
    assert page.ask(f"/{page.token}/verdicts", method=method)[0] == 405
    assert page.ask(f"/{page.token}/fixes", method=method)[0] == 405


def test_the_server_listens_on_this_machine_alone(page: Served) -> None:
    port = f":{page.server.port:04X}"
    if not os.path.exists("/proc/net/tcp"):
        pytest.skip("no list of sockets here")
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(port) and line.split()[3] == "0A"
    ]
    assert listening == [f"0100007F{port}"]
