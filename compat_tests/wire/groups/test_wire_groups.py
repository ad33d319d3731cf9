"""The group APIs byte by byte: cases that no client library lets one send.

What is expected here is what Apache Kafka 4.3 answers (`--broker=both`).
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import ASSIGNMENT, SUBSCRIPTION, GroupWire, name
from compat_tests.wire.wire import Wire
from ottla.coordinator.partitioning import coordinator_partition
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.groups.consumer_group_heartbeat import TopicPartitions
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import iter_batches, iter_records

UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"
UNKNOWN_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
ALL_OPERATIONS = 3400
NOT_ASKED = -(2**31)
OFFSETS_PARTITIONS = 4


class Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID


NOTHING = Topic("no-such-topic", uuid.UUID(int=99))


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def new_group(wire: Wire) -> Callable[..., GroupWire]:
    def make(group_id: str | None = None) -> GroupWire:
        group = GroupWire(wire, f"wire-{uuid.uuid4().hex[:8]}" if group_id is None else group_id)
        group.find()
        return group

    return make


@pytest.fixture
def group(new_group: Callable[..., GroupWire]) -> GroupWire:
    return new_group()


@pytest.fixture
def topic(wire: Wire, new_group: Callable[..., GroupWire]) -> Topic:
    """A topic of two partitions that the group coordinator knows: Apache Kafka's learns of it a little later."""
    made = create(wire, f"wire-{uuid.uuid4().hex[:8]}")
    deadline = time.monotonic() + 120
    while not new_group().start(made).assignment.topic_partitions:
        assert time.monotonic() < deadline
    return made


@pytest.fixture
def topic_t(wire: Wire) -> Topic:
    """The topic that SUBSCRIPTION names."""
    return create(wire, "t")


def create(wire: Wire, topic: str) -> Topic:
    """Create a topic, unless it is there; its id is known only to who created it."""
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=2, replication_factor=1)], timeout_ms=5000
    )
    return Topic(topic, wire.call(request, 7).topics[0].topic_id)


def answer(joined: Any) -> tuple[str, int, str | None, str | None]:
    return name(joined.error_code), joined.generation_id, joined.protocol_type, joined.protocol_name


# JoinGroup ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_new_member(group: GroupWire, version: int) -> None:
    joined = group.join(version=version)
    if version >= 4:
        assert answer(joined) == ("MEMBER_ID_REQUIRED", -1, None, None if version >= 7 else "")
        assert (joined.leader, joined.members) == ("", [])
        joined = group.join(joined.member_id, version=version)
    assert answer(joined) == ("NONE", 1, "consumer" if version >= 7 else None, "range")
    assert joined.leader == joined.member_id
    assert not joined.skip_assignment
    assert [bytes(member.metadata) for member in joined.members] == [SUBSCRIPTION]


