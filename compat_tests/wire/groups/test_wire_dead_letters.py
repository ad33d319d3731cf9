"""Dead-letter queues of share groups (KIP-1191) as members and readers of a queue see them (`--broker=both`)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import name
from compat_tests.wire.groups.test_wire_share import (
    ACCEPT,
    GROUP_RESOURCE,
    NEW,
    REJECT,
    RELEASE,
    Member,
    Topic,
    describe,
    member_id,
)
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Compression, Record, build_batch, iter_batches, iter_records

DEADLINE_S = 120
BROKER_RESOURCE, TOPIC_RESOURCE = 4, 2
QUEUE = {"errors.deadletterqueue.group.enable": "true"}


class Letter(NamedTuple):
    """A record of a queue: where it lies, what it holds, and its headers behind `__dlq.errors.`."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


def set_configs(wire: Wire, kind: int, resource: str, **configs: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    asked = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=changes)
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
    assert name(answer.error_code) == "NONE", answer.error_message


def new_topic(wire: Wire, configs: Mapping[str, str], prefix: str = "dlq.") -> Topic:
    made = f"{prefix}{uuid.uuid4().hex[:8]}"
    named = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    asked = CreatableTopic(name=made, num_partitions=1, replication_factor=1, configs=named)
    created = wire.call(CreateTopicsRequest(topics=[asked], timeout_ms=10_000), 7).topics[0]
    assert name(created.error_code) == "NONE", created.error_message
    return Topic(made, created.topic_id)


@pytest.fixture
def source(wire: Wire) -> Topic:
    return new_topic(wire, {}, "source-")


@pytest.fixture
def queue(wire: Wire) -> Topic:
    return new_topic(wire, QUEUE)


Join = Callable[..., Member]


@pytest.fixture
def join(broker: BrokerProcess, wire: Wire, source: Topic) -> Iterator[Join]:
    """Makes a group with these settings and lets a member join it."""
    made: list[Member] = []

    def join_group(**configs: str) -> Member:
        group = f"wire-{uuid.uuid4().hex[:8]}"
        set_configs(wire, GROUP_RESOURCE, group, share_auto_offset_reset="earliest", **configs)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
            if not found.coordinators[0].error_code and name(describe(wire, group).error_code) == "GROUP_ID_NOT_FOUND":
                break
            assert time.monotonic() < deadline
            time.sleep(0.1)
        member = Member(Wire(broker.bootstrap), group, member_id())
        made.append(member)
        member.join(source.name)
        return member

    yield join_group
    for member in made:
        member.wire.close()


def produce(wire: Wire, topic: Topic, *records: Record, **options: Any) -> None:
    batch = build_batch(records, **options)
    data = TopicProduceData(
        name=topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    answer = wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 13)
    assert name(answer.responses[0].partition_responses[0].error_code) == "NONE"


def record(text: str, **fields: Any) -> Record:
    return Record(
        timestamp_ms=int(time.time() * 1000), key=b"k-" + text.encode(), value=b"v-" + text.encode(), **fields
    )


def letters(wire: Wire, queue: Topic, count: int, partitions: int = 1) -> list[Letter]:
    """The letters of a queue, once there are so many."""
    deadline = time.monotonic() + DEADLINE_S
    while len(found := _letters(wire, queue, partitions)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


def _letters(wire: Wire, queue: Topic, partitions: int) -> list[Letter]:
    everything: dict[str, Any] = {"fetch_offset": 0, "partition_max_bytes": 1 << 24}
    asked = [FetchPartition(partition=index, **everything) for index in range(partitions)]
    topics = [FetchTopic(topic=queue.name, topic_id=queue.topic_id, partitions=asked)]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, session_epoch=-1, topics=topics)
    return [
        letter
        for topic in wire.call(request, 13).responses
        for partition in topic.partitions
        for letter in _letters_of(partition.partition_index, bytes(partition.records or b""))
    ]


def _letters_of(partition: int, data: bytes) -> Iterator[Letter]:
    for position, header in iter_batches(data):
        assert header.compression is Compression.NONE
        for each in iter_records(data, position, header):
            headers = {key.removeprefix("__dlq.errors."): (text or b"").decode() for key, text in each.headers}
            assert len(headers) == len(each.headers)
            assert abs(each.timestamp_ms - time.time() * 1000) < 600_000
            yield Letter(partition, each.key, each.value, headers)


