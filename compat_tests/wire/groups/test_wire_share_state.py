"""The APIs by which brokers keep the state of share partitions, byte by byte: no client library has them.

What is expected here is what Apache Kafka 4.3.1 answers (`--broker=both`).
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import name
from compat_tests.wire.wire import Wire
from compat_tests.wire.wire_routes import share_key
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share import delete_share_group_state as deleting
from ottla.kproto.messages.share import initialize_share_group_state as beginning
from ottla.kproto.messages.share import read_share_group_state as reading
from ottla.kproto.messages.share import read_share_group_state_summary as summing
from ottla.kproto.messages.share import write_share_group_state as writing
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

SHARE = 2
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
NOT_YET = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")

Batch = tuple[int, int, int, int]


class SharePartition(NamedTuple):
    """One partition as a group shares it, and the requests about it. Error codes come back as names."""

    wire: Wire
    group: str
    topic_id: uuid.UUID
    number: int = 0

    def initialize(self, state_epoch: int, start_offset: int) -> str:
        partition = beginning.PartitionData(partition=self.number, state_epoch=state_epoch, start_offset=start_offset)
        return name(
            self._ask(
                beginning.InitializeStateData, partition, 0, beginning.InitializeShareGroupStateRequest
            ).error_code
        )

    def read(self, leader_epoch: int) -> tuple[str, int, int, list[Batch]]:
        partition = reading.PartitionData(partition=self.number, leader_epoch=leader_epoch)
        found = self._ask(reading.ReadStateData, partition, 0, reading.ReadShareGroupStateRequest)
        batches = [
            (it.first_offset, it.last_offset, it.delivery_state, it.delivery_count) for it in found.state_batches
        ]
        return name(found.error_code), found.state_epoch, found.start_offset, batches

    def write(
        self,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        *batches: Batch,
        complete: int = -1,
        version: int = 1,
    ) -> str:
        partition = writing.PartitionData(
            partition=self.number,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in batches
            ],
        )
        return name(
            self._ask(writing.WriteStateData, partition, version, writing.WriteShareGroupStateRequest).error_code
        )

    def summary(self, version: int = 1) -> tuple[str, int, int, int, int]:
        """The error, the epochs of state and leader, the start offset, and how many deliveries are complete."""
        partition = summing.PartitionData(partition=self.number, leader_epoch=0)
        found = self._ask(summing.ReadStateSummaryData, partition, version, summing.ReadShareGroupStateSummaryRequest)
        return (
            name(found.error_code),
            found.state_epoch,
            found.leader_epoch,
            found.start_offset,
            found.delivery_complete_count,
        )

    def delete(self) -> str:
        partition = deleting.PartitionData(partition=self.number)
        return name(self._ask(deleting.DeleteStateData, partition, 0, deleting.DeleteShareGroupStateRequest).error_code)

    def _ask(self, topic: type[Any], partition: Any, version: int, request: type[Any]) -> Any:
        """The coordinator's answer for the one partition; a coordinator that is still loading is asked again."""
        topics = [topic(topic_id=self.topic_id, partitions=[partition])]
        deadline = time.monotonic() + 120
        while True:
            answer = self.wire.call(request(group_id=self.group, topics=topics), version)
            ((found,),) = [each.partitions for each in answer.results]
            assert (found.partition, answer.results[0].topic_id) == (self.number, self.topic_id)
            if name(found.error_code) not in NOT_YET:
                return found
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def share(wire: Wire) -> SharePartition:
    """Of a topic of two partitions, which nobody has begun; its coordinator answers."""
    topic, group = f"state-{uuid.uuid4().hex[:8]}", f"wire-{uuid.uuid4().hex[:8]}"
    made = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=2, replication_factor=1)], timeout_ms=5000
    )
    topic_id = wire.call(made, 7).topics[0].topic_id
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[share_key(group, topic_id, 0)])
    deadline = time.monotonic() + 60
    while wire.call(request, 6).coordinators[0].error_code:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    share = SharePartition(wire, group, topic_id)
    while share.summary()[0] != "NONE":  # a coordinator hears of topics a moment later
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return share


