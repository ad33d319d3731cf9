"""Classic groups byte by byte, where members die, lie about their subscription or change the protocol.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import ASSIGNMENT, SUBSCRIPTION, GroupWire, Topic, name, new_topic
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.groups.join_group import JoinGroupRequest
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

LEAST_SESSION_MS = 6_000


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def group(wire: Wire) -> GroupWire:
    found = GroupWire(wire, f"classic-{uuid.uuid4().hex[:8]}")
    found.find()
    return found


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return new_topic(wire)


def test_a_follower_survives_a_leader_that_never_syncs(broker: BrokerProcess, group: GroupWire) -> None:
    with closing(Wire(broker.bootstrap)) as other_wire:
        other = GroupWire(other_wire, group.group_id)
        sessions: dict[str, Any] = {"session_timeout_ms": LEAST_SESSION_MS, "rebalance_timeout_ms": 30_000}
        members = {each.join(**sessions).member_id: each for each in (group, other)}
        for member_id, each in members.items():
            each.send_join(member_id, **sessions)
        joined = {each: each.wire.receive(JoinGroupRequest.API_KEY, 9) for each in members.values()}
        leader, follower = (
            joined[each] for each in sorted(joined, key=lambda each: joined[each].leader != joined[each].member_id)
        )
        assert (leader.generation_id, follower.leader) == (follower.generation_id, leader.member_id)
        alive = members[follower.member_id]
        # The follower's session would end just after that of the leader.
        time.sleep(0.5)
        assert alive.heartbeat(follower.member_id, follower.generation_id) == "NONE"
        assert alive.sync(follower.member_id, follower.generation_id)[0] == "REBALANCE_IN_PROGRESS"
        time.sleep(1)
        again = alive.join(follower.member_id, **sessions)
        assert (name(again.error_code), again.member_id) == ("NONE", follower.member_id)
        assert again.leader == follower.member_id


def test_a_static_member_that_is_away_for_two_rebalance_timeouts_is_removed(
    broker: BrokerProcess, group: GroupWire
) -> None:
    """Its session goes on: the first rebalance keeps it, but it does not ask for its assignment."""
    timeouts: dict[str, Any] = {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 1_000}
    with closing(Wire(broker.bootstrap)) as other_wire:
        other = GroupWire(other_wire, group.group_id)
        first = group.join(group_instance_id="stays", **timeouts)
        member_id = first.member_id
        other.send_join(group_instance_id="away", **timeouts)
        deadline = time.monotonic() + 60
        while group.heartbeat(member_id, first.generation_id) != "REBALANCE_IN_PROGRESS":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        both = group.join(member_id, group_instance_id="stays", **timeouts)
        away_id = other.wire.receive(JoinGroupRequest.API_KEY, 9).member_id
        assert {each.member_id for each in both.members} == {member_id, away_id}
        for each, its_id in ((group, member_id), (other, away_id)):
            assert each.sync(its_id, both.generation_id)[0] == "NONE"
    # As a leader it is told that everybody rejoins; the other one is still a member when that is over.
    kept = group.join(member_id, group_instance_id="stays", **timeouts)
    assert {each.member_id for each in kept.members} == {member_id, away_id}
    assert group.sync(member_id, kept.generation_id)[0] == "NONE"
    while group.heartbeat(member_id, kept.generation_id) != "REBALANCE_IN_PROGRESS":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    alone = group.join(member_id, group_instance_id="stays", **timeouts)
    assert [each.member_id for each in alone.members] == [member_id]


def test_members_that_rebalance_are_described_with_what_they_have(broker: BrokerProcess, group: GroupWire) -> None:
    member_id, _ = group.joined()
    with closing(Wire(broker.bootstrap)) as other_wire:
        other = GroupWire(other_wire, group.group_id)
        other.send_join(other.join().member_id)
        deadline = time.monotonic() + 60
        while (described := group.describe()).group_state != "PreparingRebalance" or len(described.members) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        had = {member.member_id: bytes(member.member_assignment) for member in described.members}
        assert had.pop(member_id) == ASSIGNMENT
        assert list(had.values()) == [b""]
        assert [bytes(member.member_metadata) for member in described.members] == [b"", b""]


# What a group reads ---------------------------------------------------------------------------------------------------


def subscription(version: int, topic: str, rest: bytes = b"") -> bytes:
    """The version, one topic and no user data; `rest` is what newer versions have behind them."""
    encoded = topic.encode()
    return b"\0" + bytes([version]) + b"\0\0\0\1\0" + bytes([len(encoded)]) + encoded + b"\xff" * 4 + rest


@pytest.mark.parametrize(("version", "rest"), [(0, b""), (1, b""), (1, b"\0\0"), (2, b"\0\0\0\0"), (3, b""), (99, b"")])
def test_the_topics_of_a_subscription_that_lies_about_its_version(
    group: GroupWire, topic: Topic, version: int, rest: bytes
) -> None:
    other = new_topic(group.wire)
    member_id, generation = group.joined(protocols=[("range", subscription(version, topic.name, rest))])
    for each in (topic, other):
        assert group.commit(each, member_id=member_id, generation_id=generation) == "NONE"
    assert group.delete_offset(topic) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])
    assert group.delete_offset(other) == ("NONE", ["NONE"])
    assert [group.fetch(each)[1][0][2] for each in (topic, other)] == [5, -1]
    assert group.leave_all((member_id, None))[0] == "NONE"
    assert group.delete_offset(topic) == ("NONE", ["NONE"])


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1", b"\0\0\0\0", b"\0\0\0\0\0\0", b"\0\0\0\0\0\0\0"])
def test_a_subscription_that_cannot_be_read_counts_for_all_topics(
    group: GroupWire, topic: Topic, metadata: bytes
) -> None:
    member_id, generation = group.joined(protocols=[("range", metadata)])
    assert group.commit(topic, member_id=member_id, generation_id=generation) == "NONE"
    assert group.delete_offset(topic) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])
    assert group.fetch(topic)[1][0][2] == 5
    assert group.leave_all((member_id, None))[0] == "NONE"
    assert group.delete_offset(topic) == ("NONE", ["NONE"])


def test_offsets_may_not_be_deleted_before_the_first_generation(group: GroupWire, topic: Topic) -> None:
    assert group.commit(topic) == "NONE"
    assert group.delete_offset(topic) == ("NONE", ["NONE"])
    assert group.commit(topic) == "NONE"
    required = group.join()
    assert group.delete_offset(topic) == ("NONE", ["NONE"])
    group.send_join(required.member_id)
    with closing(Wire(group.wire.bootstrap)) as wire:
        assert GroupWire(wire, group.group_id).delete_offset(topic) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])
    assert name(group.wire.receive(JoinGroupRequest.API_KEY, 9).error_code) == "NONE"


def test_a_group_reads_what_the_members_of_its_generation_said(group: GroupWire, topic: Topic) -> None:
    """Not what somebody says who waits for the next one; and of who has left, until the next one."""
    assert group.commit(topic) == "NONE"
    elsewhere = subscription(1, "elsewhere", b"\xff\xff\xff\xff" + b"\0\0\0\0")
    here = subscription(1, topic.name, b"\xff\xff\xff\xff" + b"\0\0\0\0")
    member_id, _ = group.joined(protocols=[("range", elsewhere)])
    with closing(Wire(group.wire.bootstrap)) as wire:
        other = GroupWire(wire, group.group_id)
        given = other.join(protocols=[("range", here)])
        other.send_join(given.member_id, protocols=[("range", here)])
        assert group.delete_offset(topic) == ("NONE", ["NONE"])
        assert group.leave(member_id) == "NONE"
        joined = wire.receive(JoinGroupRequest.API_KEY, 9)
        assert name(joined.error_code) == "NONE"
        assert group.delete_offset(topic) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])


# Groups that cannot become one of the consumer protocol ---------------------------------------------------------------

CUSTOM_ASSIGNOR = (
    "Cannot upgrade classic group {} to consumer group because an unsupported custom assignor is in use. Please refer "
    "to the documentation or switch to a default assignor before re-attempting the upgrade."
)
MALFORMED = "Cannot upgrade classic group {} to consumer group because the embedded consumer protocol is malformed."
NOT_OF_CONSUMERS = (
    "Cannot upgrade classic group {} to consumer group because the group does not use the consumer embedded protocol."
)


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assignment", "why"),
    [
        ("consumer", SUBSCRIPTION, ASSIGNMENT[:-4] + b"\0\0\0\1u", CUSTOM_ASSIGNOR),
        ("consumer", SUBSCRIPTION, b"\0", MALFORMED),
        ("consumer", b"\0", ASSIGNMENT, MALFORMED),
        ("connect", SUBSCRIPTION, ASSIGNMENT, NOT_OF_CONSUMERS),
        ("consumer", SUBSCRIPTION, ASSIGNMENT[:-4] + b"\0\0\0\0", None),
        ("consumer", SUBSCRIPTION, b"", None),
        ("consumer", SUBSCRIPTION[:-8] + b"\0\0\0\1u" + b"\0\0\0\0", ASSIGNMENT, None),
        ("consumer", SUBSCRIPTION[:-4], ASSIGNMENT, MALFORMED),
    ],
)
def test_a_group_that_would_lose_something_stays_classic(
    group: GroupWire, topic: Topic, protocol_type: str, metadata: bytes, assignment: bytes, why: str | None
) -> None:
    options: dict[str, Any] = {"protocol_type": protocol_type, "protocols": [("range", metadata)]}
    required = group.join(**options)
    joined = group.join(required.member_id, **options)
    member_id, generation = joined.member_id, joined.generation_id
    synced = group.sync(member_id, generation, protocol_type=protocol_type, assignments={member_id: assignment})
    assert synced[0] == "NONE"
    started = group.start(topic, "native")
    if why is None:
        assert (name(started.error_code), started.error_message) == ("NONE", None)
        return
    assert (name(started.error_code), started.error_message) == ("GROUP_ID_NOT_FOUND", why.format(group.group_id))
    described = group.describe()
    assert (described.group_state, bytes(described.members[0].member_assignment)) == ("Stable", assignment)
    assert group.heartbeat(member_id, generation) == "NONE"


# Offsets --------------------------------------------------------------------------------------------------------------


def test_topics_with_errors_come_last(group: GroupWire, topic: Topic) -> None:
    while group.commit(topic, version=10) != "NONE":
        time.sleep(0.05)
    unknown = [uuid.uuid4(), uuid.uuid4()]
    asked = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in (unknown[0], topic.topic_id, unknown[1])
    ]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group.group_id, topics=asked)])
    (answered,) = group.wire.call(request, 10).groups
    assert [(each.topic_id, name(each.partitions[0].error_code)) for each in answered.topics] == [
        (topic.topic_id, "NONE"),
        (unknown[0], "UNKNOWN_TOPIC_ID"),
        (unknown[1], "UNKNOWN_TOPIC_ID"),
    ]


def test_the_others_rejoin_when_somebody_leaves_who_was_only_given_an_id(
    broker: BrokerProcess, group: GroupWire
) -> None:
    with closing(Wire(broker.bootstrap)) as other_wire:
        other = GroupWire(other_wire, group.group_id)
        member_id, generation_id = group.joined()
        given = other.join()
        assert name(given.error_code) == "MEMBER_ID_REQUIRED"
        assert group.heartbeat(member_id, generation_id) == "NONE"
        assert other.leave_all((given.member_id, None)) == ("NONE", [(given.member_id, None, "NONE")])
        assert group.heartbeat(member_id, generation_id) == "REBALANCE_IN_PROGRESS"
        assert group.join(member_id).generation_id == generation_id + 1


def test_a_member_that_is_removed_while_it_joins_is_told_of_no_member_id(
    broker: BrokerProcess, group: GroupWire
) -> None:
    with closing(Wire(broker.bootstrap)) as other_wire:
        other = GroupWire(other_wire, group.group_id)
        group.joined()
        member_id = other.join().member_id
        other.send_join(member_id)
        deadline = time.monotonic() + 60
        while member_id not in [member.member_id for member in group.describe().members]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert group.leave_all((member_id, None)) == ("NONE", [(member_id, None, "NONE")])
        removed = other_wire.receive(JoinGroupRequest.API_KEY, 9)
        assert (name(removed.error_code), removed.member_id) == ("UNKNOWN_MEMBER_ID", "")


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_keeps_the_client_id_that_it_first_had(
    broker: BrokerProcess, group: GroupWire, instance_id: str | None
) -> None:
    member_id, _ = group.joined(group_instance_id=instance_id)
    with closing(Wire(broker.bootstrap, client_id="another")) as other_wire:
        again = GroupWire(other_wire, group.group_id)
        # A static member comes back without its id; both have something new to say.
        joined = again.join(
            "" if instance_id else member_id,
            group_instance_id=instance_id,
            protocols=(("range", SUBSCRIPTION), ("roundrobin", SUBSCRIPTION)),
        )
        assert name(joined.error_code) == "NONE"
        (member,) = again.describe().members
        assert (member.client_id, member.group_instance_id) == ("wire", instance_id)
