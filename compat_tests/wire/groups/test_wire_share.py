"""The share group APIs byte by byte: cases that no client library lets one send.

What is expected here is what Apache Kafka 4.3.1 answers (`--broker=both`).
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import name
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from ottla.kproto.messages.share.share_fetch import AcknowledgementBatch as FetchedBatch
from ottla.kproto.messages.share.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from ottla.kproto.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.records import Record, build_batch

NEW, CLOSE = 0, -1
ACCEPT, RELEASE, REJECT = 1, 2, 3


GROUP_RESOURCE = 32


class Member(NamedTuple):
    """A member of a group on a connection of its own."""

    wire: Wire
    group: str
    member_id: str

    def beat(self, epoch: int, topics: Sequence[str] | None = None, member_id: str | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id if member_id is None else member_id,
            member_epoch=epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        return self.wire.call(request, 1)

    def join(self, *topics: str) -> int:
        """Join, and wait until partitions are assigned; the epoch."""
        answer = self.beat(0, topics)
        deadline = time.monotonic() + 120
        while True:
            assert name(answer.error_code) == "NONE", answer.error_message
            epoch = int(answer.member_epoch)
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return epoch
            assert time.monotonic() < deadline
            time.sleep(0.1)
            answer = self.beat(epoch)

    def fetch(
        self, session_epoch: int, topic_id: uuid.UUID | None, *acknowledged: tuple[int, int, int], **fields: Any
    ) -> Any:
        batches = [
            FetchedBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acknowledged
        ]
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            **fields,
        }
        settings.setdefault(
            "topics", [] if topic_id is None else [FetchTopic(topic_id=topic_id, partitions=[partition])]
        )
        return self.wire.call(ShareFetchRequest(share_session_epoch=session_epoch, **settings), 2)

    def acquire(self, session_epoch: int, topic_id: uuid.UUID, **fields: Any) -> tuple[int, list[tuple[int, int, int]]]:
        """Fetch until something is acquired; the next epoch of the session and what was acquired."""
        deadline = time.monotonic() + 120
        while True:
            answer = self.fetch(session_epoch, topic_id, max_wait_ms=500, **fields)
            assert name(answer.error_code) == "NONE", answer.error_message
            session_epoch += 1
            acquired = [
                (each.first_offset, each.last_offset, each.delivery_count)
                for topic in answer.responses
                for partition in topic.partitions
                for each in partition.acquired_records
            ]
            if acquired:
                return session_epoch, acquired
            assert time.monotonic() < deadline

    def acknowledge(
        self, session_epoch: int, topic_id: uuid.UUID, *batches: tuple[int, int, Sequence[int]], index: int = 0
    ) -> list[str]:
        """The error of the request, then those of its partitions."""
        acknowledged = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(kinds))
            for first, last, kinds in batches
        ]
        partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=acknowledged)
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=session_epoch,
            topics=[AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
        )
        answer = self.wire.call(request, 2)
        return [name(answer.error_code)] + [
            name(each.error_code) for topic in answer.responses for each in topic.partitions
        ]


class Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def new_topic(wire: Wire) -> Callable[[], Topic]:
    return partial(make_topic, wire)


@pytest.fixture
def topic(wire: Wire) -> Topic:
    return make_topic(wire)


def make_topic(wire: Wire) -> Topic:
    """A topic of one partition."""
    made = f"share-{uuid.uuid4().hex[:8]}"
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=made, num_partitions=1, replication_factor=1)], timeout_ms=5000
    )
    return Topic(made, wire.call(request, 7).topics[0].topic_id)


@pytest.fixture
def group(wire: Wire) -> str:
    """The id of a group that begins at the first record; its coordinator answers."""
    group_id = f"wire-{uuid.uuid4().hex[:8]}"
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=[config])
    wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    await_coordinator(wire, group_id)
    return group_id


def await_coordinator(wire: Wire, group_id: str) -> None:
    """Until it has loaded what it has of the group, or knows that there is none."""
    deadline = time.monotonic() + 60
    while True:
        found = wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 6)
        answer = describe(wire, group_id)
        if not found.coordinators[0].error_code and name(answer.error_code) in ("NONE", "GROUP_ID_NOT_FOUND"):
            return
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.fixture
def members(broker: BrokerProcess, group: str) -> Iterator[list[Member]]:
    made = [Member(Wire(broker.bootstrap), group, member_id()) for _ in range(2)]
    yield made
    for member in made:
        member.wire.close()


def member_id() -> str:
    """An id as ShareFetch wants it: a UUID in base64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "x")


