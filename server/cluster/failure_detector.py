"""Notices at once that the process of a broker has died, instead of waiting until its session ends.

A session shows within `broker.session.timeout.ms` that a broker is dead, whatever happened to its machine. Most often
only the process has died: then its connections end, and its port refuses new ones. So each broker keeps a connection to
every other one. If it ends, and for a while nothing listens at the address any more, the broker is fenced: by the
controller, or by any broker that notices that the controller itself is gone. Kafka waits for the session.

A broker that stops in order closes its port as well, and gives up its session within that time. Fencing a living broker
does no harm beyond an election: it registers again, and is not fenced a second time unless it was reached in between.
"""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING, Final

import trio

from ottla.metastore.errors import MetadataError

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import BrokerImage
    from ottla.server.cluster.peers import Peers

logger = logging.getLogger(__name__)

GONE_SECONDS: Final = 0.7
"""How long a port has to refuse connections: together with an election less than a second, which is how often
librdkafka asks.
"""
_AGAIN_SECONDS: Final = 0.1
_REFUSED: Final = os.strerror(errno.ECONNREFUSED)


class FailureDetector:
    """Watches the brokers that are alive. `run` owns the tasks for that, one for each other broker."""

    def __init__(self, controller: Controller, peers: Peers) -> None:
        self._controller = controller
        self._peers = peers
        self._watched: dict[tuple[int, int], trio.CancelScope] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        self._watched = {}
        async with trio.open_nursery() as nursery:
            while True:
                self._follow(nursery)
                await self._controller.next_image()

    def _follow(self, nursery: trio.Nursery) -> None:
        node_id = self._controller.node_id
        others = {
            (broker.node_id, broker.epoch): broker
            for broker in self._controller.image.live_brokers()
            if broker.node_id != node_id
        }
        for gone in self._watched.keys() - others.keys():
            self._watched.pop(gone).cancel()
        for come in others.keys() - self._watched.keys():
            scope = self._watched[come] = trio.CancelScope()
            nursery.start_soon(self._watch, others[come], scope)

    async def _watch(self, broker: BrokerImage, scope: trio.CancelScope) -> None:
        with scope:
            await self._until_gone(broker.node_id)
            # The controller may be gone as well: then its successor, which may be this broker, takes over.
            while True:
                if self._controller.image.controller_id in (self._controller.node_id, broker.node_id):
                    try:
                        await self._controller.fence_broker(broker)
                    except MetadataError as error:
                        logger.debug("node %d could not be fenced: %s", broker.node_id, error)
                    else:
                        text = "the process of node %d has ended: it is fenced"
                        logger.warning(text, broker.node_id, extra={"node_id": broker.node_id})
                        return
                await trio.sleep(_AGAIN_SECONDS)

    async def _until_gone(self, node_id: int) -> None:
        """Return when the broker was reached, and for a while nothing has listened at its address since then."""
        from ottla.client.errors import ClientError, UnreachableError

        was_reached = False
        refused_since: float | None = None
        while True:
            try:
                async with self._peers.connect(node_id) as connection:
                    was_reached, refused_since = True, None
                    await connection.wait_closed()
                continue
            except UnreachableError as error:
                if error.reason != _REFUSED or not was_reached:
                    refused_since = None
                elif refused_since is None:
                    refused_since = trio.current_time()
                elif trio.current_time() >= refused_since + GONE_SECONDS:
                    return
            except ClientError:
                refused_since = None
            await trio.sleep(_AGAIN_SECONDS)
