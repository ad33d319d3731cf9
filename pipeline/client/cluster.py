"""What a client knows of a cluster: its brokers, its topics and who leads which partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final, TypeVar

from ottla.client.connection import BrokerConnection
from ottla.client.errors import (
    AuthenticationError,
    ConnectionLostError,
    SecurityConfigError,
    UnreachableError,
    UnsupportedVersionError,
)
from ottla.client.offsets import NO_LEADER, TopicPartition, list_offsets_request
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.kproto.schema import Request
from ottla.kproto.versions import OPEN_END
from ottla.pipeline.client.answers import RetriableError, check
from ottla.pipeline.client.settings import ClientSettings
from ottla.pipeline.errors import BrokerUnavailableError, TopicError

__all__ = ["TOPICS_BY_NAME", "Cluster", "CoordinatorType"]

TOPICS_BY_NAME: Final = 12
"""The last version of Produce and of Fetch that names topics; later ones have their ids."""

_TOPIC_RESOURCE: Final = 2
# Later versions of FindCoordinator ask for many at once.
_FIND_ONE: Final = 3
_RETRY_PAUSE_S: Final = 0.1
# A fetch may wait for its own time before it is answered.
_SLACK_S: Final = 5.0
# Above any batch that brokers take; below what four letters of another protocol would mean as a length.
_MAX_ANSWER_BYTES: Final = 1 << 30

T = TypeVar("T")
Address = tuple[str, int]


class CoordinatorType(IntEnum):
    """What a coordinator keeps."""

    GROUP = 0
    TRANSACTION = 1


class Cluster:
    """Finds topics, partitions, leaders and offsets.

    It connects when first asked, and again after a lost connection; every call ends within the settings'
    `default_api_timeout_ms`, with BrokerUnavailableError if nobody answered and TopicError if a topic is not there or
    may not be read. Not for several threads at once.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[Address, BrokerConnection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], Address] = {}
        #: The ids of topics as they were last heard of.
        self.known_ids: dict[str, str] = {}

    def close(self) -> None:
        """Close every connection; the cluster may be used again."""
        while self._connections:
            self._connections.popitem()[1].close()

    def topic_names(self) -> list[str]:
        """Every topic of the cluster but the internal ones."""
        answer = self._metadata(None)
        return [topic.name for topic in answer.topics if topic.name and not topic.is_internal]

    def partitions(self, topics: Iterable[str]) -> dict[str, list[int]]:
        """The partition numbers of those of the topics that exist; the others are left out."""

        def ask() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for topic in self._metadata(wanted).topics:
                code = topic.error_code
                if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    continue
                check(code, f"topic {topic.name!r}")
                assert topic.name is not None
                found[topic.name] = sorted(part.partition_index for part in topic.partitions)
            return found

        wanted = sorted(set(topics))
        return self.retry(ask) if wanted else {}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of those of the topics that exist: a topic that is deleted and created again has another."""
        held = self.partitions(topics)
        answer = self._metadata(sorted(held)) if held else None
        return {topic.name: str(topic.topic_id) for topic in answer.topics if topic.name} if answer else {}

    def topic_setting(self, topic: str, name: str) -> str | None:
        """A topic's setting, by Kafka's name; None if the cluster does not tell, for instance who may not ask."""

        def ask() -> str | None:
            (result,) = self._any_connection().call(DescribeConfigsRequest(resources=[resource])).results
            if result.error_code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
                return None
            check(result.error_code, f"the settings of topic {topic!r}")
            return next((entry.value for entry in result.configs if entry.name == name), None)

        resource = DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[name]
        )
        return self.retry(ask)

    def offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the first record at or after each timestamp, -1 where there is none.

        `EARLIEST` and `LATEST` ask for the log's ends; the latest is the last stable offset for those who read
        committed, as the settings say unless `read_committed` says it.
        """

        def ask() -> dict[TopicPartition, int]:
            for leader, parts in self._by_leader(left).items():
                asked = {part: timestamps_ms[part] for part in parts}
                found.update(self._offsets_of(leader, asked, read_committed=committed))
                left.difference_update(parts)
            return found

        committed = self.settings.read_committed if read_committed is None else read_committed
        found: dict[TopicPartition, int] = {}
        left = set(timestamps_ms)
        return self.retry(ask) if left else {}

    def leader(self, partition: TopicPartition) -> BrokerConnection:
        """A connection to the partition's leader, which may be shared with other calls of this cluster."""

        def ask() -> BrokerConnection:
            (leader,) = self._by_leader([partition])
            return self._connect(self._brokers[leader])

        return self.retry(ask)

    def leader_address(self, partition: TopicPartition) -> Address:
        """Where the partition's leader listens."""

        def ask() -> Address:
            (leader,) = self._by_leader([partition])
            return self._brokers[leader]

        return self.retry(ask)

    def call(self, request: Request, *, at_most: int = OPEN_END) -> Any:
        """What any broker answers."""
        return self._any_connection().call(request, at_most=at_most)

    def call_coordinator(self, kind: CoordinatorType, key: str, request: Request, at_most: int) -> Any:
        """What the coordinator of a group or of a transactional id answers. To be called by an attempt of `retry`."""
        address = self._coordinators.get((kind, key))
        if address is None:
            found = self.call(FindCoordinatorRequest(key=key, key_type=kind), at_most=_FIND_ONE)
            check(found.error_code, f"the coordinator of {key}")
            address = self._coordinators[kind, key] = (found.host, found.port)
        return self._connect(address).call(request, at_most=at_most)

    def forget(self, connection: BrokerConnection) -> None:
        """Leave a connection, and ask again who leads what."""
        self._leaders.clear()
        for address, held in list(self._connections.items()):
            if held is connection:
                self._connections.pop(address).close()

    def forget_leaders(self) -> None:
        """Ask again who leads what."""
        self._leaders.clear()

    def retry(self, attempt: Callable[[], T]) -> T:
        """Call until it neither loses a connection nor meets an error that passes, or the time is up."""
        deadline = time.monotonic() + self.settings.default_api_timeout_ms / 1000
        while True:
            try:
                return attempt()
            except UnsupportedVersionError as error:
                self.close()
                raise BrokerUnavailableError(f"The broker cannot be read from: {error}.") from error
            except (AuthenticationError, SecurityConfigError) as error:
                self.close()
                raise BrokerUnavailableError(
                    f"{self.settings.servers} refuses to let us in: {error}. Check kafka.security.protocol, "
                    "kafka.sasl.* and "
                    "kafka.ssl.*."
                ) from error
            except ConnectionLostError as error:
                self.close()
                self._leaders.clear()
                self._coordinators.clear()
                if time.monotonic() >= deadline:
                    reason = f"{error.address}: {error.reason}" if isinstance(error, UnreachableError) else error
                    raise BrokerUnavailableError(
                        f"No broker answers at {self.settings.servers} ({reason}). Check kafka.bootstrap.servers, that "
                        "the broker runs, and that the address it advertises can be reached from here."
                    ) from error
            except RetriableError as error:
                self._leaders.clear()
                self._coordinators.clear()
                if time.monotonic() >= deadline:
                    raise BrokerUnavailableError(f"{error}. Try again when the cluster is well.") from error
            time.sleep(_RETRY_PAUSE_S)

    def _metadata(self, topics: list[str] | None) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]

        def ask() -> MetadataResponse:
            answer: MetadataResponse = self._any_connection().call(
                MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
            )
            self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for topic in answer.topics:
                if topic.name and not topic.error_code:
                    self.known_ids[topic.name] = str(topic.topic_id)
                for part in topic.partitions:
                    self._leaders[TopicPartition(topic.name or "", part.partition_index)] = part.leader_id
            return answer

        return self.retry(ask)

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        wanted = list(partitions)
        if unknown := {part.topic for part in wanted if part not in self._leaders}:
            held = self.partitions(unknown)
            for part in wanted:
                if part.topic in unknown and part.partition not in held.get(part.topic, ()):
                    raise TopicError(
                        f"There is no partition {part} at {self.settings.servers}: check the topic's name."
                    )
        found: dict[int, list[TopicPartition]] = {}
        for part in wanted:
            leader = self._leaders.get(part, NO_LEADER)
            if leader not in self._brokers:
                raise RetriableError(f"Partition {part} has no leader")
            found.setdefault(leader, []).append(part)
        return found

    def _offsets_of(
        self, leader: int, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, int]:
        request = list_offsets_request(timestamps_ms, read_committed=read_committed)
        answer = self._connect(self._brokers[leader]).call(request)
        found = {}
        for topic in answer.topics:
            for entry in topic.partitions:
                part = TopicPartition(topic.name, entry.partition_index)
                check(entry.error_code, f"partition {part}")
                found[part] = entry.offset
        return found

    def _any_connection(self) -> BrokerConnection:
        for connection in self._connections.values():
            return connection
        failure = ConnectionLostError("no address")
        for address in (*self.settings.bootstrap_servers, *self._brokers.values()):
            try:
                return self._connect(address)
            except ConnectionLostError as error:
                failure = error
        raise failure

    def open(self, address: Address) -> BrokerConnection:
        """A new connection, which is the caller's own; ConnectionLostError if nobody answers."""
        settings = self.settings
        timeout_s = settings.request_timeout_ms / 1000
        return BrokerConnection(
            *address,
            timeout_s,
            settings.client_id,
            answer_timeout_seconds=timeout_s + settings.fetch_max_wait_ms / 1000 + _SLACK_S,
            max_answer_bytes=_MAX_ANSWER_BYTES,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            security=settings.security,
        )

    def _connect(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = self.open(address)
        return connection

    def __del__(self) -> None:
        with suppress(AttributeError):
            self.close()