@pytest.mark.parametrize("version", [0, 5, 6, 7, 9])
def test_joins_that_are_refused(new_group: Callable[..., GroupWire], version: int) -> None:
    group = new_group()
    no_protocol = None if version >= 7 else ""
    refused_options: list[tuple[dict[str, Any], str]] = [
        ({"member_id": "unknown"}, UNKNOWN_MEMBER),
        ({"session_timeout_ms": 1}, "INVALID_SESSION_TIMEOUT"),
        ({"session_timeout_ms": 10**9}, "INVALID_SESSION_TIMEOUT"),
        ({"protocols": []}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
    ]
    for options, code in refused_options:
        refused = group.join(version=version, **options)
        assert answer(refused) == (code, -1, None, no_protocol), options
        assert refused.member_id == options.get("member_id", "")
    assert answer(new_group("").join(version=version))[0] == "INVALID_GROUP_ID"


def test_a_static_member(group: GroupWire) -> None:
    first = group.join(group_instance_id="i")
    assert answer(first) == ("NONE", 1, "consumer", "range")
    assert [member.group_instance_id for member in first.members] == ["i"]
    old = first.member_id
    assert group.sync(old, 1, group_instance_id="i", assignments={old: b"A"}) == ("NONE", "consumer", "range", b"A")

    assert [
        group.heartbeat(member_id, 1, group_instance_id=instance)
        for member_id, instance in [(old, "i"), ("x", "i"), (old, "j"), (old, None), ("", "i")]
    ] == ["NONE", "FENCED_INSTANCE_ID", UNKNOWN_MEMBER, "NONE", "FENCED_INSTANCE_ID"]
    assert group.sync("x", 1, group_instance_id="i")[0] == "FENCED_INSTANCE_ID"
    assert group.sync(old, 1, group_instance_id="j")[0] == UNKNOWN_MEMBER
    assert name(group.join("x", group_instance_id="i").error_code) == "FENCED_INSTANCE_ID"

    again = group.join(group_instance_id="i")
    assert (again.generation_id, again.leader, again.skip_assignment) == (1, again.member_id, True)
    assert len(again.members) == 1
    older = group.join(group_instance_id="i", version=8)
    assert (older.generation_id, older.leader, older.skip_assignment) == (1, again.member_id, False)
    assert older.members == []
    assert group.heartbeat(old, 1, group_instance_id="i") == "FENCED_INSTANCE_ID"
    assert group.heartbeat(old, 1) == UNKNOWN_MEMBER
    assert group.leave_all((old, "i")) == ("NONE", [(old, "i", "FENCED_INSTANCE_ID")])
    assert group.leave_all(("", "j"), ("", "i"), ("", "i")) == (
        "NONE",
        [("", "j", UNKNOWN_MEMBER), ("", "i", "NONE"), ("", "i", UNKNOWN_MEMBER)],
    )


# SyncGroup, Heartbeat, LeaveGroup -------------------------------------------------------------------------------------


def test_members_of_what_does_not_exist(new_group: Callable[..., GroupWire]) -> None:
    for group, code in [(new_group(), UNKNOWN_MEMBER), (new_group(""), "INVALID_GROUP_ID")]:
        assert {group.sync("m", 1, version=version)[0] for version in range(6)} == {code}
        assert {group.heartbeat("m", 1, version=version) for version in range(5)} == {code}
        assert {group.leave("m", version=version) for version in range(3)} == {code}
    assert new_group().leave_all(("m", None), ("", "i"), version=3) == (
        "NONE",
        [("m", None, UNKNOWN_MEMBER), ("", "i", UNKNOWN_MEMBER)],
    )
    assert new_group().leave_all() == ("NONE", [])
    assert new_group("").leave_all(("m", None)) == new_group("").leave_all() == ("INVALID_GROUP_ID", [])


def test_a_member_that_has_not_joined_yet(group: GroupWire, topic: Topic) -> None:
    pending = group.join().member_id
    assert name(group.join("other").error_code) == UNKNOWN_MEMBER
    assert group.heartbeat(pending, 0) == UNKNOWN_MEMBER
    assert group.sync(pending, 0)[0] == UNKNOWN_MEMBER
    assert group.commit(topic, member_id=pending, generation_id=0) == UNKNOWN_MEMBER
    assert group.commit(topic) == "NONE"
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", [])
    assert group.leave(pending) == "NONE"
    assert group.leave(pending) == UNKNOWN_MEMBER


def test_between_join_and_sync(group: GroupWire, topic: Topic) -> None:
    member_id = group.join(group.join().member_id).member_id
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == (
        "CompletingRebalance",
        "consumer",
        "",
    )
    (member,) = described.members
    assert (bytes(member.member_metadata), member.client_id, member.client_host) == (b"", "wire", "/127.0.0.1")
    assert group.heartbeat(member_id, 1) == "NONE"
    assert group.commit(topic, member_id=member_id, generation_id=1) == "REBALANCE_IN_PROGRESS"
    assert group.commit(topic) == UNKNOWN_MEMBER
    assert group.sync(member_id, 7)[0] == "ILLEGAL_GENERATION"
    assert group.sync("x", 1)[0] == UNKNOWN_MEMBER
    for options in ({"protocol_name": "other"}, {"protocol_type": "other"}, {"protocol_name": None}):
        assert group.sync(member_id, 1, **options) == ("INCONSISTENT_GROUP_PROTOCOL", None, None, b"")
    assert group.sync(member_id, 1, version=4, assignments={"x": b"1"}) == ("NONE", None, None, b"")
    assert [group.sync(member_id, 1, version=version)[0] for version in range(6)] == ["NONE"] * 6
    assert group.join(member_id).generation_id == 2


def test_a_stable_group(group: GroupWire) -> None:
    member_id, generation = group.joined()
    described = group.describe(operations=True)
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert described.authorized_operations == ALL_OPERATIONS
    assert bytes(described.members[0].member_assignment) == ASSIGNMENT
    for delta, code in {0: "NONE", 1: "ILLEGAL_GENERATION", -1: "ILLEGAL_GENERATION"}.items():
        assert group.heartbeat(member_id, generation + delta) == code
        assert group.sync(member_id, generation + delta)[0] == code
    for stranger in ("", "x"):
        assert group.heartbeat(stranger, generation) == UNKNOWN_MEMBER
        assert group.sync(stranger, generation)[0] == UNKNOWN_MEMBER
    assert group.heartbeat(member_id, generation, group_instance_id="i") == UNKNOWN_MEMBER
    assert group.delete() == ["NON_EMPTY_GROUP"]
    for options in ({"protocols": [("other", SUBSCRIPTION)]}, {"protocol_type": "connect"}):
        assert name(group.join(**options).error_code) == "INCONSISTENT_GROUP_PROTOCOL"

    strangers = ((member_id, "i"), ("x", None), ("", "i"), ("", None))
    assert group.leave_all(*strangers) == ("NONE", [(*each, UNKNOWN_MEMBER) for each in strangers])
    assert group.leave_all((member_id, None), (member_id, None))[1] == [
        (member_id, None, "NONE"),
        (member_id, None, UNKNOWN_MEMBER),
    ]
    left = group.describe()
    assert (left.group_state, left.protocol_type, left.protocol_data, left.members) == ("Empty", "consumer", "", [])
    assert name(group.join(member_id).error_code) == UNKNOWN_MEMBER


# Offsets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_of_a_group_without_members(group: GroupWire, topic: Topic, version: int) -> None:
    no_group = "GROUP_ID_NOT_FOUND" if version >= 9 else "ILLEGAL_GENERATION"
    assert group.commit(topic, version=version, member_id="m", generation_id=1) == no_group
    assert group.commit(topic, version=version) == "NONE"
    assert group.commit(topic, version=version, member_id="m", generation_id=1) == UNKNOWN_MEMBER
    assert group.commit(topic, version=version, partition=9) == UNKNOWN_PARTITION
    assert group.commit(topic, version=version, partition=-1) == UNKNOWN_PARTITION
    assert group.commit(NOTHING, version=version) == ("UNKNOWN_TOPIC_ID" if version >= 10 else UNKNOWN_PARTITION)
    assert group.commit(topic, 3, version=version, epoch=2, metadata=None) == "NONE"
    epoch = 2 if version >= 6 else -1
    assert group.fetch(topic) == ("NONE", [(topic.name, 0, 3, epoch, "", "NONE")])


def test_what_may_be_committed(group: GroupWire, topic: Topic) -> None:
    assert group.commit(topic, metadata="x" * 4097) == "OFFSET_METADATA_TOO_LARGE"
    assert group.commit(topic, metadata="é" * 4096) == "NONE"
    for offset in (-1, -7, 2**62):
        assert group.commit(topic, offset) == "NONE"
        assert group.fetch(topic)[1][0][2] == offset
    assert group.commit(topic, version=2, retention_time_ms=100_000) == "NONE"
    described = group.describe()
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    assert group.heartbeat("m", 1) == UNKNOWN_MEMBER
    assert group.delete() == ["NONE"]


@pytest.mark.parametrize("version", range(2, 11))
def test_commits_of_a_stable_group(group: GroupWire, topic: Topic, version: int) -> None:
    member_id, generation = group.joined()
    for who, code in [
        ((member_id, generation), "NONE"),
        ((member_id, generation + 1), "ILLEGAL_GENERATION"),
        ((member_id, generation - 1), "ILLEGAL_GENERATION"),
        ((member_id, -1), "ILLEGAL_GENERATION"),
        (("x", generation), UNKNOWN_MEMBER),
        (("", generation), UNKNOWN_MEMBER),
        (("", -1), UNKNOWN_MEMBER),
    ]:
        assert group.commit(topic, version=version, member_id=who[0], generation_id=who[1]) == code, who


@pytest.mark.parametrize("version", range(1, 11))
def test_fetching_offsets(group: GroupWire, topic: Topic, version: int) -> None:
    topic_name = str(topic.topic_id) if version >= 10 else topic.name
    assert group.fetch(topic, version=version) == ("NONE", [(topic_name, 0, -1, -1, "", "NONE")])
    assert group.commit(topic, 8, epoch=3, metadata="note") == "NONE"
    epoch = 3 if version >= 5 else -1
    committed = (topic_name, 0, 8, epoch, "note", "NONE")
    assert group.fetch(topic, version=version, partitions=[0, 1, 9]) == (
        "NONE",
        [committed, (topic_name, 1, -1, -1, "", "NONE"), (topic_name, 9, -1, -1, "", "NONE")],
    )
    if version >= 2:
        assert group.fetch(version=version) == ("NONE", [committed])
    nothing = group.fetch(NOTHING, version=version)[1][0]
    assert nothing[2:] == (-1, -1, "", "UNKNOWN_TOPIC_ID" if version >= 10 else "NONE")
    assert group.fetch(topic, version=version, partitions=[]) == ("NONE", [])
    if version >= 9:
        assert group.fetch(topic, version=version, member_id="m", member_epoch=7)[0] == "NONE"


def test_deleting_offsets(new_group: Callable[..., GroupWire], topic: Topic, topic_t: Topic) -> None:
    assert new_group().delete_offset(topic) == ("GROUP_ID_NOT_FOUND", [])
    assert new_group("").delete_offset(topic) == ("INVALID_GROUP_ID", [])
    group = new_group()
    group.commit(topic)
    for _ in range(2):
        assert group.delete_offset(topic) == ("NONE", ["NONE"])
    assert group.delete_offset(topic, partition=9) == ("NONE", [UNKNOWN_PARTITION])
    assert group.delete_offset(NOTHING) == ("NONE", [UNKNOWN_PARTITION])

    consuming = new_group()
    consuming.joined()
    assert consuming.delete_offset(topic_t) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])
    assert consuming.delete_offset(topic) == ("NONE", ["NONE"])
    other = new_group()
    options: dict[str, Any] = {"protocol_type": "connect", "protocols": [("c", b"")]}
    other.join(other.join(**options).member_id, **options)
    assert other.delete_offset(topic) == ("NON_EMPTY_GROUP", [])