def describe(wire: Wire, group: str) -> Any:
    return wire.call(ShareGroupDescribeRequest(group_ids=[group]), 1).groups[0]


def produce(wire: Wire, topic: Topic, count: int, *, index: int = 0) -> None:
    batch = build_batch([Record(value=b"v", timestamp_ms=int(time.time() * 1000))] * count)
    data = TopicProduceData(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=[PartitionProduceData(index=index, records=batch)],
    )
    deadline = time.monotonic() + 60
    while True:
        answer = wire.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 13)
        code = name(answer.responses[0].partition_responses[0].error_code)
        # After a start the broker may not lead yet.
        if code != "NOT_LEADER_OR_FOLLOWER" or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert code == "NONE"


def partitions_of(answer: Any) -> list[tuple[str, str]]:
    """The errors of each partition of a ShareFetch: of the fetch, and of what was acknowledged."""
    return [
        (name(each.error_code), name(each.acknowledge_error_code))
        for topic in answer.responses
        for each in topic.partitions
    ]


# ShareGroupHeartbeat and ShareGroupDescribe ---------------------------------------------------------------------------


def test_heartbeats_that_are_refused(members: list[Member], topic: Topic) -> None:
    member = members[0]
    refused = {
        "no member": member.beat(0, [topic.name], member_id=""),
        "a member of 37 characters": member.beat(0, [topic.name], member_id="m" * 37),
        "no topics": member.beat(0),
        "an empty subscription": member.beat(0, []),
        "an epoch that cannot be": member.beat(-2, [topic.name]),
        "leaving what is not there": member.beat(-1),
        "a group that is not there": member.beat(1),
        "no group": member._replace(group="").beat(0, [topic.name]),
    }
    joined = member.beat(0, [topic.name])
    refused["a later epoch than there is"] = member.beat(joined.member_epoch + 10)
    refused["a member that is not there"] = members[1].beat(1)
    assert {case: name(answer.error_code) for case, answer in refused.items()} == {
        "no member": "INVALID_REQUEST",
        "a member of 37 characters": "INVALID_REQUEST",
        "no topics": "INVALID_REQUEST",
        "an empty subscription": "INVALID_REQUEST",
        "an epoch that cannot be": "INVALID_REQUEST",
        "leaving what is not there": "GROUP_ID_NOT_FOUND",
        "a group that is not there": "GROUP_ID_NOT_FOUND",
        "no group": "INVALID_REQUEST",
        "a later epoch than there is": "FENCED_MEMBER_EPOCH",
        "a member that is not there": "UNKNOWN_MEMBER_ID",
    }
    without_a_sentence = {case for case, answer in refused.items() if answer.error_message is None}
    assert without_a_sentence == {"no member", "a member of 37 characters"}


