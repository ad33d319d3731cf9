"""A group that moves between the protocols with its members, byte by byte: the codes that both kinds of members see."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import GroupWire, name
from compat_tests.wire.wire import Wire
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    build_consumer_protocol,
    parse_consumer_protocol,
)
from ottla.kproto.messages.groups.consumer_group_heartbeat import TopicPartitions
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

Protocols = tuple[tuple[str, bytes], ...]


class Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def group(wire: Wire) -> GroupWire:
    found = GroupWire(wire, f"migrating-{uuid.uuid4().hex[:8]}")
    found.find()
    return found


@pytest.fixture
def topic(wire: Wire) -> Topic:
    """A topic of two partitions that the group coordinator knows: Apache Kafka's learns of it a little later."""
    topic = f"migrating-{uuid.uuid4().hex[:8]}"
    creation = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
    created = Topic(topic, wire.call(CreateTopicsRequest(topics=[creation], timeout_ms=5000), 7).topics[0].topic_id)

    def is_known() -> bool:
        probe = GroupWire(wire, f"probe-{uuid.uuid4().hex[:8]}")
        probe.find()
        return bool(probe.start(created).assignment.topic_partitions)

    until(is_known)
    return created


def until(holds: Callable[[], Any]) -> None:
    """Ask again until it holds: both brokers give a group a new assignment no more often than once a second."""
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def protocols(topic: Topic) -> Protocols:
    return (("range", build_consumer_protocol(ConsumerProtocolSubscription(topics=[topic.name]), 1)),)


def everything(topic: Topic) -> bytes:
    assigned = AssignedTopicPartition(topic=topic.name, partitions=[0, 1])
    return build_consumer_protocol(ConsumerProtocolAssignment(assigned_partitions=[assigned]), 1)


def classic_member(group: GroupWire, topic: Topic) -> tuple[str, int]:
    """The one member of a stable classic group, with both partitions, and the generation."""
    required = group.join(protocols=protocols(topic))
    assert name(required.error_code) == "MEMBER_ID_REQUIRED"
    joined = group.join(required.member_id, protocols=protocols(topic))
    assert (joined.error_code, joined.leader) == (0, joined.member_id)
    synced = group.sync(joined.member_id, joined.generation_id, assignments={joined.member_id: everything(topic)})
    assert synced[0] == "NONE"
    return joined.member_id, joined.generation_id


def kind(group: GroupWire) -> str:
    listed = group.wire.call(ListGroupsRequest(), 5).groups
    return next(str(each.group_type) for each in listed if each.group_id == group.group_id)