# Transactions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def transaction(wire: Wire) -> tuple[str, int, int]:
    """A transactional id with its producer id and epoch."""
    transactional_id = f"wire-{uuid.uuid4()}"
    wire.call(FindCoordinatorRequest(key=transactional_id, key_type=1), 3)
    deadline = time.monotonic() + 120
    while True:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        begun = wire.call(request, 4)
        if begun.error_code == 0:
            return transactional_id, begun.producer_id, begun.producer_epoch
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.nodes
def test_offsets_of_an_open_transaction(
    wire: Wire, group: GroupWire, topic: Topic, transaction: tuple[str, int, int]
) -> None:
    transactional_id, producer_id, epoch = transaction
    group.commit(topic, 3)
    member_id, generation = group.joined()
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group.group_id
    )
    assert wire.call(request, 3).error_code == 0
    for who, code in [
        (("", -1), "NONE"),
        ((member_id, generation), "NONE"),
        ((member_id, generation + 1), "ILLEGAL_GENERATION"),
        (("x", generation), UNKNOWN_MEMBER),
        (("", generation), UNKNOWN_MEMBER),
        ((member_id, -1), "ILLEGAL_GENERATION"),
    ]:
        assert group.commit_in_transaction(topic, *transaction, member_id=who[0], generation_id=who[1]) == code, who
    assert group.commit_in_transaction(NOTHING, *transaction) == UNKNOWN_PARTITION
    stale = (transactional_id, producer_id, epoch + 1)
    assert group.commit_in_transaction(topic, *stale) == "INVALID_PRODUCER_EPOCH"

    before = ("NONE", [(topic.name, 0, 3, -1, "", "NONE")])
    unstable = ("NONE", [(topic.name, 0, -1, -1, "", "UNSTABLE_OFFSET_COMMIT")])
    assert group.fetch(topic) == before
    for version in (7, 8, 9):
        assert group.fetch(topic, version=version, require_stable=True) == unstable
    assert group.fetch(require_stable=True) == unstable
    assert group.fetch(topic, partitions=[1], require_stable=True)[1][0][5] == "NONE"

    end = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    assert wire.call(end, 3).error_code == 0
    deadline = time.monotonic() + 120
    while (found := group.fetch(topic, require_stable=True)) == unstable:
        assert time.monotonic() < deadline
    assert found == ("NONE", [(topic.name, 0, 7, -1, "", "NONE")])


