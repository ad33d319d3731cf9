"""Groups to which two things happen at once, or that a broker is killed with, request by request.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.conftest import BROKERS
from compat_tests.wire.groups.group_wire import ASSIGNMENT, GroupWire
from compat_tests.wire.groups.test_wire_groups import Topic, create
from compat_tests.wire.wire import Wire
from ottla.coordinator.partitioning import coordinator_partition
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest

RACES = 12
OFFSETS_PARTITIONS = 4
QUICK = {"offsets.retention.check.interval.ms": "1000"}
DEADLINE_S = 120


@pytest.fixture(scope="module")
def quick_broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose retention looks every second."""
    with BROKERS[broker_kind](tmp_path_factory.mktemp(f"{broker_kind}-quick"), overrides=QUICK) as process:
        yield process


@pytest.fixture
def wires(quick_broker: BrokerProcess) -> Iterator[tuple[Wire, Wire]]:
    pair = Wire(quick_broker.bootstrap), Wire(quick_broker.bootstrap)
    yield pair
    for wire in pair:
        wire.close()


def new_group(wire: Wire, group_id: str | None = None) -> GroupWire:
    group = GroupWire(wire, f"overlap-{uuid.uuid4().hex[:8]}" if group_id is None else group_id)
    group.find()
    return group


def group_in(wire: Wire, partition: int) -> GroupWire:
    """A group in this partition of `__consumer_offsets`."""
    while True:
        group_id = f"overlap-{uuid.uuid4().hex[:8]}"
        if coordinator_partition(group_id, OFFSETS_PARTITIONS) == partition:
            return new_group(wire, group_id)


def new_topic(wire: Wire) -> Topic:
    return create(wire, f"overlap-{uuid.uuid4().hex[:8]}")


def create_again(wire: Wire, topic: Topic) -> Topic:
    """The topic's successor: the name is free once its deletion is through."""
    deadline = time.monotonic() + DEADLINE_S
    while not (made := create(wire, topic.name)).topic_id.int:
        assert time.monotonic() < deadline
    return made


def delete(wire: Wire, topic: Topic) -> None:
    states = [DeleteTopicState(name=topic.name)]
    (deleted,) = wire.call(DeleteTopicsRequest(topics=states, timeout_ms=5000), 6).responses
    assert deleted.error_code == 0, deleted


def listed(wire: Wire, group: GroupWire) -> list[str]:
    """The types of the groups that are listed under the id."""
    answer = wire.call(ListGroupsRequest(), 5)
    return [each.group_type for each in answer.groups if each.group_id == group.group_id]


def until(holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def first_heartbeat(group: GroupWire, topic: Topic, member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group.group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic.name],
        topic_partitions=[],
    )


@pytest.mark.parametrize("classic_first", [False, True])
def test_a_member_of_each_protocol_comes_to_an_empty_group(wires: tuple[Wire, Wire], *, classic_first: bool) -> None:
    one, two = wires
    topic = new_topic(one)
    for _ in range(RACES):
        group = new_group(one)
        member_id, _ = group.joined()
        group.leave(member_id)
        member_id = group.join().member_id
        other = GroupWire(two, group.group_id)
        heartbeat = first_heartbeat(group, topic, str(uuid.uuid4()))
        if classic_first:
            other.send_join(member_id)
            one.send(heartbeat, 1)
        else:
            one.send(heartbeat, 1)
            other.send_join(member_id)
        one.receive(ConsumerGroupHeartbeatRequest.API_KEY, 1)
        joined = two.receive(JoinGroupRequest.API_KEY, 9)
        assert len(listed(one, group)) == 1
        if joined.error_code == 0 and listed(one, group) == ["classic"]:
            # It is the one group, and lives.
            synced = other.sync(joined.member_id, joined.generation_id, assignments={joined.member_id: ASSIGNMENT})
            assert synced[0] in ("NONE", "REBALANCE_IN_PROGRESS")


