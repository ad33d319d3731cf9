"""The application that a web server runs."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ottla.rest.errors import RestError
from ottla.rest.http import consumers, v2, v3, v3_configs, v3_groups
from ottla.rest.http.call import JSON, Proxy, error_answer, route


def application(proxy: Proxy) -> Starlette:
    """All routes. Nothing begins or ends with it: the creator of the proxy runs what it stands on."""

    async def root(_: Any) -> Any:
        return {}

    parts = (v2, consumers, v3, v3_configs, v3_groups)
    routes = [route(proxy, "/", {"GET": root}, (JSON,)), *(it for part in parts for it in part.routes(proxy))]
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused})


async def _refused(_: Request, error: Exception) -> Response:
    """An address that does not exist, or not with this method."""
    assert isinstance(error, HTTPException)
    told = RestError(error.status_code, f"HTTP {error.status_code} {error.detail}", error.headers)
    return error_answer(told, JSON)
