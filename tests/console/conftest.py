"""A browser's view of the console: pages of a node in this process, read with an HTML parser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any, TypeVar
from uuid import UUID

import httpx
import pytest
import trio
from starlette.applications import Starlette

from ottla.console.routes import site
from ottla.coordinator.errors import CoordinatorLoadInProgressError
from ottla.kproto.records import Record, build_batch
from ottla.replica.append import Records, TopicIdPartition
from ottla.server.http.login import login_of
from tests.clusters import run_cluster
from tests.servers import RunningNode, serve_node

__all__ = ["once_loaded", "run_cluster", "serve_node"]

T = TypeVar("T")

VOID = frozenset({"meta", "link", "input", "br", "rect", "path", "circle"})


class Page(HTMLParser):
    """A page that was parsed: its text, its elements, and that every one of them was closed."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(convert_charrefs=True)
        self.status = response.status_code
        self.html = response.text
        self.text = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(self.html)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID and not self.get_starttag_text_ends():
            self._open.append(tag)

    def get_starttag_text_ends(self) -> bool:
        return (self.get_starttag_text() or "").endswith("/>")

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            assert tag in VOID or (self.get_starttag_text() or "").endswith("/>"), f"</{tag}> closes {self._open[-1:]}"

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """The attributes of every such element."""
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key.rstrip("_")) == value for key, value in attributes.items())
        ]

    def links(self) -> list[str]:
        return [found["href"] or "" for found in self.all("a")]

    def rows(self) -> int:
        """Rows of all tables, headings not counted."""
        return len(self.all("tr")) - len(self.all("thead"))


class Browser:
    """Asks a node's console for pages and keeps its cookies."""

    def __init__(self, node: Any, client: httpx.AsyncClient) -> None:
        self.node = node
        self.http = client

    async def get(self, path: str, **query: Any) -> Page:
        response = await self.http.get(f"/console/{path}", params=query or None)
        return Page(response)

    async def form_token(self, path: str = "") -> str:
        """The token that the forms of a page carry."""
        page = await self.get(path)
        (first, *_) = page.all("input", name="token")
        return first["value"] or ""

    async def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx.Response:
        return await self.http.post(f"/console/{path}", data=fields, headers=headers)

    async def produce(self, topic_id: UUID, partition: int, *records: Record, **batch: Any) -> None:
        """Append a batch as a client would."""
        where = TopicIdPartition(topic_id, partition)
        view = memoryview(bytearray(build_batch(list(records), **batch)))
        results = await self.node.broker.replica_manager.append(
            {where: Records(view)}, required_acks=1, timeout_ms=10_000
        )
        assert results[where].error is None


async def once_loaded(call: Callable[..., Awaitable[T]], *arguments: object) -> T:
    """Call a coordinator as clients do: again, while the partition in question is being loaded."""
    with trio.fail_after(30):
        while True:
            try:
                return await call(*arguments)
            except CoordinatorLoadInProgressError:
                await trio.sleep(0.01)


@asynccontextmanager
async def browsing(node: RunningNode) -> AsyncIterator[Browser]:
    """The console of a node that runs."""
    console = site(node.broker, login_of(node.broker))
    app = Starlette(routes=console.routes)
    transport = httpx.ASGITransport(app=app)
    async with console.running(), httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
        yield Browser(node, client)


@pytest.fixture
def browse(serve_node: Callable[..., Any]) -> Callable[..., Any]:
    """`async with browse(settings={…}) as browser`: the console of a node of its own."""

    @asynccontextmanager
    async def open_browser(settings: dict[str, str] | None = None, **options: Any) -> AsyncIterator[Browser]:
        async with serve_node(settings, **options) as node, browsing(node) as browser:
            yield browser

    return open_browser


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A browser takes seconds to start: it is for those who ask for it."""
    if "chromium" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("chromium") is not None]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
