"""Who may ask: only the page itself, on this machine, with the token of its address.

A request names this machine as its host (a foreign name that leads here is refused: DNS rebinding),
comes from no other page, and begins with the token. Whatever else it is, it gets an error and
nothing of the data. No answer may be framed, read by other pages, or load anything from elsewhere.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
REFUSED = {
    403: b"refused: use the address that `boxmend review` printed",
    421: b"refused: this is not the name of this server",
}


def new_token() -> str:
    """A token that nobody guesses, fit for an address."""
    return secrets.token_urlsafe(24)


def guarded(app: App, token: str, port: int) -> App:
    """The app behind the token: it sees paths without it, and only requests of its own page."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a web socket: there are none
            await send({"type": "websocket.close", "code": 1008})
            return
        status, rest = _judged(scope, token, port)
        if status:
            await _refuse(send, status)
            return
        inner = {**scope, "path": rest, "raw_path": rest.encode("utf-8", "replace")}
        await app(inner, receive, _with_headers(send))

    return answer


def _judged(scope: Scope, token: str, port: int) -> tuple[int, str]:
    """The status to refuse a request with, or 0 and its path without the token."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts = {f"{HOST}:{port}", f"localhost:{port}"}
    named = headers.get("host", [])
    if len(named) != 1 or named[0].lower() not in hosts:
        return 421, ""
    origins = {f"http://{host}" for host in hosts}
    if not origins.issuperset(headers.get("origin", [])) or not _is_own(headers):
        return 403, ""
    begin, slash, rest = scope["path"].lstrip("/").partition("/")
    if not slash or not secrets.compare_digest(begin.encode("utf-8", "replace"), token.encode()):
        return 403, ""
    return 0, f"/{rest}"


def _is_own(headers: dict[str, list[str]]) -> bool:
    """Whether a browser says that its own page asks, or a person who opens the address."""
    site = (headers.get("sec-fetch-site") or ["none"])[0]
    is_opened = (headers.get("sec-fetch-dest") or [""])[0] == "document"
    return site in {"same-origin", "none"} or is_opened


def _with_headers(send: Send) -> Send:
    async def sent(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            known = {name.decode("latin-1").lower() for name, _ in message.get("headers", [])}
            extra = HEADERS | {"cache-control": "no-store"}
            added = [
                (name.encode(), value.encode())
                for name, value in extra.items()
                if name not in known
            ]
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await send(message)

    return sent


async def _refuse(send: Send, status: int) -> None:
    body = REFUSED[status]
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers.append((b"content-length", str(len(body)).encode()))
    sent = _with_headers(send)
    await sent({"type": "http.response.start", "status": status, "headers": headers})
    await sent({"type": "http.response.body", "body": body})
