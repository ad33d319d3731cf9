"""`/metrics`: what this broker and its cluster count, in Prometheus' text format, collected when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ottla.metrics.exposition import CONTENT_TYPE, render
from ottla.server.http.hosts import for_known_hosts
from ottla.server.http.login import guarded_metrics
from ottla.server.http.streaming import StreamedResponse
from ottla.server.telemetry import catalog, node

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin


def routes(broker: Broker, login: HttpLogin | None) -> list[BaseRoute]:
    """The route of a node's metrics, for those who ask by a name of the node and may see them."""
    node.version_labels()

    async def metrics(_: Request) -> Response:
        lines = render(catalog.collect(broker))
        return StreamedResponse(lines, headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"})

    return [Route("/metrics", for_known_hosts(broker, guarded_metrics(broker, login, metrics)))]
