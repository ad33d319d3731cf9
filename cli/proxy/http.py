"""The proxy's HTTP port: `/metrics`, `/healthz`, and `/readyz`, which is 503 until upstream has named its brokers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ottla.cli import CommandError
from ottla.metrics import process
from ottla.metrics.exposition import CONTENT_TYPE, render
from ottla.runtime.errors import StartupError
from ottla.server.http.hosts import host_name, is_local
from ottla.server.http.server import prepare
from ottla.server.http.streaming import StreamedResponse
from ottla.server.network.network import open_listening_socket

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.metrics.metric import Family
    from ottla.proxy.proxy import Proxy

_BACKLOG = 100
_NOT_CACHED = {"cache-control": "no-store"}


async def serve(
    proxy: Proxy, address: tuple[str, int], task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; reports its URL when it answers. Raises CommandError if it cannot listen there."""
    host, port = address
    try:
        listening = open_listening_socket(host, port, _BACKLOG, "--http")
    except StartupError as error:
        raise CommandError(str(error)) from None
    with listening:
        worker = await trio.to_thread.run_sync(prepare, application(proxy), listening)
        shown = f"[{host}]" if ":" in host else host or "127.0.0.1"
        task_status.started(f"http://{shown}:{listening.getsockname()[1]}")
        await worker()


async def _families(proxy: Proxy) -> AsyncGenerator[Family, None]:
    async with aclosing(proxy.metrics.families(proxy.broker_count)) as families:
        async for family in families:
            yield family
    for family in await trio.to_thread.run_sync(process.collect):
        yield family


def application(proxy: Proxy) -> Starlette:
    """The application of the proxy's HTTP port."""

    async def metrics(request: Request) -> Response:
        # A page of another site must not read it under a name of its own (DNS rebinding).
        name = host_name(request.headers.get("host", ""))
        if "." in name and not is_local(name, ()):
            return PlainTextResponse("The proxy is not known by this name.\n", 421)
        return StreamedResponse(render(_families(proxy)), headers={"content-type": CONTENT_TYPE, **_NOT_CACHED})

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n", headers=_NOT_CACHED)

    async def readyz(_: Request) -> Response:
        if proxy.broker_count:
            return PlainTextResponse("ok\n", headers=_NOT_CACHED)
        return PlainTextResponse("upstream has not named its brokers yet\n", 503, headers=_NOT_CACHED)

    return Starlette(routes=[Route("/metrics", metrics), Route("/healthz", healthz), Route("/readyz", readyz)])