def stored_versions(wire: Wire, group_id: str) -> list[int]:
    """The versions in which a group's offsets lie in `__consumer_offsets`."""
    return [version for partition in range(4) for version in _stored_in(wire, group_id, partition)]


def _stored_in(wire: Wire, group_id: str, partition: int) -> list[int]:
    """Those in one partition. One fetch need not reach beyond the end of a segment: read on until nothing comes."""
    found: list[int] = []
    earliest = ListOffsetsPartition(partition_index=partition, timestamp=-2)
    topic = ListOffsetsTopic(name="__consumer_offsets", partitions=[earliest])
    offset = wire.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5).topics[0].partitions[0].offset
    while True:
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
        topics = [FetchTopic(topic="__consumer_offsets", partitions=[asked])]
        request = FetchRequest(max_wait_ms=100, max_bytes=1 << 24, session_epoch=-1, topics=topics)
        records = memoryview(wire.call(request, 11).responses[0].partitions[0].records or b"")
        if not records:
            return found
        for start, header in iter_batches(records):
            offset = header.next_offset
            for record in iter_records(records, start, header):
                key, value = record.key or b"", record.value or b""
                if not header.is_control and key[:2] == b"\0\1" and key[4:].startswith(group_id.encode()):
                    found.append(value[1])


@pytest.mark.nodes
def test_versions_in_which_offsets_are_stored(
    wire: Wire, group: GroupWire, topic: Topic, transaction: tuple[str, int, int]
) -> None:
    transactional_id, producer_id, epoch = transaction
    for version in range(2, 11):
        assert group.commit(topic, version=version) == "NONE"
    assert group.commit(topic, version=2, retention_time_ms=100_000) == "NONE"
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch, group_id=group.group_id
    )
    assert wire.call(request, 3).error_code == 0
    assert group.commit_in_transaction(topic, *transaction) == "NONE"
    assert stored_versions(wire, group.group_id) == [4] * 9 + [1, 4]


