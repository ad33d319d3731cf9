"""`/healthz`: the process lives and its loop turns. `/readyz`: it serves, or 503 and what it is waiting for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from ottla.server.telemetry.readiness import degradations, unready_reasons

if TYPE_CHECKING:
    from starlette.requests import Request

    from ottla.server.broker import Broker

_NAMED = 20
_NOT_CACHED = {"cache-control": "no-store"}


def routes(broker: Broker, *, tells_why: bool = True) -> list[BaseRoute]:
    """The routes of a node's health, for everybody; `tells_why` it is not ready, which may name topics."""

    async def healthz(_: Request) -> Response:
        # An answer at all is the proof: this runs on the loop that serves the clients.
        return PlainTextResponse("ok\n", headers=_NOT_CACHED)

    async def readyz(_: Request) -> Response:
        reasons = unready_reasons(broker)
        details = {"reasons": reasons, "degraded": degradations(broker)[:_NAMED]} if tells_why else {}
        return JSONResponse(
            {"ready": not reasons, **details},
            status_code=503 if reasons else 200,
            headers=_NOT_CACHED,
        )

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
