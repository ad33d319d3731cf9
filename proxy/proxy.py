"""A whole proxy: its ports, what it learns about upstream at the start, and its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.client.errors import ClientError
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.proxy.errors import ProxyError
from ottla.proxy.listeners import Listeners
from ottla.proxy.shared import CONNECT_SECONDS, PLAIN_WAYS, Settings, Shared, Ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.proxy.filters.chain import Named
    from ottla.proxy.metrics import Metrics

logger = logging.getLogger(__name__)

GRACE_SECONDS: Final = 1.0
"""How long a stop waits for answers that are under way."""

_RETRY_SECONDS: Final = 1.0


class Ready(NamedTuple):
    """A proxy that accepts connections."""

    host: str
    port: int
    brokers: int
    """How many brokers of upstream are known; 0 if none has answered yet."""


class Proxy:
    """One proxy. `serve` is its whole life."""

    def __init__(self, settings: Settings, filters: Sequence[Named] = (), ways: Ways = PLAIN_WAYS) -> None:
        self._settings = settings
        self._shared = Shared(settings, filters, ways)
        self._listeners = Listeners(self._shared)

    @property
    def metrics(self) -> Metrics:
        return self._shared.metrics

    @property
    def broker_count(self) -> int:
        """How many brokers of upstream have an address here."""
        return len(self._listeners.brokers)

    def stop(self) -> None:
        """End `serve` in order."""
        self._listeners.stop()

    async def serve(self, task_status: trio.TaskStatus[Ready] = trio.TASK_STATUS_IGNORED) -> None:
        """Forward until `stop`. Raises ProxyError if the proxy cannot start, or if upstream leads back to it.

        It has started when upstream was asked for its brokers, whether it answered or not. Each broker then has its
        port here, the lowest node id the lowest port. Brokers that upstream names later get the next ports.
        """
        port = self._listeners.open_bootstrap()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            nursery.start_soon(self._prepare, port, task_status)
            try:
                await self._listeners.run(GRACE_SECONDS)
            finally:
                if self._shared.cache is not None:
                    self._shared.cache.close()
            nursery.cancel_scope.cancel()
        if self._shared.failure is not None:
            raise self._shared.failure

    async def _watch(self, scope: trio.CancelScope) -> None:
        await self._shared.failed.wait()
        scope.cancel()

    async def _prepare(self, port: int, task_status: trio.TaskStatus[Ready]) -> None:
        """Learn the brokers, and report them; try again until upstream answers."""
        is_known = await self._learn(logging.WARNING)
        task_status.started(Ready(self._settings.listen[0], port, self.broker_count))
        while not is_known:
            await trio.sleep(_RETRY_SECONDS)
            is_known = await self._learn(logging.DEBUG)

    async def _learn(self, level: int) -> bool:
        """Ask upstream for its brokers, so that each has its port before a client asks; False without an answer."""
        for host, port in self._settings.upstream:
            try:
                answer = await self._ask(host, port)
            except ExceptionGroup as group:
                errors, others = group.split(ClientError)
                if errors is None or others is not None:
                    raise
                reason = str(errors.exceptions[0])
                logger.log(level, "upstream %s:%d: %s", host, port, reason, extra={"error": reason})
                continue
            try:
                for broker in sorted(answer.brokers, key=lambda it: it.node_id):
                    self._listeners.brokers.port_of(broker.node_id, broker.host, broker.port)
            except ProxyError as error:
                self._shared.fail(error)
            return True
        return False

    async def _ask(self, host: str, port: int) -> MetadataResponse:
        connection = TrioConnection(
            host,
            port,
            client_id=self._shared.own_client_id,
            timeout_seconds=CONNECT_SECONDS,
            security=self._shared.ways.security,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(connection.run)
            answer: MetadataResponse = await connection.call(MetadataRequest(topics=[]))
            connection.close()
        return answer