def test_members_come_and_go(wire: Wire, members: list[Member], topic: Topic, group: str) -> None:
    first, second = members
    epoch = first.join(topic.name)
    second.join(topic.name)
    found = describe(wire, group)
    assert (found.group_state, found.assignor_name, len(found.members)) == ("Stable", "simple", 2)
    assert found.group_epoch == found.assignment_epoch > epoch
    assert [each.topic_partitions[0].partitions for each in (member.assignment for member in found.members)] == [
        [0]
    ] * 2
    refused = wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0]
    assert name(refused.error_code) == "NON_EMPTY_GROUP"
    left = first.beat(-1)
    assert (name(left.error_code), left.member_epoch, left.assignment) == ("NONE", -1, None)
    assert name(second.beat(-1).error_code) == "NONE"
    found = describe(wire, group)
    assert (found.group_state, found.members) == ("Empty", [])
    assert name(wire.call(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code) == "NONE"
    found = describe(wire, group)
    assert (name(found.error_code), found.group_state) == ("GROUP_ID_NOT_FOUND", "")


# ShareFetch and ShareAcknowledge --------------------------------------------------------------------------------------


def test_the_first_fetch_is_answered_when_one_partition_is_loaded(
    wire: Wire, members: list[Member], group: str
) -> None:
    made = f"share-{uuid.uuid4().hex[:8]}"
    creation = CreatableTopic(name=made, num_partitions=2, replication_factor=1)
    topic = Topic(made, wire.call(CreateTopicsRequest(topics=[creation], timeout_ms=5000), 7).topics[0].topic_id)
    member = members[0]
    member.join(topic.name)  # by then the partitions are led, too
    for index in range(2):
        produce(wire, topic, 5, index=index)

    def fetch(session_epoch: int, *indexes: int) -> set[int]:
        partitions = [FetchPartition(partition_index=index) for index in indexes]
        topics = [FetchTopic(topic_id=topic.topic_id, partitions=partitions)]
        answer = member.fetch(session_epoch, None, max_wait_ms=5000, topics=topics)
        assert name(answer.error_code) == "NONE"
        return {
            each.partition_index for found in answer.responses for each in found.partitions if each.acquired_records
        }

    first = fetch(0, 0, 1)
    assert len(first) == 1
    assert fetch(1) == {0, 1} - first


def test_sessions(wire: Wire, members: list[Member], topic: Topic) -> None:
    member = members[0]
    member.join(topic.name)
    produce(wire, topic, 3)
    refused = {
        "no session": member.fetch(5, topic.topic_id),
        "no member": member.fetch(0, topic.topic_id, member_id=""),
        "no group": member.fetch(0, topic.topic_id, group_id=None),
        "acknowledging at the beginning": member.fetch(NEW, topic.topic_id, (0, 0, ACCEPT)),
        "ending no session": member.fetch(CLOSE, None),
    }
    assert {case: name(answer.error_code) for case, answer in refused.items()} == {
        "no session": "SHARE_SESSION_NOT_FOUND",
        "no member": "INVALID_REQUEST",
        "no group": "INVALID_REQUEST",
        "acknowledging at the beginning": "INVALID_REQUEST",
        "ending no session": "SHARE_SESSION_NOT_FOUND",
    }
    assert member.acknowledge(0, topic.topic_id, (0, 0, [ACCEPT])) == ["INVALID_SHARE_SESSION_EPOCH"]
    epoch, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(0, 2, 1)]
    assert name(member.fetch(epoch + 3, topic.topic_id).error_code) == "INVALID_SHARE_SESSION_EPOCH"
    assert member.acknowledge(epoch, topic.topic_id, (0, 0, [ACCEPT])) == ["NONE", "NONE"]
    closed = member.fetch(CLOSE, topic.topic_id, (1, 1, ACCEPT))
    assert (name(closed.error_code), partitions_of(closed)) == ("NONE", [("NONE", "NONE")])
    epoch, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(2, 2, 2)]


