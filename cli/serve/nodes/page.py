"""The HTTP page of all nodes: their metrics on one page, whether all are ready, and where each node's own page is.

It runs in a process of its own beside the nodes. When it is asked, it asks each of them, and leaves out those that do
not answer. It is encrypted as their own pages are. The nodes decide who may see what they answer, so it passes on who
asks and with which password or token.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from functools import partial
from html import escape
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final, NamedTuple

import trio
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ottla.cli import CommandError
from ottla.cli.serve.nodes.gather import merge
from ottla.metrics.exposition import CONTENT_TYPE
from ottla.runtime import logs
from ottla.runtime.errors import StartupError
from ottla.server.http.hosts import for_hosts
from ottla.server.http.peer import VISITOR_HEADER, peer_host
from ottla.server.http.server import follow_certificate, prepare, url
from ottla.server.network.network import open_listening_socket
from ottla.server.wiring.optional import tls_of_http
from ottla.settings.config import ConfigError

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.cli.serve.nodes.link import Message, UnderSupervisor
    from ottla.server.network.listener import ListenAddress
    from ottla.settings.config import BrokerConfig

_BACKLOG: Final = 100
_ASK_SECONDS: Final = 5.0
_MOST_BYTES: Final = 64 << 20
_NOT_CACHED: Final = {"cache-control": "no-store"}
_REFUSED: Final = (400, 401, 403, 429)
_OF_A_REFUSAL: Final = ("www-authenticate", "retry-after")

_UP: Final = (
    "# HELP ottla_node_up 1 if the node answers, 0 if not.",
    "# TYPE ottla_node_up gauge",
)
_RESTARTS: Final = (
    "# HELP ottla_node_restarts_total How often the node's process died and was started again.",
    "# TYPE ottla_node_restarts_total counter",
)


class Answer(NamedTuple):
    """A node's answer; or the reason why there is none, with status 0."""

    status: int
    body: str
    headers: Mapping[str, str] = {}


class Pages:
    """The pages of all nodes, as the supervisor last described the nodes."""

    def __init__(self, *, asks: bool) -> None:
        """`asks`: nodes answer only those who have logged in."""
        self.nodes: list[Message] = []
        self._asks = asks

    def hear(self, message: Message) -> None:
        self.nodes = message["nodes"]

    async def ask_all(self, path: str, request: Request | None = None, method: str = "GET") -> dict[int, Answer]:
        """The nodes' answers, by node id, for the visitor who sent `request`; without one, for an anonymous visitor."""
        headers = {} if request is None else _visitor(request)
        answers: dict[int, Answer] = {}

        async def ask_one(node: Message) -> None:
            work = partial(ask, node["socket"], path, method, headers)
            answers[node["node_id"]] = await trio.to_thread.run_sync(work, abandon_on_cancel=True)

        async with trio.open_nursery() as nursery:
            for node in self.nodes:
                nursery.start_soon(ask_one, node)
        return {node["node_id"]: answers[node["node_id"]] for node in self.nodes}

    async def metrics(self, request: Request) -> Response:
        answers = await self.ask_all("/metrics", request)
        if (refusal := _refusal(answers)) is not None:
            return refusal
        text = await trio.to_thread.run_sync(self._merged, answers)
        return Response(text, headers={"content-type": CONTENT_TYPE, **_NOT_CACHED})

    def _merged(self, answers: Mapping[int, Answer]) -> str:
        lines = [*_UP, *(f'ottla_node_up{{node="{it}"}} {int(each.status == 200)}' for it, each in answers.items())]
        lines += _RESTARTS
        lines += (f'ottla_node_restarts_total{{node="{it["node_id"]}"}} {it["restarts"]}' for it in self.nodes)
        lines += merge({node_id: each.body for node_id, each in answers.items() if each.status == 200})
        return "\n".join(lines) + "\n"

    async def share_group(self, request: Request) -> Response:
        """The records that members of a share group hold, from all nodes that answer."""
        answers = await self.ask_all(f"/share-group?{request.url.query}", request)
        if (refusal := _refusal(answers)) is not None:
            return refusal
        told = [json.loads(each.body) for each in answers.values() if each.status == 200]
        if not told:
            return PlainTextResponse("no node answers\n", 503, _NOT_CACHED)
        partitions = [partition for each in told for partition in each["partitions"]]
        letters = sum(each["dead_letters"] for each in told)
        merged = {"group": told[0]["group"], "partitions": partitions, "dead_letters": letters}
        return JSONResponse(merged, headers=_NOT_CACHED)

    async def healthz(self, _: Request) -> Response:
        """The process lives. A node that does not answer is being restarted; the page shows that."""
        answers = await self.ask_all("/healthz")
        missing = [node_id for node_id, answer in answers.items() if answer.status != 200]
        text = f"no answer from node {', '.join(map(str, missing))}\n" if missing else "ok\n"
        return PlainTextResponse(text, status_code=503 if missing else 200, headers=_NOT_CACHED)

    async def readyz(self, _: Request) -> Response:
        answers = await self.ask_all("/readyz")
        reasons = [f"node {it}: {reason}" for it, answer in answers.items() for reason in reasons_of(answer)]
        return JSONResponse(
            {"ready": not reasons, "reasons": reasons}, status_code=503 if reasons else 200, headers=_NOT_CACHED
        )

    async def overview(self, request: Request) -> Response:
        """For those who may see the metrics, if nodes ask for a login; if no node answers that could decide, for
        nobody.
        """
        if self._asks:
            judged = await self.ask_all("/metrics", request, "HEAD")
            if (refusal := _refusal(judged)) is not None:
                return refusal
            if not any(answer.status == 200 for answer in judged.values()):
                return PlainTextResponse("no node answers\n", 503, _NOT_CACHED)
        answers = await self.ask_all("/readyz")
        rows = "".join(_row(node, answers[node["node_id"]]) for node in self.nodes)
        return HTMLResponse(_OVERVIEW.replace("ROWS", rows), headers=_NOT_CACHED)


