"""Produce, Fetch, ListOffsets and OffsetForLeaderEpoch byte by byte: cases that no client library lets one send.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`). Where Ottla differs on purpose it says so.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.wire import Wire
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.kproto.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.records import (
    Compression,
    Record,
    TimestampType,
    assemble_batch,
    build_batch,
    compress,
    iter_batches,
    parse_batch_header,
)
from ottla.kproto.records.record import encode_record

NO_ID = uuid.UUID(int=0)
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)


def data_of(answer: PartitionData) -> bytes:
    """The record batches of an answer, which are never null."""
    assert answer.records is not None
    return bytes(answer.records)


class Topic:
    """A topic of this test and the four requests on it."""

    def __init__(self, wire: Wire, name: str, topic_id: uuid.UUID) -> None:
        self.wire = wire
        self.name = name
        self.topic_id = topic_id

    def produce(
        self,
        records: bytes,
        *,
        version: int = 9,
        partition: int = 0,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> PartitionProduceResponse:
        request = self.produce_request(records, version, partition, acks, transactional_id)
        answered: PartitionProduceResponse = self.wire.call(request, version).responses[0].partition_responses[0]
        return answered

    def produce_request(
        self, records: bytes, version: int, partition: int = 0, acks: int = -1, transactional_id: str | None = None
    ) -> ProduceRequest:
        data = TopicProduceData(partition_data=[PartitionProduceData(index=partition, records=records)])
        if version >= 13:
            data.topic_id = self.topic_id
        else:
            data.name = self.name
        return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=5000, topic_data=[data])

    def fetch(self, offset: int = 0, *, partition: int = 0, **options: Any) -> PartitionData:
        return self.fetch_all([(partition, offset)], **options).responses[0].partitions[0]

    def fetch_all(
        self,
        positions: list[tuple[int, int]],
        *,
        version: int = 12,
        replica_id: int = -1,
        partition_max_bytes: int = 1 << 20,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        forgotten: list[int] | None = None,
        **options: Any,
    ) -> FetchResponse:
        named: dict[str, Any] = {"topic_id": self.topic_id} if version >= 13 else {"topic": self.name}
        asked = [
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
            for partition, offset in positions
        ]
        request = FetchRequest(**({"max_wait_ms": 100, "min_bytes": 1, "max_bytes": 1 << 20} | options))
        request.topics = [FetchTopic(partitions=asked, **named)] if asked else []
        request.forgotten_topics_data = [ForgottenTopic(partitions=forgotten, **named)] if forgotten else []
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=replica_id)
        else:
            request.replica_id = replica_id
        response = self.wire.call(request, version)
        assert isinstance(response, FetchResponse)
        return response

    def list_offset(
        self, timestamp: int, *, version: int = 11, partition: int = 0, times: int = 1, epoch: int = -1, **options: Any
    ) -> list[tuple[int, int, int, int]]:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        topic = ListOffsetsTopic(name=self.name, partitions=[asked] * times)
        request = ListOffsetsRequest(topics=[topic], **({"replica_id": -1, "timeout_ms": 5000} | options))
        answers = self.wire.call(request, version).topics[0].partitions
        return [(answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch) for answer in answers]

    def end_of_epoch(
        self, epoch: int, *, version: int = 4, partition: int = 0, current_leader_epoch: int = -1
    ) -> tuple[int, int, int]:
        asked = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current_leader_epoch
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=self.name, partitions=[asked])])
        (answer,) = self.wire.call(request, version).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset


def records(count: int = 1, value: bytes = b"value", timestamp_ms: int | None = None, **options: Any) -> bytes:
    at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return build_batch([Record(value=value, timestamp_ms=at)] * count, **options)


def patched(batch: bytes, position: int, value: int) -> bytes:
    return batch[:position] + bytes([value]) + batch[position + 1 :]


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def make_topic(wire: Wire) -> Callable[..., Topic]:
    def make(partitions: int = 1, **configs: str) -> Topic:
        name = f"wire-{uuid.uuid4().hex[:8]}"
        settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        creatable = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        (created,) = wire.call(CreateTopicsRequest(topics=[creatable], timeout_ms=5000), 7).topics
        assert created.error_code == ErrorCode.NONE
        topic = Topic(wire, name, created.topic_id)
        deadline = time.monotonic() + 120
        while any(topic.list_offset(-1, partition=index)[0][0] for index in range(partitions)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return topic

    return make


@pytest.fixture
def topic(make_topic: Callable[..., Topic]) -> Topic:
    return make_topic(2)


@pytest.fixture
def nothing(wire: Wire) -> Topic:
    """A topic that does not exist."""
    return Topic(wire, f"nothing-{uuid.uuid4().hex[:8]}", uuid.uuid4())


# Produce --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_of_produce(topic: Topic, acks: int) -> None:
    for expected_offset, version in enumerate(PRODUCE_VERSIONS):
        answer = topic.produce(records(), version=version, acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, expected_offset)
        assert answer.log_append_time_ms == -1
        assert answer.log_start_offset == (0 if version >= 5 else -1)


def test_acks_0_is_not_answered(topic: Topic) -> None:
    topic.wire.send(topic.produce_request(records(), 9, acks=0), 9)
    assert topic.produce(records()).base_offset == 1


@pytest.mark.parametrize("case", ["unknown topic", "bad checksum"])
def test_acks_0_that_fails_closes_the_connection(
    broker: BrokerProcess, topic: Topic, nothing: Topic, case: str
) -> None:
    batch = records()
    request = nothing.produce_request(batch, 9, acks=0)
    if case == "bad checksum":
        request = topic.produce_request(patched(batch, len(batch) - 1, batch[-1] ^ 1), 9, acks=0)
    connection = Wire(broker.bootstrap)
    connection.send(request, 9)
    assert connection.is_closed_by_broker()
    connection.close()


def test_other_acks_are_refused(topic: Topic, nothing: Topic) -> None:
    for acks in (2, -2):
        answer = topic.produce(records(), acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert nothing.produce(records(), acks=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [3, 12, 13])
def test_produce_to_what_does_not_exist(topic: Topic, nothing: Topic, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nothing.produce(records(), version=version).error_code == unknown
    for partition in (2, -1):
        answer = topic.produce(records(), version=version, partition=partition)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (answer.base_offset, answer.log_start_offset) == (-1, -1)


def test_produce_to_the_zero_topic_id(wire: Wire) -> None:
    assert Topic(wire, "", NO_ID).produce(records(), version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda batch: b"", ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:11], ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:40], ErrorCode.INVALID_RECORD),
        (lambda batch: batch[:-1], ErrorCode.INVALID_RECORD),
        (lambda batch: batch + batch, ErrorCode.INVALID_RECORD),
        (lambda batch: bytes(20), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: patched(batch, len(batch) - 1, batch[-1] ^ 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: patched(batch, 16, 0), ErrorCode.INVALID_RECORD),
        (lambda batch: patched(batch, 16, 1), ErrorCode.INVALID_RECORD),
        (lambda batch: patched(batch, 16, 3), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: patched(batch, 16, 255), ErrorCode.CORRUPT_MESSAGE),
        (lambda batch: records(base_offset=5), ErrorCode.INVALID_RECORD),
        (lambda batch: records(is_control=True, producer_id=1, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (lambda batch: records(value=bytes(1_100_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (
            lambda batch: records(timestamp_ms=int(time.time() * 1000) + 7_200_000),
            ErrorCode.INVALID_TIMESTAMP,
        ),
    ],
    ids=[
        "nothing", "no length", "cut header", "cut end", "two batches", "zeros", "checksum", "magic 0", "magic 1",
        "magic 3", "magic 255", "base offset", "control batch", "too large", "future",
    ],
)  # fmt: skip
def test_bad_batches(topic: Topic, spoil: Callable[[bytes], bytes], expected: ErrorCode) -> None:
    answer = topic.produce(spoil(records()))
    assert answer.error_code == expected
    assert answer.base_offset == -1
    assert topic.list_offset(-1) == [(ErrorCode.NONE, -1, 0, 0)]
    assert topic.produce(records()).base_offset == 0


def batch_of(payload: bytes, count: int, codec: Compression = Compression.NONE, **header: int) -> bytes:
    """A batch with a right checksum around any records."""
    like = parse_batch_header(build_batch([Record(timestamp_ms=int(time.time() * 1000))]))
    sized = like._replace(attributes=codec, record_count=count, last_offset_delta=count - 1)
    return assemble_batch(sized._replace(**header), compress(codec, payload))


def encoded(offset_delta: int, value: bytes = b"v") -> bytes:
    return encode_record(offset_delta, 0, b"k", value, ())


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize(
    ("payload", "count"),
    [
        pytest.param(encoded(0, b"v" * 40), 2, id="too few records"),
        pytest.param(encoded(0) + encoded(1), 1, id="too many records"),
        pytest.param(encoded(0), 2**31 - 1, id="as many as there can be"),
    ],
)
def test_damaged_records(make_topic: Callable[..., Topic], payload: bytes, count: int, codec: Compression) -> None:
    """On a compacted topic both look at every record."""
    topic = make_topic(cleanup_policy="compact")
    assert topic.produce(batch_of(payload, count, codec)).error_code == ErrorCode.INVALID_RECORD
    assert topic.list_offset(-1) == [(ErrorCode.NONE, -1, 0, 0)]


def test_a_count_that_the_bytes_cannot_hold_on_any_topic(topic: Topic) -> None:
    answer = topic.produce(batch_of(encoded(0), 2**31 - 1, Compression.ZSTD))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)


@pytest.mark.parametrize("max_timestamp_ms", [-1, 5, 2**62])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_largest_timestamp_that_cannot_be_is_put_right(
    topic: Topic, codec: Compression, max_timestamp_ms: int
) -> None:
    batch = batch_of(encoded(0), 1, codec, max_timestamp_ms=max_timestamp_ms)
    assert topic.produce(batch).error_code == ErrorCode.NONE
    ((_, header),) = iter_batches(data_of(topic.fetch()))
    assert header.max_timestamp_ms == header.base_timestamp_ms


def test_the_timestamp_type_of_a_producer(make_topic: Callable[..., Topic]) -> None:
    batch = batch_of(encoded(0), 1, attributes=0x08)
    topic = make_topic()
    assert topic.produce(batch).error_code == ErrorCode.NONE
    ((_, header),) = iter_batches(data_of(topic.fetch()))
    assert header.timestamp_type is TimestampType.CREATE_TIME
    refused = make_topic(message_timestamp_type="LogAppendTime").produce(batch)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [0]


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(batch_of(encoded(0), 1, attributes=0x40), id="delete horizon"),
        pytest.param(batch_of(encoded(0), 1, attributes=0x80), id="no meaning"),
        pytest.param(batch_of(encoded(0), 1, attributes=0x100), id="upper byte"),
    ],
)
def test_attributes_that_are_not_a_producers(broker: BrokerProcess, topic: Topic, batch: bytes) -> None:
    """Kafka stores them as they are."""
    expected = ErrorCode.NONE if broker.name == "kafka" else ErrorCode.INVALID_RECORD
    assert topic.produce(batch).error_code == expected


def test_what_recompression_makes_too_large(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(compression_type="uncompressed")
    batch = records(value=bytes(1_100_000), compression=Compression.ZSTD)
    assert len(batch) < 1_000
    assert topic.produce(batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert topic.produce(records(value=bytes(1_000_000), compression=Compression.ZSTD)).error_code == ErrorCode.NONE


def test_bytes_behind_the_batch_that_are_no_batch_are_dropped(topic: Topic) -> None:
    batch = records()
    for index, rest in enumerate((bytes(5), b"\x01" * 30)):
        answer = topic.produce(batch + rest)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, index)
    assert len(data_of(topic.fetch())) == 2 * len(batch)


def test_zstd_needs_version_7(topic: Topic) -> None:
    batch = records(compression=Compression.ZSTD)
    assert topic.produce(batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert topic.produce(batch, version=7).error_code == ErrorCode.NONE


def test_a_transactional_batch_without_a_transactional_id(topic: Topic) -> None:
    batch = records(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert topic.produce(batch).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_sequences_of_an_idempotent_producer(topic: Topic) -> None:
    def send(sequence: int, epoch: int = 0) -> tuple[int, int]:
        batch = records(timestamp_ms=1234, producer_id=77, producer_epoch=epoch, base_sequence=sequence)
        answer = topic.produce(batch)
        times.append(answer.log_append_time_ms)
        return answer.error_code, answer.base_offset

    times: list[int] = []

    assert send(0) == (ErrorCode.NONE, 0)
    assert send(1) == (ErrorCode.NONE, 1)
    assert send(0) == (ErrorCode.NONE, 0)
    assert send(5) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(0, epoch=1) == (ErrorCode.NONE, 2)
    assert send(2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert times == [-1, -1, 1234, -1, -1, -1]  # a repeated batch is answered with its timestamp


def test_records_without_keys_on_a_compacted_topic(make_topic: Callable[..., Topic]) -> None:
    answer = make_topic(cleanup_policy="compact").produce(records(3))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert answer.log_start_offset == 0
    assert answer.error_message
    assert [error.batch_index for error in answer.record_errors] == [0, 1, 2]


def test_records_from_the_future(topic: Topic) -> None:
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(value=b"v", timestamp_ms=now_ms + ahead) for ahead in (0, 7_200_000)])
    answer = topic.produce(batch)
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)
    assert answer.error_message
    assert [error.batch_index for error in answer.record_errors] == [1]


def test_log_append_time(make_topic: Callable[..., Topic]) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    answer = topic.produce(records(timestamp_ms=1))
    assert before_ms <= answer.log_append_time_ms <= int(time.time() * 1000)
    ((_, header),) = iter_batches(data_of(topic.fetch()))
    assert header.max_timestamp_ms == answer.log_append_time_ms
    assert header.attributes & 0x08


def test_more_in_sync_replicas_asked_than_there_are_replicas(make_topic: Callable[..., Topic]) -> None:
    assert make_topic(min_insync_replicas="2").produce(records()).error_code == ErrorCode.NONE


# Fetch ----------------------------------------------------------------------------------------------------------------


def test_every_version_of_fetch(topic: Topic) -> None:
    batch = records(3)
    topic.produce(batch)
    for version in FETCH_VERSIONS:
        answer = topic.fetch(version=version)
        assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (ErrorCode.NONE, 3, 3)
        assert answer.log_start_offset == (0 if version >= 5 else -1)
        assert answer.aborted_transactions is None
        assert answer.preferred_read_replica == -1
        assert data_of(answer)[61:] == batch[61:]


def test_an_empty_partition(topic: Topic) -> None:
    answer = topic.fetch()
    assert (answer.error_code, answer.high_watermark, data_of(answer)) == (ErrorCode.NONE, 0, b"")
    assert topic.fetch(isolation_level=1).aborted_transactions == []


def test_an_offset_inside_a_batch_yields_the_whole_batch(topic: Topic) -> None:
    topic.produce(records(5))
    ((_, header),) = iter_batches(data_of(topic.fetch(3)))
    assert (header.base_offset, header.record_count) == (0, 5)


@pytest.mark.parametrize("offset", [-1, 2])
def test_offsets_out_of_range(topic: Topic, offset: int) -> None:
    topic.produce(records())
    answer = topic.fetch(offset, isolation_level=1)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (-1, -1, -1)
    assert data_of(answer) == b""
    assert answer.aborted_transactions is None


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_fetch_of_what_does_not_exist(topic: Topic, nothing: Topic, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = nothing.fetch(version=version)
    assert (answer.error_code, answer.high_watermark, data_of(answer)) == (unknown, -1, b"")
    assert answer.aborted_transactions == []
    missing, there = topic.fetch_all([(9, 0), (0, 0)], version=version).responses[0].partitions
    if missing.partition_index != 9:
        missing, there = there, missing
    assert (missing.error_code, there.error_code) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)


@pytest.mark.parametrize(("max_bytes", "partition_max_bytes"), [(1, 1), (0, 0), (1 << 20, 1), (1, 1 << 20)])
def test_one_batch_comes_whatever_the_limits(topic: Topic, max_bytes: int, partition_max_bytes: int) -> None:
    batch = records(value=bytes(1000))
    topic.produce(batch)
    topic.produce(batch)
    answer = topic.fetch(max_bytes=max_bytes, partition_max_bytes=partition_max_bytes)
    assert len(data_of(answer)) == len(batch)


def test_max_bytes_bounds_the_partitions_after_the_first(topic: Topic) -> None:
    batch = records(value=bytes(1000))
    for partition in (0, 1):
        topic.produce(batch, partition=partition)
    answers = topic.fetch_all([(0, 0), (1, 0)], max_bytes=len(batch)).responses[0].partitions
    assert [len(data_of(answer)) for answer in answers] == [len(batch), 0]


def test_a_fetch_waits_for_min_bytes_and_no_longer_than_max_wait(topic: Topic) -> None:
    topic.produce(records())
    started = time.monotonic()
    answer = topic.fetch(min_bytes=100_000, max_wait_ms=300)
    assert time.monotonic() - started >= 0.3
    assert len(data_of(answer)) > 0


def test_a_waiting_fetch_gets_what_is_produced(broker: BrokerProcess, topic: Topic) -> None:
    waiting = Wire(broker.bootstrap)
    request = FetchRequest(max_wait_ms=15_000, min_bytes=1, max_bytes=1 << 20)
    asked = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    request.topics = [FetchTopic(topic=topic.name, partitions=[asked])]
    waiting.send(request, 11)
    topic.produce(records())
    answer = waiting.receive(ApiKey.FETCH, 11).responses[0].partitions[0]
    assert answer.high_watermark == 1
    assert len(data_of(answer)) > 0
    waiting.close()


def test_leader_epochs_of_a_fetch(topic: Topic) -> None:
    assert topic.fetch(current_leader_epoch=0).error_code == ErrorCode.NONE
    assert topic.fetch(current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_epoch_is_named(topic: Topic) -> None:
    topic.produce(records())
    assert topic.fetch(1, last_fetched_epoch=0).diverging_epoch.epoch == -1
    beyond = topic.fetch(3, last_fetched_epoch=0)
    assert (beyond.error_code, beyond.diverging_epoch.epoch, beyond.diverging_epoch.end_offset) == (0, 0, 1)
    assert topic.fetch(1, last_fetched_epoch=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [12, 17])
def test_a_follower_that_is_no_replica(topic: Topic, version: int) -> None:
    without_epoch = topic.fetch(replica_id=5, version=version)
    assert without_epoch.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with_epoch = topic.fetch(replica_id=5, current_leader_epoch=0, version=version)
    assert with_epoch.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    # Nor is it told what there is in the log.
    assert topic.fetch(9, replica_id=5, version=version).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    diverging = topic.fetch(9, replica_id=5, current_leader_epoch=0, last_fetched_epoch=0, version=version)
    assert (diverging.error_code, diverging.diverging_epoch.epoch) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    assert topic.fetch(replica_id=-2).error_code == ErrorCode.NONE


# Fetch sessions -------------------------------------------------------------------------------------------------------


def told(response: FetchResponse) -> list[tuple[int, int, int]]:
    return [
        (partition.partition_index, partition.error_code, len(data_of(partition)))
        for topic in response.responses
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_tells_what_changed(topic: Topic, version: int) -> None:
    first = topic.fetch_all([(0, 0), (1, 0)], version=version, session_id=0, session_epoch=0)
    session_id = first.session_id
    assert session_id != 0
    assert told(first) == [(0, 0, 0), (1, 0, 0)]

    def step(epoch: int, positions: list[tuple[int, int]], **options: Any) -> list[tuple[int, int, int]]:
        response = topic.fetch_all(positions, version=version, session_id=session_id, session_epoch=epoch, **options)
        assert (response.error_code, response.session_id) == (ErrorCode.NONE, session_id)
        return told(response)

    assert step(1, []) == []
    size = len(records())
    topic.produce(records(), partition=1)
    assert step(2, []) == [(1, 0, size)]
    assert step(3, []) == [(1, 0, size)]
    assert step(4, [(1, 1)]) == []
    assert step(5, [(9, 0)]) == [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
    assert step(6, [], forgotten=[9]) == []
    topic.produce(records(), partition=0)
    assert step(7, [], forgotten=[0]) == []
    last = topic.fetch_all([], version=version, session_id=session_id, session_epoch=8, forgotten=[1])
    assert (last.error_code, last.session_id) == (ErrorCode.NONE, 0)
    gone = topic.fetch_all([], version=version, session_id=session_id, session_epoch=9)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_and_requests_that_do_not_fit_it(topic: Topic) -> None:
    session_id = topic.fetch_all([(0, 0)], session_id=0, session_epoch=0).session_id

    def code(epoch: int, version: int = 12, session: int = session_id) -> int:
        response = topic.fetch_all([], version=version, session_id=session, session_epoch=epoch)
        assert response.session_id in (0, session)
        return response.error_code

    assert code(2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(1, version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert code(1) == ErrorCode.NONE
    assert code(1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(7, session=0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(-1) == ErrorCode.NONE
    assert code(2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_topic_of_a_session_is_deleted(topic: Topic) -> None:
    def state(version: int) -> int:
        return int(topic.fetch_all([(0, 0)], version=version, session_id=0, session_epoch=0).session_id)

    by_name, by_id = state(12), state(13)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=5000)
    assert topic.wire.call(deletion, 6).responses[0].error_code == ErrorCode.NONE
    deadline = time.monotonic() + 120
    while topic.list_offset(-1)[0][0] != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    answer = topic.fetch_all([], version=12, session_id=by_name, session_epoch=1)
    assert told(answer) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)]
    # Apache Kafka still knows the name that the id had when the session began, Ottla says that the id is gone.
    ((_, code, _),) = told(topic.fetch_all([], version=13, session_id=by_id, session_epoch=1))
    assert code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


# ListOffsets ----------------------------------------------------------------------------------------------------------


def test_the_ends_of_a_log(topic: Topic) -> None:
    topic.produce(records(3))
    for version in range(1, 12):
        epoch = 0 if version >= 4 else -1
        assert topic.list_offset(-1, version=version) == [(0, -1, 3, epoch)]
        assert topic.list_offset(-2, version=version) == [(0, -1, 0, epoch)]


def test_offsets_by_timestamp(topic: Topic) -> None:
    for timestamp_ms in (1000, 3000, 2000):
        topic.produce(build_batch([Record(value=b"v", timestamp_ms=timestamp_ms + delta) for delta in (0, 1)]))
    for asked, found in {0: (1000, 0), 1000: (1000, 0), 1001: (1001, 1), 1002: (3000, 2), 3001: (3001, 3)}.items():
        assert topic.list_offset(asked) == [(0, *found, 0)]
    assert topic.list_offset(3002) == [(0, -1, -1, -1)]
    assert topic.list_offset(-3) == [(0, 3001, 3, 0)]


@pytest.mark.parametrize(
    ("timestamp", "min_version", "expected"),
    [(-3, 7, (0, -1, -1, -1)), (-4, 8, (0, -1, 0, 0)), (-5, 9, (0, -1, -1, -1)), (-6, 11, (0, -1, -1, -1))],
)
def test_special_timestamps_on_an_empty_log(
    topic: Topic, timestamp: int, min_version: int, expected: tuple[int, int, int, int]
) -> None:
    assert topic.list_offset(timestamp, version=min_version) == [expected]
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
    assert topic.list_offset(timestamp, version=min_version - 1) == [refused]
    assert topic.list_offset(-7) == [refused]


def test_list_offsets_refusals(topic: Topic, nothing: Topic) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert nothing.list_offset(-1) == [unknown]
    assert topic.list_offset(-1, partition=9) == [unknown]
    assert topic.list_offset(-1, times=2) == [(ErrorCode.INVALID_REQUEST, -1, -1, -1)]
    assert topic.list_offset(-1, epoch=0) == [(0, -1, 0, 0)]
    assert topic.list_offset(-1, epoch=5) == [(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)]


# OffsetForLeaderEpoch -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(topic: Topic, version: int) -> None:
    assert topic.end_of_epoch(0, version=version) == (0, 0, 0)
    for _ in range(2):
        # What is before all epochs ends where the first begins; -1 is none.
        assert topic.end_of_epoch(-2, version=version) == (0, -2, 0)
        for epoch in (-1, 1, 5):
            assert topic.end_of_epoch(epoch, version=version) == (0, -1, -1)
        topic.produce(records(3))
    assert topic.end_of_epoch(0, version=version) == (0, 0, 6)


def test_offset_for_leader_epoch_refusals(topic: Topic, nothing: Topic) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert nothing.end_of_epoch(0) == unknown
    assert topic.end_of_epoch(0, partition=9) == unknown
    assert topic.end_of_epoch(0, current_leader_epoch=0) == (0, 0, 0)
    assert topic.end_of_epoch(0, current_leader_epoch=5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