def test_acknowledging_what_only_a_session_before_has_fetched(
    broker: BrokerProcess, wire: Wire, members: list[Member], topic: Topic, new_topic: Callable[[], Topic]
) -> None:
    """On purpose: Apache Kafka keeps the share partition until the connection of the session ends."""
    member, other = members[0], new_topic()
    member.join(topic.name, other.name)
    produce(wire, topic, 3)
    _, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(0, 2, 1)]
    assert name(member.fetch(CLOSE, None).error_code) == "NONE"
    assert name(member.fetch(NEW, other.topic_id).error_code) == "NONE"
    refusal = "INVALID_RECORD_STATE" if broker.name == "kafka" else "UNKNOWN_TOPIC_OR_PARTITION"
    assert member.acknowledge(1, topic.topic_id, (0, 0, [ACCEPT])) == ["NONE", refusal]
    _, acquired = member.acquire(2, topic.topic_id)
    assert acquired == [(0, 2, 2)]


def test_a_mode_of_acquiring_that_there_is_not(
    broker: BrokerProcess, wire: Wire, members: list[Member], topic: Topic
) -> None:
    """On purpose: Apache Kafka does not say what is wrong."""
    members[0].join(topic.name)
    produce(wire, topic, 3)
    for mode in (-1, 2):
        answer = members[0].fetch(NEW, topic.topic_id, share_acquire_mode=mode)
        assert name(answer.error_code) == ("UNKNOWN_SERVER_ERROR" if broker.name == "kafka" else "INVALID_REQUEST")
        assert answer.responses == []


def test_acknowledgements(wire: Wire, members: list[Member], topic: Topic) -> None:
    member, other = members
    member.join(topic.name)
    other.join(topic.name)
    produce(wire, topic, 10)
    epoch, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(0, 9, 1)]
    cases: dict[str, Sequence[tuple[int, int, Sequence[int]]]] = {
        "a kind that is not there": [(0, 0, [9])],
        "no kind": [(0, 0, [])],
        "backwards": [(3, 2, [ACCEPT])],
        "as many kinds as do not fit": [(0, 3, [ACCEPT, ACCEPT])],
        "one range over another": [(0, 3, [ACCEPT]), (2, 4, [ACCEPT])],
        "past the end": [(8, 20, [ACCEPT])],
        "far past the end": [(100, 101, [ACCEPT])],
        "one": [(0, 0, [ACCEPT])],
        "it once more": [(0, 0, [ACCEPT])],
        "each its own": [(1, 4, [ACCEPT, RELEASE, REJECT, ACCEPT])],
        "a released one": [(2, 2, [ACCEPT])],
    }
    seen: dict[str, list[str]] = {}
    for case, batches in cases.items():
        seen[case] = member.acknowledge(epoch, topic.topic_id, *batches)
        if seen[case][0] == "NONE":
            epoch += 1
    assert seen == {
        "a kind that is not there": ["NONE", "INVALID_REQUEST"],
        "no kind": ["NONE", "INVALID_REQUEST"],
        "backwards": ["NONE", "INVALID_REQUEST"],
        "as many kinds as do not fit": ["NONE", "INVALID_REQUEST"],
        "one range over another": ["NONE", "INVALID_REQUEST"],
        "past the end": ["NONE", "INVALID_REQUEST"],
        "far past the end": ["NONE", "INVALID_REQUEST"],
        "one": ["NONE", "NONE"],
        "it once more": ["NONE", "NONE"],
        "each its own": ["NONE", "NONE"],
        "a released one": ["NONE", "INVALID_RECORD_STATE"],
    }
    theirs, acquired = other.acquire(NEW, topic.topic_id)
    assert acquired == [(2, 2, 2)]
    assert other.acknowledge(theirs, topic.topic_id, (5, 5, [ACCEPT])) == ["NONE", "INVALID_RECORD_STATE"]


def test_a_strict_limit_of_records(wire: Wire, members: list[Member], topic: Topic) -> None:
    member = members[0]
    member.join(topic.name)
    produce(wire, topic, 10)
    epoch, acquired = member.acquire(NEW, topic.topic_id, max_records=4, share_acquire_mode=1)
    assert acquired == [(0, 3, 1)]
    epoch, acquired = member.acquire(epoch, topic.topic_id, max_records=4, share_acquire_mode=0)
    assert acquired == [(4, 9, 1)]


