"""`/share-group?group=NAME`: what its members hold of the partitions that this node leads, and how many dead letters
the node has written for it since its start, in JSON.

No API of Kafka's tells it: to the coordinator a record that somebody has is as it was before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.server.http.hosts import for_known_hosts
from ottla.server.http.login import guarded_metrics
from ottla.server.share.held import in_flight

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin


def routes(broker: Broker, login: HttpLogin | None) -> list[BaseRoute]:
    """For users who may see the node's metrics."""

    async def show(request: Request) -> Response:
        group_id = request.query_params.get("group")
        if group_id is None:
            return PlainTextResponse("Name a share group: /share-group?group=NAME\n", 400)
        led = broker.share.made
        partitions = [each._asdict() for each in await in_flight(led, group_id)]
        counted = None if led is None else led.dead_letters.counters.get(group_id)
        state = {
            "group": group_id,
            "partitions": partitions,
            "dead_letters": 0 if counted is None else counted.records,
        }
        return JSONResponse(state, headers={"cache-control": "no-store"})

    return [Route("/share-group", for_known_hosts(broker, guarded_metrics(broker, login, show)))]
