"""The application that a web server runs."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.rest.errors import RestError
from ottla.rest.http import consumers, v2, v3, v3_configs, v3_groups
from ottla.rest.http.call import JSON, Proxy, error_answer, route


def application(proxy: Proxy) -> ASGIApp:
    """All routes. Nothing begins or ends with it: the creator of the proxy runs what it stands on."""

    async def root(_: Any) -> Any:
        return {}

    parts = (v2, consumers, v3, v3_configs, v3_groups)
    routes = [route(proxy, "/", {"GET": root}, (JSON,)), *(it for part in parts for it in part.routes(proxy))]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _refused})

    async def routed_as_sent(scope: Scope, receive: Receive, send: Send) -> None:
        # A name may have a slash in it, which is sent as %2F: the address is divided before its parts are decoded.
        if raw := scope.get("raw_path"):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await app(scope, receive, send)

    return routed_as_sent


async def _refused(_: Request, error: Exception) -> Response:
    """An address that does not exist, or not with this method."""
    assert isinstance(error, HTTPException)
    told = RestError(error.status_code, f"HTTP {error.status_code} {error.detail}", error.headers)
    return error_answer(told, JSON)