def await_end(wire: Wire, member: Member) -> None:
    """Until everything is over."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=member.group, topics=None)
    deadline = time.monotonic() + DEADLINE_S
    while True:
        (group,) = wire.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1).groups
        lags = [(each.start_offset, each.lag) for topic in group.topics for each in topic.partitions]
        if [lag for _, lag in lags] == [0]:
            return
        assert time.monotonic() < deadline, lags
        time.sleep(0.1)


def about(member: Member, source: Topic, offset: int, deliveries: int, message: str) -> dict[str, str]:
    return {
        "topic": source.name,
        "partition": "0",
        "offset": str(offset),
        "group": member.group,
        "delivery.count": str(deliveries),
        "message": message,
    }


REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."


def test_rejected_records(wire: Wire, join: Join, source: Topic, queue: Topic) -> None:
    member = join(errors_deadletterqueue_topic_name=queue.name)
    produce(wire, source, *(record(str(number)) for number in range(4)))
    epoch, acquired = member.acquire(NEW, source.topic_id)
    assert acquired == [(0, 3, 1)]
    done = member.acknowledge(epoch, source.topic_id, (0, 3, [REJECT, ACCEPT, REJECT, REJECT]))
    assert done == ["NONE", "NONE"]
    assert letters(wire, queue, 3) == [
        Letter(0, None, None, about(member, source, offset, 1, REJECTED)) for offset in (0, 2, 3)
    ]
    await_end(wire, member)


def test_copies(wire: Wire, join: Join, source: Topic, queue: Topic) -> None:
    """The key and the value, and no header of the record itself."""
    member = join(errors_deadletterqueue_topic_name=queue.name, errors_deadletterqueue_copy_record_enable="true")
    produce(wire, source, record("a", headers=(("h", b"1"),)), record("b"))
    produce(wire, source, record("c"), Record(timestamp_ms=1), compression=Compression.GZIP)
    epoch = NEW
    acknowledged: list[tuple[int, int, list[int]]] = []
    while not acknowledged or acknowledged[-1][1] < 3:
        epoch, acquired = member.acquire(epoch, source.topic_id)
        acknowledged += [(first, last, [REJECT]) for first, last, _ in acquired]
    assert member.acknowledge(epoch, source.topic_id, *acknowledged) == ["NONE", "NONE"]
    assert letters(wire, queue, 4) == [
        *(
            Letter(0, b"k-" + text, b"v-" + text, about(member, source, offset, 1, REJECTED))
            for offset, text in enumerate((b"a", b"b", b"c"))
        ),
        Letter(0, None, None, about(member, source, 3, 1, REJECTED)),
    ]


def test_what_is_too_large_for_the_queue_is_not_copied(wire: Wire, join: Join, source: Topic) -> None:
    queue = new_topic(wire, QUEUE | {"max.message.bytes": "2000"})
    member = join(errors_deadletterqueue_topic_name=queue.name, errors_deadletterqueue_copy_record_enable="true")
    produce(wire, source, Record(timestamp_ms=1, value=bytes(5_000)), compression=Compression.GZIP)
    epoch, _ = member.acquire(NEW, source.topic_id)
    assert member.acknowledge(epoch, source.topic_id, (0, 0, [REJECT])) == ["NONE", "NONE"]
    assert letters(wire, queue, 1) == [Letter(0, None, None, about(member, source, 0, 1, REJECTED))]


def test_records_that_are_given_back_too_often(wire: Wire, join: Join, source: Topic, queue: Topic) -> None:
    member = join(errors_deadletterqueue_topic_name=queue.name, share_delivery_count_limit="2")
    produce(wire, source, record("a"))
    epoch = NEW
    for delivery in (1, 2):
        epoch, acquired = member.acquire(epoch, source.topic_id)
        assert acquired == [(0, 0, delivery)]
        assert member.acknowledge(epoch, source.topic_id, (0, 0, [RELEASE])) == ["NONE", "NONE"]
        epoch += 1
    assert letters(wire, queue, 1) == [Letter(0, None, None, about(member, source, 0, 2, TOO_OFTEN))]
    await_end(wire, member)


def test_records_that_are_rejected_with_their_last_delivery(
    wire: Wire, join: Join, source: Topic, queue: Topic
) -> None:
    member = join(errors_deadletterqueue_topic_name=queue.name, share_delivery_count_limit="2")
    produce(wire, source, record("a"))
    epoch, _ = member.acquire(NEW, source.topic_id)
    assert member.acknowledge(epoch, source.topic_id, (0, 0, [RELEASE])) == ["NONE", "NONE"]
    epoch, acquired = member.acquire(epoch + 1, source.topic_id)
    assert acquired == [(0, 0, 2)]
    assert member.acknowledge(epoch, source.topic_id, (0, 0, [REJECT])) == ["NONE", "NONE"]
    assert letters(wire, queue, 1) == [Letter(0, None, None, about(member, source, 0, 2, REJECTED))]


def test_records_whose_locks_end(wire: Wire, join: Join, source: Topic, queue: Topic) -> None:
    member = join(
        errors_deadletterqueue_topic_name=queue.name,
        share_delivery_count_limit="2",
        share_record_lock_duration_ms="1000",
    )
    produce(wire, source, record("a"), record("b"))
    epoch, acquired = member.acquire(NEW, source.topic_id)
    assert acquired == [(0, 1, 1)]
    epoch, acquired = member.acquire(epoch, source.topic_id)
    assert acquired == [(0, 1, 2)]
    assert letters(wire, queue, 2) == [
        Letter(0, None, None, about(member, source, offset, 2, TOO_OFTEN)) for offset in (0, 1)
    ]
    await_end(wire, member)


def test_a_member_that_leaves_after_it_has_rejected(wire: Wire, join: Join, source: Topic, queue: Topic) -> None:
    member = join(errors_deadletterqueue_topic_name=queue.name)
    produce(wire, source, record("a"))
    member.acquire(NEW, source.topic_id)
    assert member.acknowledge(-1, source.topic_id, (0, 0, [REJECT])) == ["NONE", "NONE"]
    assert letters(wire, queue, 1) == [Letter(0, None, None, about(member, source, 0, 1, REJECTED))]


@pytest.mark.parametrize("case", ["is not enabled", "has no prefix", "is absent"])
def test_a_queue_that_cannot_be_used(wire: Wire, join: Join, source: Topic, case: str) -> None:
    """Records are archived all the same."""
    names: dict[str, Callable[[], str]] = {
        "is not enabled": lambda: new_topic(wire, {}).name,
        "has no prefix": lambda: new_topic(wire, QUEUE, "other.").name,
        "is absent": lambda: f"dlq.{uuid.uuid4().hex[:8]}",
    }
    member = join(errors_deadletterqueue_topic_name=names[case]())
    produce(wire, source, record("a"))
    epoch, _ = member.acquire(NEW, source.topic_id)
    assert member.acknowledge(epoch, source.topic_id, (0, 0, [REJECT])) == ["NONE", "NONE"]
    await_end(wire, member)


def test_a_queue_has_no_name_of_kafkas_own(wire: Wire) -> None:
    change = AlterableConfig(name="errors.deadletterqueue.topic.name", config_operation=0, value="__dlq")
    asked = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="g", configs=[change])
    (answer,) = wire.call(IncrementalAlterConfigsRequest(resources=[asked]), 1).responses
    words = "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'"
    assert (name(answer.error_code), answer.error_message) == ("INVALID_CONFIG", words)


def test_a_queue_that_is_made(wire: Wire, join: Join, source: Topic) -> None:
    set_configs(wire, BROKER_RESOURCE, "", errors_deadletterqueue_auto_create_topics_enable="true")
    queue = f"dlq.{uuid.uuid4().hex[:8]}"
    try:
        member = join(errors_deadletterqueue_topic_name=queue)
        produce(wire, source, record("a"))
        epoch, _ = member.acquire(NEW, source.topic_id)
        assert member.acknowledge(epoch, source.topic_id, (0, 0, [REJECT])) == ["NONE", "NONE"]
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=queue)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + DEADLINE_S
        while (found := wire.call(asked, 12).topics[0]).error_code:
            assert time.monotonic() < deadline, name(found.error_code)
            time.sleep(0.1)
        made = Topic(queue, found.topic_id)
        (letter,) = letters(wire, made, 1, len(found.partitions))
        assert letter.headers == about(member, source, 0, 1, REJECTED)
    finally:
        set_configs(wire, BROKER_RESOURCE, "", errors_deadletterqueue_auto_create_topics_enable="false")
    keys = ["errors.deadletterqueue.group.enable", "message.timestamp.type", "cleanup.policy"]
    resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=queue, configuration_keys=keys)
    (described,) = wire.call(DescribeConfigsRequest(resources=[resource]), 4).results
    assert {each.name: (each.value, each.config_source) for each in described.configs} == {
        "errors.deadletterqueue.group.enable": ("true", 1),
        "message.timestamp.type": ("CreateTime", 1),
        "cleanup.policy": ("delete", 5),
    }
