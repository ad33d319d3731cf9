"""An upstream with one topic of one partition, whose log is what a test says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.access.sasl_authenticate import SaslAuthenticateResponse
from ottla.kproto.messages.access.sasl_handshake import SaslHandshakeResponse
from ottla.kproto.messages.configs.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.kproto.messages.data.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.kproto.messages.topics.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.kproto.records import Record, build_batch
from ottla.kproto.records.control import EndTxnMarker, build_end_txn_marker
from ottla.kproto.schema import Response
from tests.client.brokers import Received, answer, versions
from tests.proxy.upstreams import Upstream, UpstreamConnection
from tests.servers import Client

NAME = "t"


@dataclass
class Log:
    """The batches of a partition, as a leader has them."""

    leader_epoch: int = 3
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    first_open: int | None = None

    def append(self, count: int = 3, *, size_bytes: int = 100, producer_id: int = -1, mark: str = "") -> None:
        """A batch of so many records, transactional if it has a producer."""
        records = [Record(value=f"{mark}{self.end + it}".encode().ljust(size_bytes)) for it in range(count)]
        is_transactional = producer_id >= 0
        if is_transactional and self.first_open is None:
            self.first_open = self.end
        batch = build_batch(
            records,
            base_offset=self.end,
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            is_transactional=is_transactional,
        )
        self.batches.append((self.end, batch))
        self.end += count

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Of the one producer that has one open."""
        assert self.first_open is not None
        marker = EndTxnMarker(producer_id, 0, 0, is_commit)
        control = build_end_txn_marker(marker, timestamp_ms=1, base_offset=self.end, leader_epoch=self.leader_epoch)
        self.batches.append((self.end, control))
        if not is_commit:
            self.aborted.append((producer_id, self.first_open, self.end))
        self.end, self.first_open = self.end + 1, None

    def truncate(self, offset: int) -> None:
        self.batches = [it for it in self.batches if it[0] < offset]
        self.end = offset

    def delete_before(self, offset: int) -> None:
        self.start = offset

    @property
    def stable_end(self) -> int:
        return self.end if self.first_open is None else self.first_open

    def records(self, offset: int, max_bytes: int, end: int) -> tuple[bytes, int]:
        """What a leader answers, of which the last batch may be cut off; and the offset behind the last whole one."""
        found, behind = b"", offset
        for number, (base, batch) in enumerate(self.batches):
            following = self.batches[number + 1][0] if number + 1 < len(self.batches) else self.end
            if following <= offset or base >= end:
                continue
            if found and len(found) + len(batch) > max_bytes:
                return found + batch[: max_bytes - len(found)], behind
            found, behind = found + batch, following
        return found, behind


class Leader(Upstream):
    """Answers Fetch, Metadata and DescribeConfigs of the topic. What was asked is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.topic_id: UUID = uuid4()
        self.policy = "delete"
        self.not_let: set[str | None] = set()
        self.hides_configs = False
        self.fetched_bytes = 0
        self.fetches: list[FetchPartition] = []
        self.gate: trio.Event | None = None
        self.handlers |= {
            ApiKey.METADATA: self._tell_metadata,
            ApiKey.DESCRIBE_CONFIGS: self._tell_configs,
            ApiKey.SASL_HANDSHAKE: lambda received: SaslHandshakeResponse(mechanisms=["PLAIN"]),
            ApiKey.SASL_AUTHENTICATE: lambda received: SaslAuthenticateResponse(auth_bytes=b""),
            ApiKey.FETCH: self._fetch,
        }

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = UpstreamConnection(stream)
        try:
            while True:
                received = await connection.next()
                self.requests.append(received)
                if received.key is ApiKey.API_VERSIONS:
                    await connection.send(versions(received, self.served))
                    continue
                if received.key is ApiKey.FETCH and self.gate is not None:
                    await self.gate.wait()
                response = self.handlers[received.key](received)
                assert response is not None
                await connection.send(answer(received, response))
        except (EOFError, trio.BrokenResourceError):
            return

    def _tell_metadata(self, received: Received) -> Response:
        partition = MetadataResponsePartition(partition_index=0, leader_id=1, leader_epoch=self.log.leader_epoch)
        topic = MetadataResponseTopic(name=NAME, topic_id=self.topic_id, partitions=[partition])
        asked: Any = received.request
        return self.metadata(topics=[topic] if asked.topics else [])

    def _tell_configs(self, received: Received) -> Response:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if self.hides_configs else ErrorCode.NONE
        configs = [DescribeConfigsResourceResult(name="cleanup.policy", value=self.policy)]
        return DescribeConfigsResponse(
            results=[DescribeConfigsResult(error_code=code, resource_type=2, resource_name=NAME, configs=configs)]
        )

    def _fetch(self, received: Received) -> Response:
        request: Any = received.request
        topics = []
        for topic in request.topics:
            data = [self._read(topic, it, request.isolation_level, received) for it in topic.partitions]
            topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=data))
        return FetchResponse(responses=topics)

    def _read(self, topic: FetchTopic, asked: FetchPartition, level: int, received: Received) -> PartitionData:
        self.fetches.append(asked)
        log = self.log
        code = ErrorCode.NONE
        if received.version >= 13 and topic.topic_id != self.topic_id:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif received.header.client_id in self.not_let:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif 0 <= asked.current_leader_epoch < log.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > log.leader_epoch:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif not log.start <= asked.fetch_offset <= log.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        if code:
            return PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
        end = log.stable_end if level else log.end
        records, behind = log.records(asked.fetch_offset, asked.partition_max_bytes, end)
        self.fetched_bytes += len(records)
        aborted = [
            AbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first, last in log.aborted
            if last >= asked.fetch_offset and first < behind
        ]
        return PartitionData(
            partition_index=0,
            high_watermark=log.end,
            last_stable_offset=log.stable_end,
            log_start_offset=log.start,
            aborted_transactions=aborted if level else None,
            records=records,
        )


class Reader:
    """A client that has asked for the versions, and fetches."""

    def __init__(self, client: Client, leader: Leader, version: int = 16) -> None:
        self._client = client
        self._leader = leader
        self.version = version
        self.topic_id = leader.topic_id
        self.leader_epoch = leader.log.leader_epoch

    async def fetch(
        self, offset: int, *, level: int = 0, max_bytes: int = 1 << 20, max_wait_ms: int = 0, **fields: Any
    ) -> PartitionData:
        """The answer for the partition."""
        response = await self.fetch_all(offset, level=level, max_bytes=max_bytes, max_wait_ms=max_wait_ms, **fields)
        data: PartitionData = response.responses[0].partitions[0]
        return data

    async def fetch_all(
        self, offset: int, *, level: int = 0, max_bytes: int = 1 << 20, max_wait_ms: int = 0, **fields: Any
    ) -> FetchResponse:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        named: dict[str, Any] = {"topic": NAME} if self.version < 13 else {"topic_id": self.topic_id}
        topic = FetchTopic(partitions=[partition], **named)
        fields = {"max_wait_ms": max_wait_ms, "min_bytes": 1, "isolation_level": level, "topics": [topic], **fields}
        response: FetchResponse = await self._client.call(FetchRequest(**fields), self.version)
        return response
