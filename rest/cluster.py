"""The cluster as a client sees it: its topics and brokers, and appends to a partition's leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import trio

from ottla.client.errors import BrokerError, ClientError, UnknownTopicError, UnreachableError
from ottla.client.offsets import LATEST, TopicPartition, list_offsets_request
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

Address = tuple[str, int]
Connect = Callable[[str, int], TrioConnection]
"""Makes a connection to a broker, which is not open yet."""

_PRODUCE_TIMEOUT_MS: Final = 30_000
_PRODUCE_SECONDS: Final = 40.0
_RETRY_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_TOPIC_RESOURCE: Final = 2
#: The batch was not appended, and may be after a while, or at another broker.
_NOT_APPENDED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_NOT_THERE_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Appended(NamedTuple):
    """The first offset of an appended batch; its time is -1 unless the topic stamps records itself."""

    base_offset: int
    log_append_time_ms: int


class _Link:
    """The connection to one address, opened by the first caller that needs it."""

    def __init__(self) -> None:
        self.connecting = trio.Lock()
        self.connection: TrioConnection | None = None


class Cluster:
    """Connections to the brokers that are needed, one for each. The task that calls `run` owns them."""

    def __init__(self, connect: Connect, bootstrap: Sequence[Address]) -> None:
        self._connect = connect
        self._bootstrap = tuple(bootstrap)
        self._links: dict[Address, _Link] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Keep connections until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def metadata(self, names: Sequence[str] | None, *, create: bool = False) -> MetadataResponse:
        """The cluster with these topics, or (None) with all. Raises ClientError."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        connection = await self._any()
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer: MetadataResponse = await connection.call(request)
        self._forget_all_but({(broker.host, broker.port) for broker in answer.brokers})
        return answer

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """One topic; with `create` it is created where the brokers do so. UnknownTopicError or another ClientError."""
        deadline = trio.current_time() + _RETRY_SECONDS
        while True:
            (found,) = (await self.metadata([name], create=create)).topics
            code = found.error_code
            if code == ErrorCode.NONE and found.partitions:
                return found
            if not create or code not in (ErrorCode.NONE, *_NOT_THERE_YET) or trio.current_time() >= deadline:
                if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                    raise UnknownTopicError(name)
                raise BrokerError(code, what=f"topic {name}")
            await trio.sleep(_PAUSE_SECONDS)

    async def coordinator(self, group_id: str) -> tuple[int, Address]:
        """The coordinator of a group, and its address. Raises ClientError."""
        connection = await self._any()
        answer: Any = await connection.call(FindCoordinatorRequest(key=group_id, key_type=0), at_most=3)
        if answer.error_code:
            raise BrokerError(answer.error_code, answer.error_message, what=f"the coordinator of group {group_id}")
        return answer.node_id, (answer.host, answer.port)

    async def topic_configs(self, name: str) -> dict[str, str | None]:
        """A topic's settings; what is secret is None. Raises ClientError."""
        return {config.name: config.value for config in await self.described_configs(name)}

    async def described_configs(self, name: str) -> list[Any]:
        """A topic's settings as DescribeConfigs has them, with where each is from. Raises ClientError."""
        asked = DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        connection = await self._any()
        answer: Any = await connection.call(DescribeConfigsRequest(resources=[asked], include_synonyms=True))
        (result,) = answer.results
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(name)
        if result.error_code:
            raise BrokerError(result.error_code, result.error_message, what=f"topic {name}")
        return list(result.configs)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of partitions; deleted ones and those without a leader are left out. Raises ClientError."""
        wanted = set(partitions)
        if not wanted:
            return {}
        answer = await self.metadata(sorted({part.topic for part in wanted}))
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        by_leader: dict[Address, list[TopicPartition]] = {}
        for topic in answer.topics:
            for state in topic.partitions:
                part = TopicPartition(topic.name or "", state.partition_index)
                if part in wanted and state.leader_id in addresses:
                    by_leader.setdefault(addresses[state.leader_id], []).append(part)
        found: dict[TopicPartition, int] = {}
        for address, parts in by_leader.items():
            connection = await self.connection(address)
            listed = await connection.call(list_offsets_request(dict.fromkeys(parts, LATEST)))
            for named in listed.topics:
                for result in named.partitions:
                    if not result.error_code:
                        found[TopicPartition(named.name, result.partition_index)] = result.offset
        return found

    async def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of a partition's EARLIEST or LATEST record, or of the first at or after a time. ClientError."""
        _, leader = await self._leader(topic, partition)
        asked = list_offsets_request({TopicPartition(topic, partition): timestamp_ms})
        answer = await (await self.connection(leader)).call(asked)
        (result,) = answer.topics[0].partitions
        if result.error_code:
            raise BrokerError(result.error_code, what=f"{topic}-{partition}")
        return int(result.offset)

    async def append(self, topic: str, partition: int, batch: bytes) -> Appended:
        """Append a batch to all in-sync replicas. It is sent again only if it was surely not appended.

        Raises BrokerError, and ConnectionLostError if it may or may not have been appended.
        """
        deadline = trio.current_time() + _RETRY_SECONDS
        while True:
            failure: ClientError
            try:
                topic_id, leader = await self._leader(topic, partition)
                connection = await self.connection(leader)
            except UnreachableError as error:
                failure = error
            else:
                data = PartitionProduceData(index=partition, records=batch)
                named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=_PRODUCE_TIMEOUT_MS, topic_data=[named])
                answer = await connection.call(request, timeout_seconds=_PRODUCE_SECONDS)
                (result,) = answer.responses[0].partition_responses
                if result.error_code == ErrorCode.NONE:
                    return Appended(result.base_offset, result.log_append_time_ms)
                failure = BrokerError(result.error_code, result.error_message, what=f"{topic}-{partition}")
                if result.error_code not in _NOT_APPENDED:
                    raise failure
            if trio.current_time() >= deadline:
                raise failure
            await trio.sleep(_PAUSE_SECONDS)

    async def _leader(self, topic: str, partition: int) -> tuple[Any, Address]:
        answer = await self.metadata([topic])
        (found,) = answer.topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicError(topic)
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(found.error_code, what=f"topic {topic}")
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for state in found.partitions:
            if state.partition_index == partition:
                if (address := addresses.get(state.leader_id)) is None:
                    raise UnreachableError(f"{topic}-{partition}", "it has no leader at the moment")
                return found.topic_id, address
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"{topic}-{partition}")

    async def _any(self) -> TrioConnection:
        """A connection to the first broker that can be reached."""
        failure = UnreachableError("the cluster", "no broker is named")
        for address in self._bootstrap:
            try:
                return await self.connection(address)
            except UnreachableError as error:
                failure = error
        raise failure

    async def connection(self, address: Address) -> TrioConnection:
        """The connection to a broker, made if there is none. UnreachableError if there cannot be one."""
        link = self._links.setdefault(address, _Link())
        async with link.connecting:
            if link.connection is None or not link.connection.is_open:
                if self._nursery is None:
                    raise UnreachableError(f"{address[0]}:{address[1]}", "the REST proxy stops")
                try:
                    link.connection = await self._nursery.start(self._connect(*address).run)
                except UnreachableError:
                    raise
                except ClientError as error:
                    raise UnreachableError(f"{address[0]}:{address[1]}", error) from None
            return link.connection

    def _forget_all_but(self, addresses: set[Address]) -> None:
        """Forget the ended connections to brokers that have left the cluster."""
        for address in [it for it in self._links if it not in addresses and it not in self._bootstrap]:
            link = self._links[address]
            if not link.connecting.locked() and (link.connection is None or not link.connection.is_open):
                del self._links[address]