# Administration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(7))
def test_describing_a_group_that_does_not_exist(group: GroupWire, version: int) -> None:
    described = group.describe(version=version, operations=version >= 3)
    if version >= 6:
        assert name(described.error_code) == "GROUP_ID_NOT_FOUND"
        assert described.error_message == f"Group {group.group_id} not found."
        operations = NOT_ASKED
    else:
        assert described.error_code == 0
        operations = ALL_OPERATIONS if version >= 3 else NOT_ASKED
    assert (described.group_state, described.protocol_type, described.members) == ("Dead", "", [])
    assert described.authorized_operations == operations


def test_deleting_groups(group: GroupWire) -> None:
    for version in range(3):
        assert group.delete(version=version) == ["GROUP_ID_NOT_FOUND"]
    # One request goes to one coordinator: that of all groups in the same partition.
    partition = coordinator_partition(group.group_id, OFFSETS_PARTITIONS)
    names = (f"other-{number}" for number in itertools.count())
    other = next(name for name in names if coordinator_partition(name, OFFSETS_PARTITIONS) == partition)
    assert group.delete(group.group_id, other, group.group_id) == ["GROUP_ID_NOT_FOUND"] * 2


def test_list_filters(wire: Wire, group: GroupWire, topic: Topic) -> None:
    member = group.start(topic, "m")
    assert member.error_code == 0

    def listed(states: list[str], types: list[str], version: int = 5) -> list[tuple[str, str, str]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        return [
            (each.protocol_type, each.group_state, each.group_type)
            for each in wire.call(request, version).groups
            if each.group_id == group.group_id
        ]

    for states in ([], ["STABLE"], ["stable", "bogus"]):
        for types in ([], ["Consumer"], ["consumer", "classic"]):
            assert listed(states, types) == [("consumer", "Stable", "consumer")]
    assert listed(["bogus"], []) == listed([], ["bogus"]) == listed([], ["classic"]) == listed(["Empty"], []) == []
    assert listed([], [], 0) == [("consumer", "", "")]
    assert listed([], [], 4) == [("consumer", "Stable", "")]


# The consumer protocol ------------------------------------------------------------------------------------------------


def refusal(beat: Any) -> str:
    assert (beat.member_id, beat.member_epoch, beat.heartbeat_interval_ms, beat.assignment) == (None, 0, 0, None)
    if beat.error_code:
        assert beat.error_message
    return name(beat.error_code)


def test_first_heartbeats(new_group: Callable[..., GroupWire], topic: Topic) -> None:
    incomplete: list[dict[str, Any]] = [
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"topic_partitions": [TopicPartitions(topic_id=topic.topic_id, partitions=[0])]},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"instance_id": " "},
        {"rack_id": ""},
        {"member_id": ""},
    ]
    for options in incomplete:
        assert refusal(new_group().start(topic, **options)) == "INVALID_REQUEST", options
    assert refusal(new_group("").start(topic)) == refusal(new_group(" ").start(topic)) == "INVALID_REQUEST"
    assert refusal(new_group().start(topic, server_assignor="bogus")) == "UNSUPPORTED_ASSIGNOR"
    invalid = new_group().start(topic, subscribed_topic_regex="a(")
    assert refusal(invalid) == "INVALID_REGULAR_EXPRESSION"
    assert invalid.error_message.startswith("SubscribedTopicRegex `a(` is not a valid regular expression: missing ")
    complete: list[dict[str, Any]] = [
        {"subscribed_topic_names": []},
        {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
        {"subscribed_topic_names": ["no-such-topic"]},
        {"subscribed_topic_names": ["a/b"]},
        {"rebalance_timeout_ms": 0},
        {"server_assignor": "range"},
    ]
    for options in complete:
        assert name(new_group().start(topic, **options).error_code) == "NONE", options
    given = new_group().start(topic, "", version=0)
    assert (given.error_code, bool(given.member_id)) == (0, True)


def test_heartbeats_to_a_group_that_does_not_exist(group: GroupWire) -> None:
    for member_id, epoch, instance, code in [
        ("m", 1, None, "GROUP_ID_NOT_FOUND"),
        ("m", -1, None, "GROUP_ID_NOT_FOUND"),
        ("m", -2, "i", "GROUP_ID_NOT_FOUND"),
        ("m", -2, None, "INVALID_REQUEST"),
        ("m", -3, None, "INVALID_REQUEST"),
        ("", 1, None, "INVALID_REQUEST"),
    ]:
        assert refusal(group.beat(member_id, epoch, instance_id=instance)) == code, (member_id, epoch, instance)


def test_a_member_of_the_consumer_protocol(group: GroupWire, topic: Topic) -> None:
    joined = group.start(topic, "m")
    epoch = joined.member_epoch
    assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (0, "m", 500)
    everything = [TopicPartitions(topic_id=topic.topic_id, partitions=[0, 1])]
    assert joined.assignment.topic_partitions[0].partitions == [0, 1]
    beats: list[tuple[dict[str, Any], bool]] = [
        ({}, False),
        ({"topic_partitions": everything}, False),
        ({"subscribed_topic_names": [topic.name]}, False),
        (
            {
                "rebalance_timeout_ms": 10_000,
                "subscribed_topic_names": [topic.name],
                "topic_partitions": everything,
            },
            True,
        ),
    ]
    for options, assigned in beats:
        beat = group.beat("m", epoch, **options)
        assert (beat.error_code, beat.member_epoch, beat.assignment is not None) == (0, epoch, assigned), options
    assert refusal(group.beat("m", epoch + 1)) == "FENCED_MEMBER_EPOCH"
    assert refusal(group.beat("x", epoch)) == UNKNOWN_MEMBER
    assert refusal(group.beat("m", epoch, instance_id="i")) == UNKNOWN_MEMBER
    assert refusal(group.beat("m", -1, instance_id="i")) == UNKNOWN_MEMBER

    for version in (0, 1):
        described = group.describe_consumer_group(version=version)
        assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "uniform")
        assert (described.group_epoch, described.assignment_epoch) == (epoch, epoch)
        (member,) = described.members
        assert (member.member_id, member.member_epoch, member.instance_id, member.rack_id) == ("m", epoch, None, None)
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([topic.name], "")
        for assignment in (member.assignment, member.target_assignment):
            assert [(each.topic_name, each.partitions) for each in assignment.topic_partitions] == [
                (topic.name, [0, 1])
            ]
        assert member.member_type == (1 if version else -1)

    assert group.delete() == ["NON_EMPTY_GROUP"]
    assert group.delete_offset(topic) == ("NONE", ["GROUP_SUBSCRIBED_TO_TOPIC"])
    classic = group.describe()
    assert (name(classic.error_code), classic.group_state) == ("GROUP_ID_NOT_FOUND", "Dead")
    assert classic.error_message == f"Group {group.group_id} is not a classic group."
    assert group.heartbeat("m", epoch) == group.sync("m", epoch)[0] == UNKNOWN_MEMBER
    assert name(group.join(protocol_type="connect").error_code) == "INCONSISTENT_GROUP_PROTOCOL"

    assert group.beat("m", -1).member_epoch == -1
    assert refusal(group.beat("m", -1)) == UNKNOWN_MEMBER
    assert group.describe_consumer_group().group_state == "Empty"


