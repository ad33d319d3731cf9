"""Running a proxy's filter without a network: a request goes in, an answer comes out."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from ottla.kproto import codec
from ottla.kproto.messages import response_class
from ottla.kproto.schema import Response
from ottla.proxy.filters.chain import Chain, Filters, Named
from ottla.proxy.filters.filter import Call, Client, Filter
from ottla.proxy.login import ANONYMOUS
from ottla.proxy.metrics import Metrics

if TYPE_CHECKING:
    from ottla.kproto.schema import Request

Upstream = Callable[[Any], "Response | Awaitable[Response]"]
M = TypeVar("M", bound="Request | Response")


def run_filter(
    filters: Filter | list[Filter],
    request: Request,
    upstream: Upstream | None = None,
    *,
    version: int | None = None,
    client_id: str | None = "test",
    peer: str = "127.0.0.1:1",
    principal: str = ANONYMOUS,
) -> Response:
    """What a client would get through a filter, or through several in order.

    `upstream` is given the request as it would arrive, and answers it; without it, each request is answered with an
    empty response. Messages are built and parsed at every step, so what a filter makes of them has to fit the version;
    by default that is the highest that clients would be offered. Raises RefusedError (ottla.proxy.errors) where the
    client's connection would be ended.
    """
    return trio.run(_run, filters, request, upstream, version, client_id, Client(peer, "bootstrap", principal))


async def _run(
    filters: Filter | list[Filter],
    request: Request,
    upstream: Upstream | None,
    version: int | None,
    client_id: str | None,
    client: Client,
) -> Response:
    listed = filters if isinstance(filters, list) else [filters]
    offered = Filters([Named(f"{type(it).__name__}-{number}", it) for number, it in enumerate(listed, 1)])
    key = request.API_KEY
    chosen = offered.highest(key) if version is None else version
    if not offered.lowest(key) <= chosen <= offered.highest(key):
        raise ValueError(f"clients are not offered {key.name} in version {chosen}")
    chain = Chain(offered, client, Metrics())
    call = Call(key, chosen, client_id, chain.client)
    request = _over_the_wire(request, chosen)
    if key in chain.requests:
        outcome = await chain.request(request, call)
        if isinstance(outcome, Response):
            return _over_the_wire(outcome, chosen)
        request = request if outcome is None else outcome
    response = response_class(key)() if upstream is None else upstream(_over_the_wire(request, chosen))
    if inspect.isawaitable(response):
        response = await response
    response = _over_the_wire(response, chosen)
    if key in chain.responses:
        response = await chain.response(response, call) or response
    return _over_the_wire(response, chosen)


def _over_the_wire(message: M, version: int) -> M:
    return codec.parse(type(message), version, codec.build(message, version))