def reasons_of(answer: Answer) -> list[str]:
    """Why a node is not ready, empty if it is."""
    if answer.status == 200:
        return []
    if answer.status == 503:
        return list(json.loads(answer.body).get("reasons", ["it is not ready"]))  # not shown if nodes ask for a login
    return [answer.body]


def ask(path_of_socket: str, path: str, method: str, headers: Mapping[str, str]) -> Answer:
    """Ask a node for one of its pages. Blocks, for some seconds at most."""
    connection = _NodeConnection(path_of_socket)
    try:
        connection.request(method, path, headers=dict(headers))
        answer = connection.getresponse()
        kept = {name: value for name in _OF_A_REFUSAL if (value := answer.headers.get(name)) is not None}
        return Answer(answer.status, answer.read(_MOST_BYTES).decode(errors="replace"), kept)
    except (OSError, HTTPException) as error:
        return Answer(0, f"it does not answer ({error})")
    finally:
        connection.close()


class _NodeConnection(HTTPConnection):
    """Through the node's own socket: nobody else listens there, and nobody else can say who the visitor is."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_ASK_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _visitor(request: Request) -> dict[str, str]:
    """The headers with the visitor's address and credentials."""
    shown = request.headers.get("authorization")
    return {VISITOR_HEADER: peer_host(request)} | ({} if shown is None else {"authorization": shown})


def _refusal(answers: Mapping[int, Answer]) -> Response | None:
    """The response to the visitor if a node refuses."""
    for answer in answers.values():
        if answer.status in _REFUSED:
            return PlainTextResponse(answer.body, answer.status, {**answer.headers, **_NOT_CACHED})
    return None


def serve_page(address: ListenAddress, config: BrokerConfig, link: UnderSupervisor) -> int:
    """Be the process that serves the page; returns the exit code."""
    logs.configure(config.ottla_log_level, config.ottla_log_format.lower())
    try:
        trio.run(_serve, address, config, link)
    except (ConfigError, StartupError) as error:
        link.failed(CommandError(str(error)))
        return 1
    return 0


async def _serve(address: ListenAddress, config: BrokerConfig, link: UnderSupervisor) -> None:
    pages = Pages(asks=config.ottla_http_security_protocol.startswith("SASL_"))
    tls = tls_of_http(config)
    listening = open_listening_socket(address.host, address.port, _BACKLOG, "--http")
    where = url(address._replace(port=int(listening.getsockname()[1])), "http" if tls is None else "https")
    hosts = [text.partition("://")[2].rpartition(":")[0].lower() for text in config.advertised_listeners or ()]
    guard = partial(for_hosts, lambda: config.ottla_console_allowed_hosts or (), lambda: hosts)
    application = Starlette(
        routes=[
            Route("/metrics", guard(pages.metrics)),
            Route("/share-group", guard(pages.share_group)),
            Route("/healthz", pages.healthz),
            Route("/readyz", pages.readyz),
            Route("/", guard(pages.overview)),
        ]
    )
    context = None if tls is None else tls.context
    serve = await trio.to_thread.run_sync(prepare, application, listening, context)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        if tls is not None:
            nursery.start_soon(follow_certificate, tls)
        link.tell({"event": "ready", "http": where, "pid": os.getpid()})
        await link.follow(nursery.cancel_scope.cancel, nursery.cancel_scope.cancel, pages.hear)


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
