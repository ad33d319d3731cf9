"""Faults: what a client sees is what the plan says, and well-formed; everybody else is served as ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any
from uuid import UUID

import pytest

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError
from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages import request_class
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Struct, StructType
from ottla.server.apis.table import served
from ottla.testing import Broker
from ottla.testing.faults import answers

Connect = Callable[[], BrokerConnection]


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(BrokerConnection("127.0.0.1", broker.port, 30)))


def produce(connection: BrokerConnection, *partitions: int, topic: str = "t") -> list[int]:
    """Produce a record to each partition; the error codes, by partition."""
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"x")], base_offset=0)
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    (answered,) = connection.call(request, at_most=12).responses
    codes = {answer.index: answer.error_code for answer in answered.partition_responses}
    return [codes[index] for index in partitions]


def fetch(connection: BrokerConnection, *partitions: int, epoch: int = -1, session: int = 0) -> Any:
    asked = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in partitions]
    topics = [FetchTopic(topic="t", partitions=asked)] if asked else []
    return connection.call(
        FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, topics=topics), at_most=12
    )


def codes_of(response: Any) -> dict[int, int]:
    return {answer.partition_index: answer.error_code for topic in response.responses for answer in topic.partitions}


def test_so_many_requests_fail_and_the_next_does_not(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    fault = broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    connection = connect()

    codes = [produce(connection, 0) for _ in range(3)]

    assert codes == [[ErrorCode.NOT_LEADER_OR_FOLLOWER], [ErrorCode.NOT_LEADER_OR_FOLLOWER], [ErrorCode.NONE]]
    assert fault.struck == 2
    assert len(broker.records("t")) == 1


def test_one_partition_fails_and_the_others_take_their_records(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t", partitions=3)
    broker.create_topic("u")
    broker.faults.fail("Produce", "REQUEST_TIMED_OUT", topic="t", partition=1, times=1)
    connection = connect()

    assert produce(connection, 0, topic="u") == [ErrorCode.NONE]
    assert produce(connection, 0, 1, 2) == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE]
    assert produce(connection, 0, 1, 2) == [ErrorCode.NONE] * 3
    assert sorted(record.partition for record in broker.records("t")) == [0, 0, 1, 2, 2]


def test_a_topic_fails_by_its_id(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    connection = connect()
    topic_id = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")])).topics[0].topic_id
    asked = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[asked])
    broker.faults.fail("Fetch", "KAFKA_STORAGE_ERROR", topic="t")

    response = connection.call(request)

    assert codes_of(response) == {0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert response.responses[0].topic_id == topic_id
    assert codes_of(connection.call(request)) == {0: ErrorCode.NONE}


def test_a_fetch_in_a_session_fails_when_it_names_its_partitions_again(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t", partitions=2)
    broker.produce("t", "x", partition=0)
    broker.produce("t", "x", partition=1)
    connection = connect()
    session = fetch(connection, 0, 1, epoch=0).session_id
    broker.faults.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", topic="t", partition=1)

    assert fetch(connection, epoch=1, session=session).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    failed = fetch(connection, 0, 1, epoch=0)
    assert codes_of(failed) == {0: ErrorCode.NONE, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert failed.session_id == 0
    assert codes_of(fetch(connection, 0, 1, epoch=0)) == {0: ErrorCode.NONE, 1: ErrorCode.NONE}


def test_metadata_fails_for_topics_and_still_names_the_brokers(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    broker.create_topic("u")
    broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE", topic="t")

    response = connect().call(MetadataRequest(topics=None))

    assert {topic.name: topic.error_code for topic in response.topics} == {
        "t": ErrorCode.LEADER_NOT_AVAILABLE,
        "u": ErrorCode.NONE,
    }
    assert [it.port for it in response.brokers] == [broker.port]


def test_a_dropped_request_is_not_served_and_a_lost_answer_is(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    broker.faults.drop_connections("Produce")
    dropped, lost = connect(), connect()
    with pytest.raises(ClientError, match="closed the connection"):
        produce(dropped, 0)
    assert broker.records("t") == []

    broker.faults.drop_connections("Produce", after_handling=True)
    with pytest.raises(ClientError, match="closed the connection"):
        produce(lost, 0)
    assert len(broker.records("t")) == 1


def test_a_delayed_request_is_served_when_the_clock_says_so(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    fault = broker.faults.delay("Produce", ms=3_600_000, jitter_ms=1000)
    connection = connect()
    codes: list[list[int]] = []
    waiting = threading.Thread(target=lambda: codes.append(produce(connection, 0)))
    waiting.start()
    while not fault.struck:
        waiting.join(0.001)
    assert broker.records("t") == []

    broker.clock.advance(3601)

    waiting.join(30)
    assert codes == [[ErrorCode.NONE]]


def test_a_stalled_broker_serves_what_waited_when_it_goes_on(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    connection = connect()
    codes: list[list[int]] = []
    waiting = threading.Thread(target=lambda: codes.append(produce(connection, 0)))
    with broker.faults.stalled():
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
        assert broker.records("t") == []
    waiting.join(30)
    assert codes == [[ErrorCode.NONE]]


def test_a_throttled_client_is_told_for_how_long(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    broker.faults.throttle("Metadata", ms=20, times=1)
    connection = connect()

    assert connection.call(MetadataRequest(topics=[])).throttle_time_ms == 20
    assert connection.call(MetadataRequest(topics=[])).throttle_time_ms == 0


def test_a_disk_that_is_full_takes_nothing_until_it_has_room(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    connection = connect()
    assert produce(connection, 0) == [ErrorCode.NONE]
    broker.faults.fail_disk("ENOSPC", operation="pwritev")

    assert produce(connection, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]

    broker.faults.clear()
    deadline = time.monotonic() + 120
    while produce(connection, 0) != [ErrorCode.NONE]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_disk_that_fails_takes_its_topics_offline_until_a_restart(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    connection = connect()
    assert produce(connection, 0) == [ErrorCode.NONE]
    broker.faults.fail_disk("EIO", operation="pwritev")

    assert produce(connection, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]

    broker.faults.clear()
    assert produce(connection, 0) == [ErrorCode.KAFKA_STORAGE_ERROR]
    broker.restart()
    assert produce(connect(), 0) == [ErrorCode.NONE]
    assert [record.offset for record in broker.records("t")] == [0, 1]


def test_a_rule_can_be_lifted(broker: Broker, connect: Connect) -> None:
    broker.create_topic("t")
    broker.faults.remove(broker.faults.fail("Produce", "REQUEST_TIMED_OUT", times=None))
    assert produce(connect(), 0) == [ErrorCode.NONE]


def test_names_that_kafka_does_not_have_are_refused(broker: Broker) -> None:
    with pytest.raises(ValueError, match="no API 'Product'"):
        broker.faults.delay("Product", ms=1)
    with pytest.raises(ValueError, match="no error 'OOPS'"):
        broker.faults.fail("Produce", "OOPS")
    with pytest.raises(ValueError, match="needs its topic"):
        broker.faults.fail("Produce", "REQUEST_TIMED_OUT", partition=1)


def sample(cls: type[Struct] | StructType, version: int) -> Any:
    """A request that names one of everything."""
    filled = cls()
    for field in cls.FIELDS:
        if field.kind == "array" and field.versions.includes(version):
            element = field.element
            setattr(
                filled, field.name, [sample(element, version) if isinstance(element, StructType) else _one(element)]
            )
    return filled


def _one(element: Any) -> Any:
    return {"string": "x", "uuid": UUID(int=5), "bytes": b"x"}.get(element.name, 1)


def error_codes(struct: Any) -> Iterator[int]:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.name in ("error_code", "partition_error_code"):
            yield value
        for item in value if field.kind == "array" and value else ():
            if isinstance(item, Struct):
                yield from error_codes(item)


@pytest.mark.parametrize("key", served(), ids=lambda key: key.name)
def test_the_failed_answer_of_every_api_is_well_formed_and_says_why(key: ApiKey) -> None:
    for version in key.valid_versions:
        request = sample(request_class(key), version)
        if isinstance(request, ProduceRequest):
            request.acks = 1  # 0 has no answer
        response = answers.failed(request, version, ErrorCode.REQUEST_TIMED_OUT)
        assert response is not None
        parsed = codec.parse_response(key, version, b"".join(codec.build_parts(response, version)), 0)
        assert ErrorCode.REQUEST_TIMED_OUT in set(error_codes(parsed)), (key, version, parsed)
