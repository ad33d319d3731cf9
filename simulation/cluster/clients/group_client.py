"""A client that belongs to a group: it finds the group's coordinator, and asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.versions import OPEN_END
from ottla.simulation.cluster.clients.client import Client
from ottla.simulation.cluster.clients.transactions import COORDINATOR_MOVES, find_coordinator

if TYPE_CHECKING:
    from ottla.kproto.schema import Request
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["GroupClient"]


class GroupClient(Client):
    """A member of a group, of whatever protocol."""

    def __init__(self, world: ClientEnvironment, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self._coordinator = -1

    async def ask(self, request: Request, *, timeout_s: float = 4.0) -> Any:
        """The coordinator's answer; None if there is none, or another broker is the coordinator."""
        try:
            answer = await self.call_coordinator(request, timeout_s=timeout_s)
        except ClientError:
            self._coordinator = -1
            await trio.sleep(self.rng.uniform(0, 0.1))
            return None
        code = ErrorCode(getattr(answer, "error_code", 0))
        if code in COORDINATOR_MOVES:
            await self.moved()
            return None
        return answer

    async def call_coordinator(self, request: Request, *, at_most: int = OPEN_END, timeout_s: float = 4.0) -> Any:
        """The coordinator's answer, whatever it says, or a ClientError."""
        if self._coordinator < 0:
            self._coordinator = await find_coordinator(self, self.group, is_transaction=False)
        return await self.call(self._coordinator, request, at_most=at_most, timeout_s=timeout_s)

    async def moved(self) -> None:
        """Another broker is the coordinator, or soon will be."""
        self._coordinator = -1
        await trio.sleep(self.rng.uniform(0.05, 0.3))