@pytest.mark.nodes
@pytest.mark.parametrize("version", range(2, 11))
def test_commits_of_the_consumer_protocol(group: GroupWire, topic: Topic, version: int) -> None:
    epoch = group.start(topic, "m").member_epoch
    old = version < 9
    for who, code in [
        (("m", epoch), "UNSUPPORTED_VERSION" if old else "NONE"),
        (("m", epoch - 1), "UNSUPPORTED_VERSION" if old else "STALE_MEMBER_EPOCH"),
        (("m", epoch + 1), "UNSUPPORTED_VERSION" if old else "STALE_MEMBER_EPOCH"),
        (("m", -1), "UNSUPPORTED_VERSION" if old else "STALE_MEMBER_EPOCH"),
        (("x", epoch), UNKNOWN_MEMBER),
        (("", -1), UNKNOWN_MEMBER),
    ]:
        assert group.commit(topic, version=version, member_id=who[0], generation_id=who[1]) == code, who
    group.beat("m", -1)
    assert group.commit(topic, version=version) == "NONE"
    assert group.commit(topic, version=version, generation_id=1) == UNKNOWN_MEMBER
    assert group.commit(topic, version=version, member_id="m", generation_id=epoch) == UNKNOWN_MEMBER


def test_commits_in_a_transaction_of_the_consumer_protocol(
    wire: Wire, group: GroupWire, topic: Topic, transaction: tuple[str, int, int]
) -> None:
    epoch = group.start(topic, "m").member_epoch
    transactional_id, producer_id, producer_epoch = transaction
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        group_id=group.group_id,
    )
    assert wire.call(request, 3).error_code == 0
    for who, code in [
        (("m", epoch), "NONE"),
        (("", -1), "NONE"),
        (("m", epoch - 1), "ILLEGAL_GENERATION"),
        (("m", epoch + 1), "ILLEGAL_GENERATION"),
        (("x", epoch), UNKNOWN_MEMBER),
    ]:
        assert group.commit_in_transaction(topic, *transaction, member_id=who[0], generation_id=who[1]) == code, who


