"""Keeps other sites out of the console: checks the Host header and where a form comes from, and adds headers.

Another site's page in the same browser must neither read the console (DNS rebinding: the site's name is made to point
at this address) nor change anything through it (cross-site request forgery).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from ottla.server.http.hosts import host_name, is_local

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SESSION_COOKIE: Final = "ottla_console"
_SESSION_LENGTH: Final = 32

SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def session_cookie(request: Request) -> str:
    """The name of the cookie that keeps a session. It contains the port, because browsers send cookies to all ports of
    a host, and each may be another node's console.
    """
    port = request.url.port
    return _SESSION_COOKIE if port is None else f"{_SESSION_COOKIE}_{port}"


class FormTokens:
    """Tokens that prove that a form is ours: bound to the browser's cookie, valid for this process's lifetime."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def session_of(self, request: Request) -> tuple[str, bool]:
        """The browser's session, and whether it is new, so that its cookie must be set."""
        session = request.cookies.get(session_cookie(request), "")
        if len(session) == _SESSION_LENGTH and session.isalnum() and session.isascii():
            return session, False
        return secrets.token_hex(_SESSION_LENGTH // 2), True

    def token(self, session: str) -> str:
        """The token that a form of this session carries."""
        return hmac.new(self._secret, session.encode(), sha256).hexdigest()

    def is_valid(self, request: Request, token: str) -> bool:
        """Whether a form that was sent carries its session's token."""
        session, is_new = self.session_of(request)
        return not is_new and hmac.compare_digest(self.token(session).encode(), token.encode("utf-8", "replace"))


class Guard:
    """ASGI middleware: refuses foreign hosts and cross-site forms, and adds `SECURITY_HEADERS` to every answer.

    Accepted hosts are IP addresses (no other site can be made out of one), localhost, and the names that
    `allowed_hosts` returns.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Callable[[], Iterable[str]]) -> None:
        self._app = app
        self._allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not is_local(host_name(host), self._allowed_hosts()):
            refusal = PlainTextResponse(
                "This name is not one of the console's. Set ottla.console.allowed.hosts to let it in.\n", 421
            )
            await refusal(scope, receive, send_guarded)
        elif scope["method"] not in ("GET", "HEAD") and not _is_same_origin(headers, host):
            await PlainTextResponse("This form comes from another site.\n", 403)(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)


def _is_same_origin(headers: Headers, host: str) -> bool:
    """Whether the browser says that the request comes from a page of this host; without that, the token decides."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == host
