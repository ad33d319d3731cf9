"""A client of the cluster: it finds brokers and leaders as Kafka's clients do, over the simulated network."""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio

from ottla.client.errors import ClientError, UnreachableError
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.schema import Request
from ottla.kproto.versions import OPEN_END

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Client"]

_TIMEOUT_S = 4.0
_REFRESH_S = 0.3


class Client:
    """Connections of one program. `run` owns them; `work` is what the program does, until the world ends."""

    def __init__(self, world: ClientEnvironment, name: str) -> None:
        self.world = world
        self.rng = world.rng
        self.name = name
        self._connect = world.new_client()
        self._nursery: trio.Nursery
        self._connections: dict[tuple[str, int, str], TrioConnection] = {}
        self._opening: dict[tuple[str, int, str], trio.Lock] = {}
        self._addresses = dict(world.addresses)
        self._leaders: dict[Partition, int] = {}
        self._leader_epochs: dict[Partition, int] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._refreshed_at = -_REFRESH_S

    def note(self, text: str) -> None:
        self.world.note(f"{self.name} {text}")

    def reads_again(self, code: ErrorCode, passing: Container[ErrorCode]) -> bool:
        """Whether a reader may be told this: it is of those that pass, or the object store fails."""
        return code in passing or (self.world.is_tiered and code is ErrorCode.UNKNOWN_SERVER_ERROR)

    async def run(self) -> None:
        """Work, then let go of all connections."""
        async with trio.open_nursery() as self._nursery:
            await self.work()
            self._nursery.cancel_scope.cancel()

    async def work(self) -> None:
        raise NotImplementedError

    async def call(
        self,
        node_id: int,
        request: Request,
        *,
        channel: str = "",
        at_most: int = OPEN_END,
        timeout_s: float = _TIMEOUT_S,
    ) -> Any:
        """A broker's answer, or a ClientError."""
        connection = await self._connection(node_id, channel)
        return await connection.call(request, at_most=at_most, timeout_seconds=timeout_s)

    async def _connection(self, node_id: int, channel: str) -> TrioConnection:
        if node_id not in self._addresses:
            await self.refresh()
        if node_id not in self._addresses:
            raise UnreachableError(f"node {node_id}", "nobody says where it is")
        host, port = self._addresses[node_id]
        key = (host, port, channel)
        async with self._opening.setdefault(key, trio.Lock()):
            connection = self._connections.get(key)
            if connection is None or not connection.is_open:
                connection = TrioConnection(
                    host,
                    port,
                    client_id=self.name,
                    timeout_seconds=_TIMEOUT_S,
                    open_stream=partial(self._connect, host, port),
                )
                await self._nursery.start(self._carry, connection)
                self._connections[key] = connection
            return connection

    @staticmethod
    async def _carry(connection: TrioConnection, *, task_status: trio.TaskStatus[TrioConnection]) -> None:
        await connection.run(task_status)

    async def any_node(self, request: Request, *, at_most: int = OPEN_END) -> Any:
        """The answer of the first broker that has one. Asks for as long as there is none."""
        while True:
            node_ids = list(self._addresses)
            self.rng.shuffle(node_ids)
            for node_id in node_ids:
                try:
                    return await self.call(node_id, request, at_most=at_most)
                except ClientError:
                    await trio.sleep(self.rng.uniform(0.01, 0.2))
            # All the nodes that it has heard of may be gone: it begins again with those that are there.
            self._addresses.update(self.world.addresses)

    @property
    def known_nodes(self) -> list[int]:
        """All the nodes that this client has heard of: some may be gone, others are still to come."""
        return list(self._addresses)

    async def refresh(self, *topics: str) -> None:
        """Learn which nodes there are, and who leads now; not too often."""
        wait_s = self._refreshed_at + _REFRESH_S - trio.current_time()
        if wait_s > 0:
            await trio.sleep(wait_s)
        self._refreshed_at = trio.current_time()
        named = [MetadataRequestTopic(name=topic) for topic in topics]
        answer = await self.any_node(MetadataRequest(topics=named, allow_auto_topic_creation=False))
        self._addresses.update((broker.node_id, (broker.host, broker.port)) for broker in answer.brokers)
        for topic in answer.topics:
            if topic.error_code == ErrorCode.NONE:
                is_new = self._topic_ids.get(topic.name) != topic.topic_id
                self._topic_ids[topic.name] = topic.topic_id
                for state in topic.partitions:
                    partition = (topic.name, state.partition_index)
                    # A broker that has just stood still names who led before, perhaps itself (KIP-320).
                    if is_new or state.leader_epoch >= self._leader_epochs.get(partition, -1):
                        self._leaders[partition] = state.leader_id if state.leader_id in self._addresses else -1
                        self._leader_epochs[partition] = state.leader_epoch

    async def leader(self, partition: Partition) -> int:
        """Who leads a partition, as far as this client knows; asks until somebody does."""
        while self._leaders.get(partition, -1) < 0:
            await self.refresh(partition[0])
        return self._leaders[partition]

    def known_leader(self, partition: Partition) -> int:
        """The leader, without asking; -1 if it is not known."""
        return self._leaders.get(partition, -1)

    def leader_epoch(self, partition: Partition) -> int:
        """The leader epoch of the leader that is known."""
        return self._leader_epochs[partition]

    def forget_leader(self, partition: Partition) -> None:
        """The leader does not lead, or does not answer."""
        self._leaders.pop(partition, None)

    def topic_id(self, topic: str) -> UUID:
        return self._topic_ids[topic]