def test_fetching_offsets_of_the_consumer_protocol(group: GroupWire, topic: Topic) -> None:
    epoch = group.start(topic, "m").member_epoch
    for member_id, member_epoch, code in [
        ("m", epoch, "NONE"),
        ("m", epoch - 1, "STALE_MEMBER_EPOCH"),
        ("m", epoch + 1, "STALE_MEMBER_EPOCH"),
        ("m", -1, "STALE_MEMBER_EPOCH"),
        ("x", epoch, UNKNOWN_MEMBER),
        ("", epoch, UNKNOWN_MEMBER),
        (None, -1, "NONE"),
    ]:
        assert group.fetch(topic, member_id=member_id, member_epoch=member_epoch)[0] == code, (member_id, member_epoch)


def test_a_static_member_of_the_consumer_protocol(group: GroupWire, topic: Topic) -> None:
    epoch = group.start(topic, "m", instance_id="i").member_epoch
    assert refusal(group.start(topic, "n", instance_id="i")) == "UNRELEASED_INSTANCE_ID"
    assert refusal(group.beat("n", epoch, instance_id="i")) == "FENCED_INSTANCE_ID"
    assert refusal(group.beat("m", epoch, instance_id="j")) == UNKNOWN_MEMBER
    assert group.beat("m", epoch).member_epoch == epoch
    assert refusal(group.beat("n", -2, instance_id="i")) == "FENCED_INSTANCE_ID"
    assert refusal(group.beat("m", -2, instance_id="j")) == UNKNOWN_MEMBER
    assert group.beat("m", -2, instance_id="i").member_epoch == -2
    away = group.describe_consumer_group()
    assert (away.group_state, [member.member_epoch for member in away.members]) == ("Reconciling", [-2])
    assert refusal(group.beat("m", epoch, instance_id="i")) == "FENCED_MEMBER_EPOCH"
    back = group.start(topic, "n", instance_id="i")
    assert (back.member_epoch, back.assignment.topic_partitions[0].partitions) == (epoch, [0, 1])
    assert refusal(group.beat("m", epoch, instance_id="i")) == "FENCED_INSTANCE_ID"
    assert refusal(group.beat("m", epoch)) == UNKNOWN_MEMBER
    assert group.beat("n", -1, instance_id="i").member_epoch == -1