def test_what_nobody_has_begun(share: SharePartition) -> None:
    assert share.summary() == ("NONE", 0, 0, -1, -1)
    assert share.read(0) == ("INVALID_REQUEST", 0, 0, [])
    assert share.write(0, 0, 5, (5, 6, ACKNOWLEDGED, 1)) == "INVALID_REQUEST"
    assert share.delete() == "NONE"


def test_a_partition_that_is_not_there(share: SharePartition) -> None:
    for other in (share._replace(number=2), share._replace(topic_id=uuid.uuid4())):
        assert other.initialize(-1, 0) == "INVALID_REQUEST"
        assert other.initialize(0, 0) == "UNKNOWN_TOPIC_OR_PARTITION"
        # Nobody has begun it either, and that is looked at before.
        assert other.read(0)[0] == other.write(0, 0, 0) == "INVALID_REQUEST"
        assert other.summary()[0] == "UNKNOWN_TOPIC_OR_PARTITION"
        assert other.delete() == "UNKNOWN_TOPIC_OR_PARTITION"
    negative = share._replace(number=-1)
    answers = [negative.initialize(0, 0), negative.read(0)[0], negative.write(0, 0, 0), negative.summary()[0]]
    assert {*answers, negative.delete()} == {"INVALID_REQUEST"}


@pytest.mark.parametrize(
    ("topic", "request_of"),
    [
        (beginning.InitializeStateData, beginning.InitializeShareGroupStateRequest),
        (reading.ReadStateData, reading.ReadShareGroupStateRequest),
        (summing.ReadStateSummaryData, summing.ReadShareGroupStateSummaryRequest),
        (writing.WriteStateData, writing.WriteShareGroupStateRequest),
        (deleting.DeleteStateData, deleting.DeleteShareGroupStateRequest),
    ],
)
def test_a_topic_without_partitions_is_left_out(share: SharePartition, topic: type[Any], request_of: type[Any]) -> None:
    topics = [topic(topic_id=share.topic_id, partitions=[])]
    assert share.wire.call(request_of(group_id=share.group, topics=topics), 0).results == []


def test_a_share_partitions_life(share: SharePartition) -> None:
    assert share.initialize(3, 10) == "NONE"
    assert share.summary() == ("NONE", 3, 0, 10, 0)
    assert share.read(5) == ("NONE", 3, 10, [])
    assert share.write(3, 5, 10, (10, 14, AVAILABLE, 1), (15, 19, ACKNOWLEDGED, 1), complete=5) == "NONE"
    assert share.read(5) == ("NONE", 3, 10, [(10, 14, AVAILABLE, 1), (15, 19, ACKNOWLEDGED, 1)])
    # The latest word on each record counts, and neighbours that are alike become one.
    assert share.write(3, 5, -1, (12, 13, AVAILABLE, 2), complete=5) == "NONE"
    assert share.write(3, 5, -1, (14, 14, ACKNOWLEDGED, 1), complete=6) == "NONE"
    # Who names no start says nothing of how many are complete.
    assert share.summary() == ("NONE", 3, 5, 10, 5)
    middle = [(10, 11, AVAILABLE, 1), (12, 13, AVAILABLE, 2), (14, 19, ACKNOWLEDGED, 1)]
    assert share.read(5) == ("NONE", 3, 10, middle)
    # What lies before the start offset is over.
    assert share.write(3, 5, 13, complete=6) == "NONE"
    assert share.read(5) == ("NONE", 3, 13, [(13, 13, AVAILABLE, 2), (14, 19, ACKNOWLEDGED, 1)])
    assert [share.summary(version) for version in (0, 1)] == [("NONE", 3, 5, 13, -1), ("NONE", 3, 5, 13, 6)]
    assert share.write(3, 5, 20, version=0) == "NONE"
    assert share.summary() == ("NONE", 3, 5, 20, -1)
    # The other partition is another's.
    assert share._replace(number=1).summary() == ("NONE", 0, 0, -1, -1)
    assert share.delete() == "NONE"
    assert share.delete() == "NONE"
    assert share.summary() == ("NONE", 0, 0, -1, -1)
    assert share.initialize(0, 4) == "NONE"
    assert share.read(0) == ("NONE", 0, 4, [])


