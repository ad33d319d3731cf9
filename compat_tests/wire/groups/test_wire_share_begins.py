"""Where a share group began, before anything is acknowledged. Ottla differs from Apache Kafka 4.4.0 on purpose.

Apache Kafka stores the offset with the first acknowledgement, Ottla with the first fetch (docs/compatibility.md).
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import name
from compat_tests.wire.groups.test_wire_share import (
    ACCEPT,
    NEW,
    Member,
    Topic,
    await_coordinator,
    make_topic,
    member_id,
    produce,
)
from compat_tests.wire.groups.test_wire_share import group as group
from compat_tests.wire.groups.test_wire_share import members as members
from compat_tests.wire.groups.test_wire_share import topic as topic
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)

_PATIENCE_S = 60


def start_and_lag(wire: Wire, group_id: str, topic: Topic) -> tuple[int, int]:
    asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[0])
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=[asked])]
    )
    (answer,) = wire.call(request, 1).groups
    (partition,) = answer.topics[0].partitions
    assert (name(answer.error_code), name(partition.error_code)) == ("NONE", "NONE")
    return partition.start_offset, partition.lag


def first_acquired(member: Member, topic: Topic) -> int | None:
    """The first offset that a new session is given with its first answer about the partition; None if none is."""
    deadline = time.monotonic() + _PATIENCE_S
    session_epoch = NEW
    while True:
        answer = member.fetch(session_epoch, topic.topic_id, max_wait_ms=200)
        assert name(answer.error_code) == "NONE"
        for partition in (each for found in answer.responses for each in found.partitions):
            assert name(partition.error_code) == "NONE"
            acquired = partition.acquired_records
            return int(acquired[0].first_offset) if acquired else None
        session_epoch += 1
        assert time.monotonic() < deadline


def test_where_a_group_began_is_told_once_it_is_stored(
    broker: BrokerProcess, wire: Wire, members: list[Member], topic: Topic, group: str
) -> None:
    member = members[0]
    member.join(topic.name)
    assert start_and_lag(wire, group, topic) == (-1, -1)
    produce(wire, topic, 4)
    epoch, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(0, 3, 1)]
    assert start_and_lag(wire, group, topic) == ((-1, -1) if broker.name == "kafka" else (0, 4))
    assert member.acknowledge(epoch, topic.topic_id, (0, 0, [ACCEPT])) == ["NONE", "NONE"]
    assert start_and_lag(wire, group, topic) == (0, 3)


def test_records_of_a_group_that_begins_at_the_end_over_a_restart(own_broker: BrokerProcess) -> None:
    """Its member has read all, and acknowledged nothing. Later records are for it; Apache Kafka passes them by."""
    group_id = f"wire-{uuid.uuid4().hex[:8]}"
    with closing(Wire(own_broker.bootstrap)) as wire, closing(Wire(own_broker.bootstrap)) as theirs:
        topic = make_topic(wire)
        produce(wire, topic, 4)
        await_coordinator(wire, group_id)
        member = Member(theirs, group_id, member_id())
        member.join(topic.name)
        assert first_acquired(member, topic) is None
        assert name(member.beat(-1).error_code) == "NONE"
    own_broker.stop()
    own_broker.start()
    with closing(Wire(own_broker.bootstrap)) as wire, closing(Wire(own_broker.bootstrap)) as theirs:
        produce(wire, topic, 3)
        await_coordinator(wire, group_id)
        member = Member(theirs, group_id, member_id())
        member.join(topic.name)
        assert first_acquired(member, topic) == (None if own_broker.name == "kafka" else 4)


def test_a_fetch_where_nobody_has_joined(broker: BrokerProcess, members: list[Member], topic: Topic) -> None:
    """Nobody has set up the partition's delivery state: that is an error, where the state of any group is kept."""
    produce(members[0].wire, topic, 2)
    with closing(Wire(broker.bootstrap)) as wire:
        other = Member(wire, f"wire-{uuid.uuid4().hex[:8]}", member_id())
        other.join(topic.name)
        other.fetch(NEW, topic.topic_id, max_wait_ms=300)
    deadline = time.monotonic() + _PATIENCE_S
    codes: set[str] = set()
    epoch = NEW
    while "UNKNOWN_SERVER_ERROR" not in codes and time.monotonic() < deadline:
        answer = members[0].fetch(epoch, topic.topic_id, max_wait_ms=300)
        partitions = [each for found in answer.responses for each in found.partitions]
        assert not any(each.acquired_records for each in partitions)
        codes |= {name(each.error_code) for each in partitions}
        epoch += 1
    assert codes - {"NONE"} == {"UNKNOWN_SERVER_ERROR"}
