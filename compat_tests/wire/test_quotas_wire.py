"""What a client beyond its quota is told: the same throttle times and errors from both brokers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.configs.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.kproto.messages.configs.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share import share_fetch
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch

CLIENT_ID = "wire"  # as compat_tests.wire.wire calls itself


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with closing(Wire(broker.bootstrap)) as connection:
        yield connection


@contextmanager
def quota(broker: BrokerProcess, key: str, value: float) -> Iterator[None]:
    """A quota of this client, for the block; the brokers know it when it begins."""
    component = ComponentData(entity_type="client-id", match_type=0, match=CLIENT_ID)
    entity = [EntityData(entity_type="client-id", entity_name=CLIENT_ID)]

    def alter(op: OpData) -> None:
        with closing(Wire(broker.bootstrap)) as connection:
            request = AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])])
            (answer,) = connection.call(request, 1).entries
            assert answer.error_code == ErrorCode.NONE, answer.error_message
            deadline = time.monotonic() + 120
            # Kafka's brokers follow their controller a moment later.
            while bool(connection.call(DescribeClientQuotasRequest(components=[component]), 1).entries) is op.remove:
                assert time.monotonic() < deadline
                time.sleep(0.05)

    alter(OpData(key=key, value=value, remove=False))
    try:
        yield
    finally:
        alter(OpData(key=key, value=0.0, remove=True))


def new_topic(wire: Wire, partitions: int, version: int) -> tuple[ErrorCode, int]:
    """The error of creating a topic, and the throttle time."""
    topic = CreatableTopic(name=f"q{uuid.uuid4().hex[:8]}", num_partitions=partitions, replication_factor=1)
    answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=20_000), version)
    return ErrorCode(answer.topics[0].error_code), answer.throttle_time_ms


def test_topics_beyond_the_mutation_rate(broker: BrokerProcess) -> None:
    with quota(broker, "controller_mutation_rate", 2.0):
        # What comes in over eleven windows of a second may be spent at once, and overdrawn: here by 20.
        with closing(Wire(broker.bootstrap)) as wire:
            assert new_topic(wire, 42, 7) == (ErrorCode.NONE, 0)
            error, throttle_ms = new_topic(wire, 1, 7)
            assert error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            assert 2500 < throttle_ms <= 10_000
        with closing(Wire(broker.bootstrap)) as wire:
            # A client that does not know the error is not refused.
            error, throttle_ms = new_topic(wire, 1, 5)
            assert error is ErrorCode.NONE
            assert 0 < throttle_ms <= 10_500


def topic_with(wire: Wire, value: bytes) -> tuple[str, int]:
    """A topic, and the throttle time of producing a record to it."""
    topic = f"q{uuid.uuid4().hex[:8]}"
    asked = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]
    assert wire.call(CreateTopicsRequest(topics=asked, timeout_ms=20_000), 7).topics[0].error_code == ErrorCode.NONE
    deadline = time.monotonic() + 120
    asked_for = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    while wire.call(asked_for, 9).topics[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    now_ms = int(time.time() * 1000)
    records = build_batch([Record(offset=0, timestamp_ms=now_ms, key=None, value=value)], base_offset=0)
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = wire.call(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return topic, answer.throttle_time_ms


def test_of_an_entity_that_is_named_twice_the_first_entry_counts(broker: BrokerProcess, wire: Wire) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    entity = [EntityData(entity_type="user", entity_name=user)]
    entries = [
        EntryData(entity=entity, ops=[OpData(key="consumer_byte_rate", value=value, remove=False)])
        for value in (1000.0, 2000.0)
    ]
    (answer,) = wire.call(AlterClientQuotasRequest(entries=entries), 1).entries
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    component = ComponentData(entity_type="user", match_type=0, match=user)
    deadline = time.monotonic() + 120
    while not (found := wire.call(DescribeClientQuotasRequest(components=[component]), 1).entries):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert [(value.key, value.value) for entry in found for value in entry.values] == [("consumer_byte_rate", 1000.0)]


def test_a_producer_beyond_its_byte_rate(broker: BrokerProcess, wire: Wire) -> None:
    with quota(broker, "producer_byte_rate", 1000.0):
        _, throttle_ms = topic_with(wire, bytes(20_000))
    # 2,000 a second over ten seconds against 1,000: ten seconds more bring it down.
    assert throttle_ms == pytest.approx(10_000, rel=0.1)


def test_a_consumer_beyond_its_byte_rate_gets_nothing(broker: BrokerProcess, wire: Wire) -> None:
    topic, _ = topic_with(wire, bytes(20_000))
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])])
    with quota(broker, "consumer_byte_rate", 1000.0), closing(Wire(broker.bootstrap)) as consumer:
        answer = consumer.call(request, 11)
    assert answer.error_code == ErrorCode.NONE
    assert not any(bytes(p.records or b"") for t in answer.responses for p in t.partitions)
    assert answer.throttle_time_ms == pytest.approx(10_000, rel=0.1)


def test_a_share_consumer_beyond_its_byte_rate(broker: BrokerProcess, wire: Wire) -> None:
    topic, _ = topic_with(wire, bytes(20_000))
    group_id, member_id = f"q{uuid.uuid4().hex[:8]}", "m" * 22
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=32, resource_name=group_id, configs=[config])
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    epoch, deadline = 0, time.monotonic() + 60
    while True:
        beat = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=[topic]
        )
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 6)
        answer = wire.call(beat, 1)
        if answer.error_code == ErrorCode.NONE:
            epoch = answer.member_epoch
            if answer.assignment.topic_partitions:
                break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    asked = share_fetch.FetchTopic(
        topic_id=answer.assignment.topic_partitions[0].topic_id,
        partitions=[share_fetch.FetchPartition(partition_index=0)],
    )
    request = share_fetch.ShareFetchRequest(
        group_id=group_id,
        member_id=member_id,
        share_session_epoch=0,
        max_wait_ms=20_000,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=500,
        batch_size=500,
        topics=[asked],
    )
    with quota(broker, "consumer_byte_rate", 1000.0), closing(Wire(broker.bootstrap)) as consumer:
        fetched = consumer.call(request, 2)
    assert fetched.error_code == ErrorCode.NONE
    assert fetched.throttle_time_ms == pytest.approx(10_000, rel=0.1)


def is_served(bootstrap: str) -> bool:
    """Whether a new connection is answered; False if the broker closes it instead."""
    with closing(Wire(bootstrap)) as connection:
        try:
            return bool(connection.call(ApiVersionsRequest(), 0).api_keys)
        except (EOFError, ConnectionError):
            return False


def test_connections_from_an_address_beyond_its_rate_are_closed(own_broker: BrokerProcess) -> None:
    entity = [EntityData(entity_type="ip", entity_name="127.0.0.1")]
    op = OpData(key="connection_creation_rate", value=1.0, remove=False)
    component = ComponentData(entity_type="ip", match_type=0, match="127.0.0.1")
    with closing(Wire(own_broker.bootstrap)) as admin:
        admin.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)
        deadline = time.monotonic() + 120
        while not admin.call(DescribeClientQuotasRequest(components=[component]), 1).entries:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        served = [is_served(own_broker.bootstrap) for _ in range(14)]
        # A rate is taken over ten seconds at least: ten may come at once. What waits to be closed takes up to a second.
        assert served[:9] == [True] * 9
        assert not all(served[9:])
        op = OpData(key="connection_creation_rate", value=0.0, remove=True)
        admin.call(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])]), 1)
        deadline = time.monotonic() + 120
        while not all(is_served(own_broker.bootstrap) for _ in range(3)):
            assert time.monotonic() < deadline