def test_a_member_comes_to_a_group_that_is_being_deleted(wires: tuple[Wire, Wire]) -> None:
    one, two = wires
    topic = new_topic(one)
    groups = []
    for _ in range(RACES):
        group = new_group(one)
        first, second = str(uuid.uuid4()), str(uuid.uuid4())
        until(lambda: group.start(topic, first).error_code == 0)  # noqa: B023 - called at once
        assert group.beat(first, -1).error_code == 0
        one.send(DeleteGroupsRequest(groups_names=[group.group_id]), 2)
        two.send(first_heartbeat(group, topic, second), 1)
        one.receive(DeleteGroupsRequest.API_KEY, 2)
        two.receive(ConsumerGroupHeartbeatRequest.API_KEY, 1)
        groups.append(group)
    # Nobody heartbeats, so every session ends.
    until(lambda: not any(group.describe_consumer_group().members for group in groups))


def test_commits_for_a_topic_that_was_made_again(wires: tuple[Wire, Wire]) -> None:
    wire, _ = wires
    groups = [group_in(wire, partition) for partition in range(OFFSETS_PARTITIONS)]
    for _ in range(5):
        topic = new_topic(wire)
        for group in groups:
            until(lambda: group.commit(topic, 7) == "NONE")  # noqa: B023 - called at once
        delete(wire, topic)
        again = create_again(wire, topic)
        for group in reversed(groups):
            until(lambda: group.commit(again, 42, version=10) == "NONE")  # noqa: B023 - called at once
        checked_until = time.monotonic() + 0.5
        while time.monotonic() < checked_until:
            for group in groups:
                assert group.fetch(again, version=10)[1][0][2] == 42


def test_an_open_transaction_keeps_its_group(wires: tuple[Wire, Wire]) -> None:
    wire, _ = wires
    topic = new_topic(wire)
    transactional_id = f"overlap-{uuid.uuid4()}"
    wire.call(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    begun: Any = None

    def has_begun() -> bool:
        nonlocal begun
        begun = wire.call(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
        return bool(begun.error_code == 0)

    until(has_begun)
    producer = transactional_id, begun.producer_id, begun.producer_epoch
    group = new_group(wire)
    add = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        group_id=group.group_id,
    )
    until(lambda: wire.call(add, 3).error_code == 0)
    until(lambda: group.commit_in_transaction(topic, *producer) == "NONE")
    # Another group in the same partition, with nothing left: when it is gone, retention has looked at both.
    over = group_in(wire, coordinator_partition(group.group_id, OFFSETS_PARTITIONS))
    for _ in range(2):
        member_id, _ = over.joined()
        over.leave(member_id)
        until(lambda: not listed(wire, over))
    assert listed(wire, group) == ["classic"]
    end = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=begun.producer_id,
        producer_epoch=begun.producer_epoch,
        committed=True,
    )
    assert wire.call(end, 3).error_code == 0
    until(lambda: group.fetch(topic, require_stable=True)[1][0][2] == 7)
    assert listed(wire, group) == ["classic"]
    assert group.delete() == ["NONE"]
    assert group.fetch(topic)[1][0][2] == -1


def test_a_topic_is_deleted_and_the_broker_killed(own_broker: BrokerProcess) -> None:
    wire = Wire(own_broker.bootstrap)
    groups = [group_in(wire, partition) for partition in range(OFFSETS_PARTITIONS)]
    topic = new_topic(wire)
    for group in groups:
        until(lambda: group.commit(topic, 7, version=10) == "NONE")  # noqa: B023 - called at once
    delete(wire, topic)
    own_broker.kill()
    wire.close()
    own_broker.start()
    wire = Wire(own_broker.bootstrap)
    again = create_again(wire, topic)
    for group in groups:
        after = new_group(wire, group.group_id)
        until(lambda: after.fetch(again, version=10)[0] == "NONE")  # noqa: B023 - called at once
        assert after.fetch(again, version=10) == ("NONE", [(str(again.topic_id), 0, -1, -1, "", "NONE")])
    wire.close()
