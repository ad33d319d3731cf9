"""The console's addresses, all below `/console`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from starlette.middleware import Middleware
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from ottla.console.access_check import (
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    Need,
    Page,
    admitted,
    for_all,
)
from ottla.console.console import Console
from ottla.console.guard import FormTokens, Guard
from ottla.console.history import History
from ottla.console.messages.schemas import Schemas
from ottla.console.pages import (
    abort_transaction,
    access,
    groups,
    login,
    manage_group,
    manage_topic,
    messages,
    overview,
    produce,
    settings,
    subjects,
    theme,
    topic_groups,
    topics,
    transactions,
)
from ottla.console.pages.export import Exports
from ottla.console.pages.live import LiveTails
from ottla.console.rendering import PREFIX, Renderer
from ottla.console.visitors import Visitors
from ottla.runtime.version import version

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin
    from ottla.settings.config import BrokerConfig

_STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "favicon.svg": "image/svg+xml",
}


class Site(NamedTuple):
    """The routes for an application, and a lifespan for the tasks that run while they are served."""

    routes: list[BaseRoute]
    running: Callable[..., AbstractAsyncContextManager[None]]


def site(broker: Broker, login: HttpLogin | None) -> Site:
    """The console of a broker, for users that `login` admits. Compiles its templates: call it in a worker thread."""
    console = Console(
        broker=broker,
        renderer=Renderer(FormTokens(), version=version(), node_id=broker.node_id, clusters=_clusters(broker.config)),
        history=History(broker),
        schemas=Schemas(broker.config, broker.codecs),
        visitors=Visitors(broker, login, trio.current_time),
    )

    @asynccontextmanager
    async def running(*_: object) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(console.history.run)
            yield
            nursery.cancel_scope.cancel()

    return Site(routes(console), running)


def _clusters(config: BrokerConfig) -> list[tuple[str, str]]:
    """The other clusters' names with the addresses of their consoles, without a slash at the end."""
    named = (item.partition("=") for item in config.ottla_console_clusters)
    return [(name.strip(), address.strip().rstrip("/")) for name, _, address in named]


def routes(console: Console) -> list[BaseRoute]:
    """Every address of the console, and the one of the whole port, which leads there."""

    def page(path: str, show: Page, *methods: str, needs: Need | None = None) -> Route:
        return Route(path, partial(admitted, console, show, needs), methods=methods or ("GET",), name=path)

    def form(path: str, show: Page, needs: Need | None = None) -> Route:
        return page(path, show, "GET", "POST", needs=needs)

    pages: list[BaseRoute] = [
        Route("/login", partial(for_all, console, login.show), methods=("GET", "POST")),
        page("/logout", login.leave, "POST"),
        page("/", overview.show),
        page("/topics", topics.show_all),
        form("/new-topic", manage_topic.new),
        page("/topics/{topic}", topics.show, needs=DESCRIBE_TOPIC),
        page("/topics/{topic}/groups", topic_groups.show, needs=DESCRIBE_TOPIC),
        form("/topics/{topic}/manage", manage_topic.manage, DESCRIBE_TOPIC),
        page("/topics/{topic}/messages", messages.show_all, needs=READ_TOPIC),
        page("/topics/{topic}/messages/{partition}/{offset}", messages.show, needs=READ_TOPIC),
        page("/topics/{topic}/messages/{partition}/{offset}/{part}", messages.download, needs=READ_TOPIC),
        page("/topics/{topic}/export", Exports().show, needs=READ_TOPIC),
        page("/topics/{topic}/live", LiveTails().show, needs=READ_TOPIC),
        form("/topics/{topic}/produce", produce.show, WRITE_TOPIC),
        page("/groups", groups.show_all),
        page("/group", groups.show, needs=DESCRIBE_GROUP),
        form("/group/manage", manage_group.manage, DESCRIBE_GROUP),
        page("/schemas", subjects.show_all),
        form("/schema", subjects.show),
        page("/transactions", transactions.show_all),
        form("/transaction/abort", abort_transaction.show),
        form("/access", access.show, DESCRIBE_CLUSTER),
        page("/settings", settings.show_all, needs=DESCRIBE_CLUSTER_CONFIGS),
        Route("/theme", partial(for_all, console, theme.choose), methods=("POST",)),
        *(Route(f"/static/{name}", partial(_static, _read_static(name), kind)) for name, kind in _STATIC.items()),
        page("/{path:path}", _missing),
    ]
    guard = Middleware(Guard, allowed_hosts=lambda: console.broker.config.ottla_console_allowed_hosts or ())
    return [Route("/", _to_console), Route(PREFIX, _to_console), Mount(PREFIX, routes=pages, middleware=[guard])]


async def _to_console(_: Request) -> Response:
    return RedirectResponse(f"{PREFIX}/", 307)


async def _missing(console: Console, request: Request) -> Response:
    return await console.not_found(request, "page here")


def _read_static(name: str) -> bytes:
    return (files(__package__) / "static" / name).read_bytes()


async def _static(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, media_type=kind, headers={"cache-control": "max-age=300"})
