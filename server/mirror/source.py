"""The cluster that is mirrored, as a client sees it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.client.errors import BrokerError, ClientError, UnreachableError
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from ottla.client.security import Security
    from ottla.kproto.schema import Request

TIMEOUT_SECONDS: Final = 30.0


class Source:
    """Connections to the source's brokers: one to each that all callers share, and such as are one caller's own.

    Its creator owns the nursery in which they live. Every method raises a ClientError.
    """

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], security: Security, nursery: trio.Nursery, *, client_id: str
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._nursery = nursery
        self._client_id = client_id
        self._addresses: dict[int, tuple[str, int]] = {}
        self._shared: dict[tuple[str, int], TrioConnection] = {}
        self._opening: dict[tuple[str, int], trio.Lock] = defaultdict(trio.Lock)

    @property
    def broker_ids(self) -> Sequence[int]:
        """The brokers of the source, by its last answer."""
        return tuple(self._addresses)

    async def metadata(self) -> MetadataResponse:
        """The source's metadata of all its brokers and topics."""
        answer: MetadataResponse = await self.call_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        if answer.error_code:
            raise BrokerError(answer.error_code, what="the metadata of the source")
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        gone = self._shared.keys() - set(self._addresses.values()) - set(self._bootstrap)
        for address in gone:
            self._shared.pop(address).close()
            self._opening.pop(address, None)
        return answer

    async def call(self, broker_id: int, request: Request, *, at_most: int = 32767) -> Any:
        """The answer of one broker."""
        return await (await self._connection(self._address(broker_id))).call(request, at_most=at_most)

    async def call_any(self, request: Request, *, at_most: int = 32767) -> Any:
        """The answer of any broker that can be reached."""
        failure: ClientError = UnreachableError("the source", "it has no brokers")
        for address in self._candidates():
            try:
                return await (await self._connection(address)).call(request, at_most=at_most)
            except ClientError as error:
                failure = error
        raise failure

    def _candidates(self) -> Iterable[tuple[str, int]]:
        """Connected brokers first, then known ones, then the bootstrap servers."""
        connected = (address for address, connection in self._shared.items() if connection.is_open)
        return dict.fromkeys((*connected, *self._addresses.values(), *self._bootstrap))

    @asynccontextmanager
    async def connect(self, broker_id: int) -> AsyncIterator[TrioConnection]:
        """A connection of the caller's own, closed at the end of the block."""
        connection = await self._open(self._address(broker_id))
        try:
            yield connection
        finally:
            connection.close()

    def _address(self, broker_id: int) -> tuple[str, int]:
        address = self._addresses.get(broker_id)
        if address is None:
            raise UnreachableError(f"broker {broker_id} of the source", "the source does not name it")
        return address

    async def _connection(self, address: tuple[str, int]) -> TrioConnection:
        async with self._opening[address]:
            known = self._shared.get(address)
            if known is None or not known.is_open:
                known = self._shared[address] = await self._open(address)
            return known

    async def _open(self, address: tuple[str, int]) -> TrioConnection:
        connection = TrioConnection(
            *address, client_id=self._client_id, timeout_seconds=TIMEOUT_SECONDS, security=self._security
        )
        opened: TrioConnection = await self._nursery.start(connection.run)
        return opened