def test_who_was_replaced_is_shut_out(share: SharePartition) -> None:
    assert share.initialize(3, 10) == "NONE"
    assert share.read(5)[0] == "NONE"
    # A later leader has read: the one before writes no more, and reads no more.
    assert share.write(3, 4, 10, (10, 10, ARCHIVED, 1)) == "FENCED_LEADER_EPOCH"
    assert share.read(4)[0] == "FENCED_LEADER_EPOCH"
    # What was begun anew shuts out who knows it from before; it is not begun with an earlier epoch.
    assert share.initialize(2, 0) == "FENCED_STATE_EPOCH"
    assert share.initialize(4, 0) == "NONE"
    assert share.write(3, 5, 10, (10, 10, ARCHIVED, 1)) == "FENCED_STATE_EPOCH"
    assert share.read(5) == ("NONE", 4, 0, [])


def test_an_epoch_below_zero_is_none(share: SharePartition) -> None:
    """Since 4.4: before, -1 was not looked at."""
    assert share.initialize(1, 10) == "NONE"
    assert share.read(-1)[0] == "INVALID_REQUEST"
    assert share.write(-1, 0, 10, (10, 10, ARCHIVED, 1)) == "INVALID_REQUEST"
    assert share.write(1, -1, 10, (10, 10, ARCHIVED, 1)) == "INVALID_REQUEST"
    assert share.initialize(-1, 10) == "INVALID_REQUEST"
    # The start never goes back, and of what is complete the greater number counts.
    assert share.write(1, 0, 15, complete=3) == "NONE"
    assert share.write(1, 0, 12, complete=2) == "NONE"
    assert share.summary()[3:] == (15, 3)


def of_one_coordinator(share: SharePartition) -> SharePartition:
    """The same for a group of which both partitions are coordinated by one node."""
    for number in itertools.count():
        group = f"{share.group}-{number}"
        keys = [share_key(group, share.topic_id, index) for index in (0, 1)]
        found = share.wire.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=keys), 6).coordinators
        if len({each.node_id for each in found}) == 1:
            return share._replace(group=group)
    raise AssertionError


def test_several_partitions_at_once(share: SharePartition) -> None:
    share = of_one_coordinator(share)
    partitions = [beginning.PartitionData(partition=index, state_epoch=1, start_offset=index) for index in (0, 1)]
    topics = [beginning.InitializeStateData(topic_id=share.topic_id, partitions=partitions)]
    request = beginning.InitializeShareGroupStateRequest(group_id=share.group, topics=topics)
    assert codes(share.wire.call(request, 0)) == ["NONE", "NONE"]
    assert [share._replace(number=index).summary()[3] for index in (0, 1)] == [0, 1]


def test_without_a_group_or_topics_nothing_is_answered(share: SharePartition) -> None:
    partition = reading.PartitionData(partition=0, leader_epoch=0)
    topics = [reading.ReadStateData(topic_id=share.topic_id, partitions=[partition])]
    for request in (
        reading.ReadShareGroupStateRequest(group_id=share.group, topics=[]),
        reading.ReadShareGroupStateRequest(group_id="", topics=topics),
        summing.ReadShareGroupStateSummaryRequest(group_id="", topics=topics_of(summing, share)),
        beginning.InitializeShareGroupStateRequest(group_id="", topics=topics_of(beginning, share)),
        writing.WriteShareGroupStateRequest(group_id="", topics=topics_of(writing, share)),
        deleting.DeleteShareGroupStateRequest(group_id="", topics=topics_of(deleting, share)),
    ):
        assert share.wire.call(request, 0).results == []


def topics_of(messages: Any, share: SharePartition) -> list[Any]:
    """The one partition, as an API's messages name it."""
    (kind,) = [value for name, value in vars(messages).items() if name.endswith(("StateData", "SummaryData"))]
    return [kind(topic_id=share.topic_id, partitions=[messages.PartitionData(partition=0)])]


def codes(answer: Any) -> Sequence[str]:
    return [name(each.error_code) for topic in answer.results for each in topic.partitions]