def test_with_one_acknowledgement_all_named_partitions_are_answered(
    wire: Wire, members: list[Member], topic: Topic, new_topic: Callable[[], Topic]
) -> None:
    """The others are acknowledged with nothing. Without any, only those are answered of which there is news."""
    member, other = members[0], new_topic()
    member.join(topic.name, other.name)
    produce(wire, topic, 1)
    session_epoch, acquired = member.acquire(NEW, topic.topic_id)
    assert acquired == [(0, 0, 1)]

    def answered(*named: tuple[Topic, list[FetchedBatch]]) -> list[tuple[str, int]]:
        nonlocal session_epoch
        topics = [
            FetchTopic(
                topic_id=each.topic_id, partitions=[FetchPartition(partition_index=0, acknowledgement_batches=batches)]
            )
            for each, batches in named
        ]
        response = member.fetch(session_epoch, None, topics=topics)
        session_epoch += 1
        names = {topic.topic_id: "topic", other.topic_id: "other"}
        return sorted((names[each.topic_id], each.partitions[0].acknowledge_error_code) for each in response.responses)

    accepted = [FetchedBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
    deadline = time.monotonic() + 60
    while answered((topic, []), (other, [])) != [("other", 0)]:  # until its delivery state is loaded
        assert time.monotonic() < deadline
    assert answered((topic, []), (other, [])) == []
    assert answered((topic, accepted), (other, [])) == [("other", 0), ("topic", 0)]
    assert answered((topic, accepted)) == [("topic", 0)]


# Offsets --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_all_offsets_of_a_group_that_is_not_there(wire: Wire, group: str, version: int) -> None:
    """They are none, which is no error. Once `group` has a coordinator, the others have one soon."""
    deadline = time.monotonic() + 60
    for group_id in (f"none-{uuid.uuid4()}", "", " "):
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
        (answer,) = wire.call(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
        while name(answer.error_code) in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
            (answer,) = wire.call(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
        assert (answer.group_id, name(answer.error_code), answer.error_message) == (group_id, "NONE", None)
        assert answer.topics == []


def test_offsets_of_topics_and_partitions_that_are_named_twice(
    wire: Wire, members: list[Member], topic: Topic, group: str
) -> None:
    """A partition is altered as often as it is named; what is deleted is told once, and what is not each time."""
    members[0].join(topic.name)
    members[0].beat(-1)

    def alter(*topics: tuple[str, list[tuple[int, int]]]) -> list[tuple[bool, list[tuple[int, str]]]]:
        asked = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=each,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in starts
                ],
            )
            for each, starts in topics
        ]
        answer = wire.call(AlterShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
        return [
            (
                found.topic_id == topic.topic_id,
                sorted((each.partition_index, name(each.error_code)) for each in found.partitions),
            )
            for found in answer.responses
        ]

    def start() -> list[int]:
        asked = DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[0])
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=[asked])]
        (answer,) = wire.call(DescribeShareGroupOffsetsRequest(groups=groups), 1).groups
        return [each.start_offset for found in answer.topics for each in found.partitions]

    def delete(*names: str) -> list[tuple[str, bool, str]]:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in names]
        answer = wire.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
        return sorted(
            (each.topic_name, each.topic_id == topic.topic_id, name(each.error_code)) for each in answer.responses
        )

    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    assert alter((topic.name, [(0, 2)]), (topic.name, [(0, 3), (7, 1), (7, 1)])) == [
        (True, [(0, "NONE"), (0, "NONE"), (7, unknown), (7, unknown)])
    ]
    assert start() == [3]
    assert alter(("no-such-topic", [(0, 2), (0, 2)])) == [(False, [(0, unknown), (0, unknown)])]
    gone = ("no-such-topic", False, unknown)
    assert delete("no-such-topic", topic.name, topic.name, "no-such-topic") == sorted(
        [gone, gone, (topic.name, True, "NONE")]
    )
    assert delete(topic.name, topic.name) == [(topic.name, False, unknown)] * 2


