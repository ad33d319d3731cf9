"""The HTTP page of all nodes: their metrics on one page, whether all are ready, and where each node's own page is.

It runs in a process of its own beside the nodes, asks each of them when it is asked, and goes on without those that do
not answer.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import trio
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ottla.cli.nodes.gather import merge
from ottla.server.http.hosts import for_hosts
from ottla.server.http.server import prepare, url
from ottla.server.network.network import open_listening_socket
from ottla.server.telemetry import logs
from ottla.server.telemetry.exposition import CONTENT_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.cli.nodes.link import Message, UnderSupervisor
    from ottla.server.network.listener import ListenAddress
    from ottla.server.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

_BACKLOG: Final = 100
_ASK_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 << 20
_NOT_CACHED: Final = {"cache-control": "no-store"}

_UP: Final = (
    "# HELP ottla_node_up 1 if the node answers, 0 if not.",
    "# TYPE ottla_node_up gauge",
)
_RESTARTS: Final = (
    "# HELP ottla_node_restarts_total How often the node's process died and was started again.",
    "# TYPE ottla_node_restarts_total counter",
)


class Answer:
    """What a node answered, or why it did not."""

    def __init__(self, status: int, body: str) -> None:
        self.status = status
        self.body = body


class Pages:
    """The pages of all nodes, as the supervisor last described these."""

    def __init__(self) -> None:
        self.nodes: list[Message] = []

    def hear(self, message: Message) -> None:
        self.nodes = message["nodes"]

    async def ask_all(self, path: str) -> dict[int, Answer]:
        """The answers of the nodes, by their ids; status 0 of one that gives none."""
        answers: dict[int, Answer] = {}

        async def ask_one(node: Message) -> None:
            answers[node["node_id"]] = await trio.to_thread.run_sync(ask, node["http"], path, abandon_on_cancel=True)

        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                nursery.start_soon(ask_one, node)
        return {node["node_id"]: answers[node["node_id"]] for node in self.nodes}

    async def metrics(self, _: Request) -> Response:
        answers = await self.ask_all("/metrics")
        text = await trio.to_thread.run_sync(self._merged, answers)
        return Response(text, headers={"content-type": CONTENT_TYPE, **_NOT_CACHED})

    def _merged(self, answers: Mapping[int, Answer]) -> str:
        lines = [*_UP, *(f'ottla_node_up{{node="{it}"}} {int(each.status == 200)}' for it, each in answers.items())]
        lines += _RESTARTS
        lines += (f'ottla_node_restarts_total{{node="{it["node_id"]}"}} {it["restarts"]}' for it in self.nodes)
        lines += merge({node_id: each.body for node_id, each in answers.items() if each.status == 200})
        return "\n".join(lines) + "\n"

    async def healthz(self, _: Request) -> Response:
        """The processes live: a node that does not answer is being started again, and the page does not hide it."""
        answers = await self.ask_all("/healthz")
        missing = [node_id for node_id, answer in answers.items() if answer.status != 200]
        text = f"no answer of node {', '.join(map(str, missing))}\n" if missing else "ok\n"
        return PlainTextResponse(text, status_code=503 if missing else 200, headers=_NOT_CACHED)

    async def readyz(self, _: Request) -> Response:
        answers = await self.ask_all("/readyz")
        reasons = [f"node {it}: {reason}" for it, answer in answers.items() for reason in reasons_of(answer)]
        return JSONResponse(
            {"ready": not reasons, "reasons": reasons}, status_code=503 if reasons else 200, headers=_NOT_CACHED
        )

    async def overview(self, _: Request) -> Response:
        answers = await self.ask_all("/readyz")
        rows = "".join(_row(node, answers[node["node_id"]]) for node in self.nodes)
        return HTMLResponse(_OVERVIEW.replace("ROWS", rows), headers=_NOT_CACHED)


def reasons_of(answer: Answer) -> list[str]:
    """Why a node is not ready, empty if it is."""
    if answer.status == 200:
        return []
    if answer.status == 503:
        return list(json.loads(answer.body)["reasons"])
    return [answer.body]


def ask(http_url: str, path: str) -> Answer:
    """Ask a node for one of its pages. Blocks, for some seconds at most."""
    try:
        # Never by a proxy: the node is on this machine.
        with build_opener(ProxyHandler({})).open(f"{http_url}{path}", timeout=_ASK_SECONDS) as answer:
            return Answer(answer.status, answer.read(_MOST_BYTES).decode(errors="replace"))
    except HTTPError as error:
        return Answer(error.code, error.read(_MOST_BYTES).decode(errors="replace"))
    except OSError as error:
        return Answer(0, f"it does not answer ({getattr(error, 'reason', error)})")


def serve_page(address: ListenAddress, config: BrokerConfig, link: UnderSupervisor) -> int:
    """Be the process that serves the page; the exit code."""
    logs.configure(config.ottla_log_level, config.ottla_log_format.lower())
    trio.run(_serve, address, config, link)
    return 0


async def _serve(address: ListenAddress, config: BrokerConfig, link: UnderSupervisor) -> None:
    pages = Pages()
    link.on_message = pages.hear
    listening = open_listening_socket(address.host, address.port, _BACKLOG, "--http")
    where = url(address._replace(port=int(listening.getsockname()[1])))
    hosts = [text.partition("://")[2].rpartition(":")[0].lower() for text in config.advertised_listeners or ()]
    guard = partial(for_hosts, lambda: config.ottla_console_allowed_hosts or (), lambda: hosts)
    application = Starlette(
        routes=[
            Route("/metrics", guard(pages.metrics)),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/", guard(pages.overview)),
        ]
    )
    serve = await trio.to_thread.run_sync(prepare, application, listening)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        link.tell({"event": "ready", "http": where, "pid": os.getpid()})
        await link.follow(nursery.cancel_scope.cancel, nursery.cancel_scope.cancel)


def _row(node: Message, answer: Answer) -> str:
    reasons = reasons_of(answer)
    state = "ready" if not reasons else "; ".join(reasons)
    cells = [node["node_id"], ", ".join(node["listeners"]), node["pid"] or "-", node["restarts"], state]
    links = f'<a href="{escape(node["http"])}/">page</a> <a href="{escape(node["http"])}/metrics">metrics</a>'
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + f"<td>{links}</td></tr>"


_OVERVIEW: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Ottla: nodes</title>
<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem}td,th{padding:.2rem 1rem .2rem 0;text-align:left}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}</style>
<h1>Nodes</h1><table><tr><th>Node<th>Listeners<th>Process<th>Restarts<th>State<th></tr>ROWS</table>
<p><a href="/metrics">metrics of all nodes</a></p></html>
"""
