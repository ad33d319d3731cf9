"""Which node is the cluster's controller: the one whose session holds the key `/controller`.

The controller has duties, such as electing leaders; every other change of the metadata is made by the node that is
asked for it. It is safe if two nodes both believe for a while that they are the controller: each change is a
compare-and-swap.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata.image import NO_LEADER
from ottla.metastore.errors import MetadataError
from ottla.metastore.store import NO_LEASE

if TYPE_CHECKING:
    from ottla.metadata.controller import Controller
    from ottla.server.cluster.membership import Membership

logger = logging.getLogger(__name__)

Duty = Callable[["Controller"], Awaitable[None]]
"""Something that the controller does: begun when this node becomes the controller, cancelled when it no longer is."""

RETRY_SECONDS: Final = 1.0


class Controllership:
    """Makes this node the controller when there is none, and runs the duties while it is.

    A duty that raises a MetadataError, as it does while the store cannot be reached, is begun again after a pause.
    """

    def __init__(self, controller: Controller, membership: Membership, duties: Sequence[Duty]) -> None:
        self._controller = controller
        self._membership = membership
        self._duties = tuple(duties)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            controller_id = self._controller.image.controller_id
            if controller_id == self._controller.node_id:
                await self._serve()
            elif controller_id == NO_LEADER and self._membership.lease != NO_LEASE:
                await self._stand()
            else:
                await self._controller.next_image()

    async def _serve(self) -> None:
        node_id = self._controller.node_id
        level = logging.INFO if len(self._controller.image.brokers) > 1 else logging.DEBUG
        logger.log(level, "node %d is the controller", node_id, extra={"node_id": node_id})
        async with trio.open_nursery() as nursery:
            for duty in self._duties:
                nursery.start_soon(self._do, duty)
            while self._controller.image.controller_id == node_id:
                await self._controller.next_image()
            logger.info("node %d is no longer the controller", node_id, extra={"node_id": node_id})
            nursery.cancel_scope.cancel()

    async def _stand(self) -> None:
        try:
            await self._controller.become_controller(self._membership.lease)
        except MetadataError:
            # The store is away, or the session has ended: the membership reports both, and begins another session.
            with trio.move_on_after(RETRY_SECONDS):
                await self._controller.next_image()

    async def _do(self, duty: Duty) -> None:
        while True:
            try:
                return await duty(self._controller)
            except MetadataError as error:
                text = "a duty of the controller is postponed: %s"
                logger.warning(text, error, extra={"error": str(error)})
            await trio.sleep(RETRY_SECONDS)