def test_offsets_of_what_there_is_nothing_of(
    broker: BrokerProcess, wire: Wire, members: list[Member], topic: Topic, group: str
) -> None:
    """On purpose: Apache Kafka leaves out, or fails over, what Ottla answers topic by topic."""
    is_kafka = broker.name == "kafka"
    assert name(members[0].beat(0, ["no-such-topic"]).error_code) == "NONE"
    members[0].beat(-1)
    asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)]
    answer = wire.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=asked), 0)
    found = [(each.topic_name, name(each.error_code)) for each in answer.responses]
    assert name(answer.error_code) == "NONE"
    assert found == ([] if is_kafka else [(topic.name, "UNKNOWN_TOPIC_OR_PARTITION")])
    topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[])]
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)]
    (described,) = wire.call(DescribeShareGroupOffsetsRequest(groups=groups), 1).groups
    assert (name(described.error_code), described.topics) == ("UNKNOWN_SERVER_ERROR" if is_kafka else "NONE", [])


def test_offsets(wire: Wire, members: list[Member], topic: Topic, group: str) -> None:
    member = members[0]
    member.join(topic.name)
    produce(wire, topic, 10)
    epoch, _ = member.acquire(NEW, topic.topic_id)
    assert member.acknowledge(epoch, topic.topic_id, (0, 3, [ACCEPT])) == ["NONE", "NONE"]

    def offsets(*asked: tuple[str, int]) -> list[tuple[int, int, str]]:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=each, partitions=[partition]) for each, partition in asked
        ]
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics if asked else None)]
        )
        answer = wire.call(request, 1).groups[0]
        assert name(answer.error_code) == "NONE"
        return [
            (each.start_offset, each.lag, name(each.error_code)) for found in answer.topics for each in found.partitions
        ]

    def alter(name_of_topic: str, partition: int, offset: int) -> list[str]:
        asked = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=name_of_topic, partitions=[asked])]
        answer = wire.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
        return [name(answer.error_code)] + [
            name(each.error_code) for found in answer.responses for each in found.partitions
        ]

    def delete(name_of_topic: str) -> list[str]:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name_of_topic)]
        answer = wire.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
        return [name(answer.error_code)] + [name(found.error_code) for found in answer.responses]

    seen: dict[str, object] = {
        "offsets": offsets((topic.name, 0)),
        "all offsets": offsets(),
        "offsets of what is not there": offsets(("no-such-topic", 0)),
        "altered while there are members": alter(topic.name, 0, 1),
        "deleted while there are members": delete(topic.name),
    }
    member.beat(-1)
    seen |= {
        "altered": alter(topic.name, 0, 1),
        "then": offsets((topic.name, 0)),
        "altered of what is not there": alter("no-such-topic", 0, 1),
        "altered of another partition": alter(topic.name, 7, 1),
        "deleted of what is not there": delete("no-such-topic"),
        "deleted": delete(topic.name),
        "and then": offsets((topic.name, 0)),
        "deleted again": delete(topic.name),
    }
    assert seen == {
        "offsets": [(0, 6, "NONE")],
        "all offsets": [(0, 6, "NONE")],
        "offsets of what is not there": [(-1, -1, "NONE")],
        "altered while there are members": ["NON_EMPTY_GROUP"],
        "deleted while there are members": ["NON_EMPTY_GROUP"],
        "altered": ["NONE", "NONE"],
        "then": [(1, 9, "NONE")],
        "altered of what is not there": ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
        "altered of another partition": ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
        "deleted of what is not there": ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
        "deleted": ["NONE", "NONE"],
        "and then": [(-1, -1, "NONE")],
        "deleted again": ["NONE", "UNKNOWN_TOPIC_OR_PARTITION"],
    }