def rejoin(group: GroupWire, topic: Topic, member_id: str) -> tuple[int, list[int]]:
    """The classic member joins again, owning nothing; its generation and partitions."""
    joined = group.join(member_id, protocols=protocols(topic))
    assert (name(joined.error_code), joined.member_id) == ("NONE", member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert (joined.leader, joined.members, joined.skip_assignment) == ("", [], False)
    code, _, _, assignment = group.sync(member_id, joined.generation_id)
    assert code == "NONE"
    topics = parse_consumer_protocol(ConsumerProtocolAssignment, assignment).assigned_partitions
    return joined.generation_id, [index for each in topics for index in each.partitions]


def shared(group: GroupWire, topic: Topic, classic: str, native_epoch: int) -> tuple[int, list[int], int]:
    """Both have one partition: the classic member's generation and partitions, the other one's epoch."""
    state: dict[str, Any] = {"epoch": native_epoch, "classic": [], "native": []}

    def settled() -> bool:
        owned = [TopicPartitions(topic_id=topic.topic_id, partitions=state["native"])] if state["native"] else []
        beat = group.beat("native", state["epoch"], topic_partitions=owned)
        assert beat.error_code == 0, beat
        state["epoch"] = beat.member_epoch
        if beat.assignment is not None:
            state["native"] = [index for each in beat.assignment.topic_partitions for index in each.partitions]
        if group.heartbeat(classic, state.get("generation", -1)) != "NONE":
            state["generation"], state["classic"] = rejoin(group, topic, classic)
        return (
            len(state["classic"]) == len(state["native"]) == 1
            and group.describe_consumer_group().group_state == "Stable"
        )

    until(settled)
    assert sorted(state["classic"] + state["native"]) == [0, 1]
    return state["generation"], state["classic"], state["epoch"]


def test_an_empty_group_keeps_its_protocol_when_a_member_is_refused(group: GroupWire, topic: Topic) -> None:
    group.start(topic, "native")
    group.beat("native", -1)
    assert kind(group) == "consumer"
    refused = group.join("nobody", protocols=protocols(topic))
    assert (name(refused.error_code), refused.member_id) == ("UNKNOWN_MEMBER_ID", "nobody")
    assert kind(group) == "consumer"


def test_a_refused_classic_member_leaves_an_empty_group_as_it_is(
    broker: BrokerProcess, wire: Wire, topic: Topic
) -> None:
    """On purpose: Apache Kafka forgets the group without a record of it, and has it again once it is loaded anew."""
    forgets = broker.name == "kafka"
    rejoined, removed = (GroupWire(wire, f"refused-{uuid.uuid4().hex[:8]}") for _ in range(2))
    for group in (rejoined, removed):
        group.find()
        assert group.start(topic, "native").error_code == 0
        assert group.describe_consumer_group().group_epoch == 2
        assert group.beat("native", -1).error_code == 0
        assert name(group.join("nobody", protocols=protocols(topic)).error_code) == "UNKNOWN_MEMBER_ID"
    assert rejoined.start(topic, "native").error_code == 0
    assert rejoined.describe_consumer_group().group_epoch == (2 if forgets else 4)
    assert removed.delete()[0] == ("GROUP_ID_NOT_FOUND" if forgets else "NONE")


def test_there_and_back(group: GroupWire, topic: Topic) -> None:
    classic, first = classic_member(group, topic)
    assert kind(group) == "classic"

    native = group.start(topic, "native")
    assert (native.error_code, native.assignment.topic_partitions) == (0, [])
    assert kind(group) == "consumer"
    assert name(group.describe().error_code) == "GROUP_ID_NOT_FOUND"
    members = group.describe_consumer_group().members
    assert {member.member_id: member.member_type for member in members} == {classic: 0, "native": 1}
    assert group.commit(topic, version=8, member_id=classic, generation_id=first) == "NONE"
    assert group.heartbeat(classic, first) == "REBALANCE_IN_PROGRESS"
    assert group.sync(classic, first)[0] == "REBALANCE_IN_PROGRESS"

    generation, (held,), epoch = shared(group, topic, classic, native.member_epoch)
    assert generation > first
    assert group.heartbeat(classic, first) == "ILLEGAL_GENERATION"
    assert group.sync(classic, first)[0] == "ILLEGAL_GENERATION"
    assert group.sync(classic, generation, protocol_name="roundrobin")[0] == "INCONSISTENT_GROUP_PROTOCOL"
    assert group.heartbeat("native", epoch) == "UNKNOWN_MEMBER_ID"

    for version in (8, 9):
        commit = partial(group.commit, topic, version=version, member_id=classic)
        assert commit(partition=held, generation_id=generation) == "NONE"
        assert commit(partition=held, generation_id=first) == "NONE"  # held since (KIP-1251)
        assert commit(partition=1 - held, generation_id=first) == "ILLEGAL_GENERATION"
        assert commit(partition=held, generation_id=generation + 1) == "ILLEGAL_GENERATION"

    assert group.beat("native", -1).error_code == 0
    assert kind(group) == "classic"
    described = group.describe()
    assert (described.group_state, [member.member_id for member in described.members]) == (
        "PreparingRebalance",
        [classic],
    )
    joined = group.join(classic, protocols=protocols(topic))
    assert (name(joined.error_code), joined.leader) == ("NONE", classic)
    assert joined.generation_id > generation
    assert group.sync(classic, joined.generation_id, assignments={classic: everything(topic)})[0] == "NONE"
    assert group.heartbeat(classic, joined.generation_id) == "NONE"
    code, offsets = group.fetch(topic, partitions=(held,))
    assert (code, offsets[0][2]) == ("NONE", 5)


def test_classic_members_come_and_go_in_a_group_of_the_consumer_protocol(group: GroupWire, topic: Topic) -> None:
    native = group.start(topic, "native")
    assert native.error_code == 0
    required = group.join(protocols=protocols(topic))
    assert name(required.error_code) == "MEMBER_ID_REQUIRED"
    classic = required.member_id
    assert len(group.describe_consumer_group().members) == 1
    assert name(group.join(protocol_type="connect").error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    generation, _, epoch = shared(group, topic, classic, native.member_epoch)
    assert group.heartbeat(classic, generation) == "NONE"
    assert group.leave_all((classic, None)) == ("NONE", [(classic, None, "NONE")])
    assert group.heartbeat(classic, generation) == "UNKNOWN_MEMBER_ID"
    assert kind(group) == "consumer"

    def has_everything() -> bool:
        beat = group.beat("native", epoch)
        assert beat.error_code == 0
        return beat.assignment is not None and beat.assignment.topic_partitions[0].partitions == [0, 1]

    until(has_everything)


def test_a_classic_member_that_does_not_name_its_instance_again_keeps_it(group: GroupWire, topic: Topic) -> None:
    """JoinGroup before version 5 has no field for it."""
    assert group.start(topic, "native").error_code == 0
    classic = group.join(protocols=protocols(topic), group_instance_id="fixed").member_id
    for version in (9, 4):
        assert name(group.join(classic, version=version, protocols=protocols(topic)).error_code) == "NONE"
        instances = {each.member_id: each.instance_id for each in group.describe_consumer_group().members}
        assert instances == {"native": None, classic: "fixed"}


def test_other_groups_than_those_of_consumers_stay_classic(group: GroupWire, topic: Topic) -> None:
    required = group.join(protocol_type="connect", protocols=(("default", b"?"),))
    joined = group.join(required.member_id, protocol_type="connect", protocols=(("default", b"?"),))
    assert joined.error_code == 0
    assert name(group.start(topic, "native").error_code) == "GROUP_ID_NOT_FOUND"
    assert kind(group) == "classic"
