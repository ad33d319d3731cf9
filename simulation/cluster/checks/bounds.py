"""What a node may hold at any time: each cache, budget and queue within its bound, checked twenty times a second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.server.network.listener import Listeners

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.simulation.cluster.world import World

__all__ = ["Bound", "bounds", "bounds_watched"]

_EVERY_S: Final = 0.05
_LARGEST_REQUEST_BYTES: Final = 1 << 20
"""A budget may be exceeded by the one request that crosses it; those of the simulation are much smaller than this."""
_SLACK: Final = 66
"""So many deadlines are kept of those that have left (`Deadlines`)."""


class Bound(NamedTuple):
    """How much there is of something, and how much there may be at most."""

    what: str
    held: int
    most: int


@asynccontextmanager
async def bounds_watched(world: World) -> AsyncIterator[None]:
    """Look at all nodes that serve until the block is left."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, world)
        yield
        nursery.cancel_scope.cancel()


async def _watch(world: World) -> None:
    while True:
        for node_id, machine in world.machines.items():
            broker = machine.broker
            if broker is not None and broker.is_serving:
                for bound in bounds(broker):
                    if bound.held > bound.most:
                        world.fail(f"node {node_id} holds {bound.held} {bound.what}, and may hold {bound.most}")
        await trio.sleep(_EVERY_S)


def bounds(broker: Broker) -> Iterator[Bound]:
    """The bounds of one node, and what it holds now."""
    replicas, context = broker.replica_manager, broker.log_manager.context
    for what, budget in (("requests", broker.budget), ("responses", replicas.response_budget)):
        yield Bound(f"bytes of {what}", budget.used_bytes, budget.limit_bytes + _LARGEST_REQUEST_BYTES)
    pool = context.pool
    yield Bound("bytes of free buffers", pool.counters.retained_bytes, pool.config.max_retained_bytes)
    yield Bound("bytes of blocks in the tail cache", context.tail.size_bytes, context.tail.limit_bytes)
    files = context.fd_cache
    unused = sum(1 for descriptor in files._descriptors.values() if not descriptor.pins)
    yield Bound("open files of segments that nobody reads", unused, files.capacity)
    sessions = replicas.fetch_sessions
    yield Bound("fetch sessions", len(sessions), sessions._slots)
    in_sessions = sum(len(session.partitions) for session in sessions._sessions.values())
    yield Bound("partitions in fetch sessions that it does not count", in_sessions, sessions.partition_count)
    listeners = broker.listeners
    assert isinstance(listeners, Listeners)
    under_way = (connection._in_flight for connection in listeners._connections)
    begun = max((sum(request.is_begun for request in requests) for requests in under_way), default=0)
    yield Bound("requests of one connection", begun, broker.config.ottla_max_in_flight_requests_per_connection)
    # One fetch of a connection is answered before the next.
    fetches = replicas.fetch_purgatory
    yield Bound("fetches that wait", fetches.watching, listeners.connection_count)
    for purgatory in (
        fetches,
        replicas.append_purgatory,
        replicas.delete_records_purgatory,
        replicas.share_fetch_purgatory,
    ):
        most = 2 * purgatory.watching + _SLACK
        yield Bound(f"deadlines in the purgatory of {purgatory.name}", len(purgatory.deadlines), most)
