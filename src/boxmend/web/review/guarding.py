"""Access control: only the page itself, on this machine and with its token, gets answers.

A request must name this machine as its host (against DNS rebinding), must not come from another
page, and its path must start with the token. Any other request gets an error without data. Other
pages cannot frame or read an answer, and an answer cannot load files from other hosts.
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
REFUSALS = {
    403: b"refused: use the address that `boxmend review` printed",
    421: b"refused: this is not the name of this server",
}


def new_token() -> str:
    """Return a secret token for the address."""
    return secrets.token_urlsafe(24)


def guard(app: App, token: str, port: int) -> App:
    """Wrap an app: it gets only requests of its own page, with paths without the token."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # the app has no web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        status, path = _check(scope, token, port)
        if status:
            await _refuse(send, status)
            return
        inner = {**scope, "path": path, "raw_path": path.encode("utf-8", "replace")}
        await app(inner, receive, _with_headers(send))

    return answer


def _check(scope: Scope, token: str, port: int) -> tuple[int, str]:
    """Return the status with which to refuse a request, or 0 and its path without the token."""
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
    """Return whether the request comes from the page itself, or from opening the address."""
    site = (headers.get("sec-fetch-site") or ["none"])[0]
    is_opened = (headers.get("sec-fetch-dest") or [""])[0] == "document"
    return site in {"same-origin", "none"} or is_opened


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
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

    return send_with_headers


async def _refuse(send: Send, status: int) -> None:
    body = REFUSALS[status]
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    headers.append((b"content-length", str(len(body)).encode()))
    send_guarded = _with_headers(send)
    await send_guarded({"type": "http.response.start", "status": status, "headers": headers})
    await send_guarded({"type": "http.response.body", "body": body})