def test_an_administrator_removes_members_of_the_consumer_protocol(group: GroupWire, topic: Topic) -> None:
    group.start(topic, "m", instance_id="i")
    group.start(topic, "n")
    assert group.leave("x") == UNKNOWN_MEMBER
    assert group.leave("n") == "NONE"
    assert group.leave_all(("n", None), ("n", "i"), ("m", "j"), ("", "i")) == (
        "NONE",
        [("n", None, UNKNOWN_MEMBER), ("n", "i", "FENCED_INSTANCE_ID"), ("m", "j", UNKNOWN_MEMBER), ("", "i", "NONE")],
    )
    assert group.describe_consumer_group().group_state == "Empty"


def test_describing_groups_that_are_none_of_the_consumer_protocol(new_group: Callable[..., GroupWire]) -> None:
    group = new_group()
    absent = group.describe_consumer_group()
    assert (name(absent.error_code), absent.error_message) == (
        "GROUP_ID_NOT_FOUND",
        f"Group {group.group_id} not found.",
    )
    assert name(new_group("").describe_consumer_group().error_code) == "INVALID_GROUP_ID"
    group.joined()
    classic = group.describe_consumer_group()
    assert (name(classic.error_code), classic.error_message) == (
        "GROUP_ID_NOT_FOUND",
        f"Group {group.group_id} is not a consumer group.",
    )
