"""Finds `_schemas` in a cluster, creates it where it is missing, and connects to its leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import trio

from ottla.client.errors import BrokerError, ClientError, UnreachableError
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Connect = Callable[[str, int], TrioConnection]
"""Makes a connection to a broker, which is not open yet."""

_CREATE_TIMEOUT_MS: Final = 30_000
_WAIT_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0
_ATTEMPTS: Final = 100
_NOT_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Leader(NamedTuple):
    """The topic as one cluster has it, and two connections to its leader: a fetch that waits holds up its own."""

    topic_id: UUID
    cluster_id: str
    reading: TrioConnection
    writing: TrioConnection


class TopicReader(Protocol):
    """Reads the topic."""

    def topic_is_missing(self, cluster_id: str) -> None:
        """There is no topic in the cluster that was found."""


class Wish:
    """Whether the topic should be created where it is missing: not before there is something to write."""

    def __init__(self, follower: TopicReader) -> None:
        self.follower = follower
        self._made = trio.Event()

    @property
    def is_made(self) -> bool:
        return self._made.is_set()

    def make(self) -> None:
        """Ask for the topic."""
        self._made.set()

    async def wait(self) -> None:
        """Return when it is asked for, or when it is time to look whether somebody else has created it."""
        with trio.move_on_after(_LOOK_SECONDS):
            await self._made.wait()


@asynccontextmanager
async def connected(
    connect: Connect, bootstrap: Sequence[tuple[str, int]], topic: str, wish: Wish
) -> AsyncIterator[Leader]:
    """The leader of the topic's only partition, for the length of a block. Raises ClientError."""
    async with trio.open_nursery() as nursery:
        asked = await _any_broker(connect, bootstrap, nursery)
        topic_id, cluster_id, host, port = await _find(asked, connect, topic, nursery, wish)
        reading: TrioConnection = await nursery.start(connect(host, port).run)
        writing: TrioConnection = await nursery.start(connect(host, port).run)
        asked.close()
        yield Leader(topic_id, cluster_id, reading, writing)
        nursery.cancel_scope.cancel()


async def _any_broker(connect: Connect, bootstrap: Sequence[tuple[str, int]], nursery: trio.Nursery) -> TrioConnection:
    failure: ClientError = UnreachableError("the cluster", "no broker is named")
    for host, port in bootstrap:
        try:
            found: TrioConnection = await nursery.start(connect(host, port).run)
        except ClientError as error:
            failure = error
        else:
            return found
    raise failure


async def _find(
    asked: TrioConnection, connect: Connect, topic: str, nursery: trio.Nursery, wish: Wish
) -> tuple[UUID, str, str, int]:
    attempts, created = 0, False
    while attempts < _ATTEMPTS:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer: MetadataResponse = await asked.call(request)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        cluster_id = answer.cluster_id or ""
        (found,) = answer.topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not created:
            if not wish.is_made:
                wish.follower.topic_is_missing(cluster_id)
                await wish.wait()
                continue
            await _create(asked, connect, addresses.get(answer.controller_id), topic, nursery)
            created = True
        elif found.error_code == ErrorCode.NONE:
            if len(found.partitions) != 1:
                raise ClientError(f"{topic} has {len(found.partitions)} partitions; a registry's topic has one")
            if (address := addresses.get(found.partitions[0].leader_id)) is not None:
                return found.topic_id, cluster_id, *address
        elif found.error_code not in _NOT_YET:
            raise BrokerError(found.error_code, what=f"topic {topic}")
        attempts += 1
        await trio.sleep(_WAIT_SECONDS)
    raise ClientError(f"{topic} has no leader")


async def _create(
    asked: TrioConnection,
    connect: Connect,
    controller: tuple[str, int] | None,
    topic: str,
    nursery: trio.Nursery,
) -> None:
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=-1, configs=configs)
    connection = asked if controller is None else await nursery.start(connect(*controller).run)
    answer: Any = await connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=_CREATE_TIMEOUT_MS))
    if connection is not asked:
        connection.close()
    (result,) = answer.topics
    if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        raise BrokerError(result.error_code, result.error_message, what=f"topic {topic}")
