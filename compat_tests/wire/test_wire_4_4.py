"""What Apache Kafka 4.4 added to APIs of 4.3, byte by byte (`--broker=both`)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.wire.groups.group_wire import SUBSCRIPTION, GroupWire, name, new_topic
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest

BY_ID = 6
UNKNOWN_ID = uuid.UUID(int=99)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    connection = Wire(broker.bootstrap)
    yield connection
    connection.close()


@pytest.fixture
def group(wire: Wire) -> GroupWire:
    made = GroupWire(wire, f"wire-{uuid.uuid4().hex[:8]}")
    made.find()
    return made


@pytest.fixture
def topic_id(wire: Wire, group: GroupWire) -> uuid.UUID:
    """The id of a topic of one partition that the group's coordinator knows."""
    made = CreatableTopic(name=f"wire-{uuid.uuid4().hex[:8]}", num_partitions=1, replication_factor=1)
    created = wire.call(CreateTopicsRequest(topics=[made], timeout_ms=5000), 7).topics[0]
    deadline = time.monotonic() + 120
    while (code := Transaction(group).commit([created.topic_id])[0][1]) != "NONE":
        assert time.monotonic() < deadline, code
        time.sleep(0.05)
    topic_id: uuid.UUID = created.topic_id
    return topic_id


def api_versions(wire: Wire, **fields: Any) -> Any:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0", **fields)
    return wire.call(request, 5)


def test_the_client_names_the_cluster_and_the_node(wire: Wire) -> None:
    cluster = wire.call(DescribeClusterRequest(), 1)
    node_id = cluster.brokers[0].broker_id
    own = api_versions(wire, cluster_id=cluster.cluster_id, node_id=node_id)
    assert (name(own.error_code), bool(own.api_keys)) == ("NONE", True)
    assert name(api_versions(wire).error_code) == "NONE"


@pytest.mark.parametrize(
    ("names_cluster", "node_id", "code"),
    [
        ("another", 0, "REBOOTSTRAP_REQUIRED"),
        ("own", 4711, "REBOOTSTRAP_REQUIRED"),
        ("", 0, "REBOOTSTRAP_REQUIRED"),
        ("own", -1, "INVALID_REQUEST"),
        (None, 0, "INVALID_REQUEST"),
        ("own", -2, "REBOOTSTRAP_REQUIRED"),
    ],
)
def test_the_client_takes_the_broker_for_another(
    wire: Wire, names_cluster: str | None, node_id: int, code: str
) -> None:
    cluster = wire.call(DescribeClusterRequest(), 1)
    cluster_id = cluster.cluster_id if names_cluster == "own" else names_cluster
    node_id = node_id or cluster.brokers[0].broker_id
    refused = api_versions(wire, cluster_id=cluster_id, node_id=node_id)
    assert (name(refused.error_code), refused.api_keys) == (code, [])
    assert name(api_versions(wire).error_code) == "NONE"  # the connection lives


class Transaction:
    """A transaction of a new producer that commits offsets of a group, topics by id."""

    def __init__(self, group: GroupWire) -> None:
        self.group = group
        self.wire = group.wire
        self.transactional_id = f"tx-{uuid.uuid4().hex[:8]}"
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=60_000)
        deadline = time.monotonic() + 120
        while (begun := self._begin(request)).error_code:
            assert time.monotonic() < deadline, name(begun.error_code)
            time.sleep(0.05)
        self.identity = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}

    def _begin(self, request: InitProducerIdRequest) -> Any:
        self.wire.call(FindCoordinatorRequest(key=self.transactional_id, key_type=1), 3)
        return self.wire.call(request, 5)

    def commit(self, topics: list[uuid.UUID], *, version: int = BY_ID, partition: int = 0, **fields: Any) -> list[Any]:
        """The answer's topics: their ids, and the code of their only partition."""
        asked = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="m")
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group.group_id,
            topics=[TxnOffsetCommitRequestTopic(topic_id=each, partitions=[asked]) for each in topics],
            **self.identity,
            **fields,
        )
        answer = self.wire.call(request, version)
        return [(topic.topic_id, name(topic.partitions[0].error_code)) for topic in answer.topics]

    def end(self) -> None:
        request = EndTxnRequest(transactional_id=self.transactional_id, committed=True, **self.identity)
        assert name(self.wire.call(request, 5).error_code) == "NONE"


def test_offsets_of_a_transaction_by_topic_id(group: GroupWire, topic_id: uuid.UUID) -> None:
    transaction = Transaction(group)
    assert transaction.commit([topic_id, UNKNOWN_ID]) == [
        (UNKNOWN_ID, "UNKNOWN_TOPIC_ID"),
        (topic_id, "NONE"),
    ]
    assert transaction.commit([topic_id], partition=5) == [(topic_id, "UNKNOWN_TOPIC_OR_PARTITION")]
    assert transaction.commit([uuid.UUID(int=0)]) == [(uuid.UUID(int=0), "UNKNOWN_TOPIC_ID")]
    transaction.end()


def test_offsets_of_a_transaction_by_the_name_of_a_topic(group: GroupWire) -> None:
    topic, transaction = new_topic(group.wire), Transaction(group)
    asked = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m")
    request = TxnOffsetCommitRequest(
        transactional_id=transaction.transactional_id,
        group_id=group.group_id,
        topics=[TxnOffsetCommitRequestTopic(name=each, partitions=[asked]) for each in (topic.name, "no-such")],
        **transaction.identity,
    )
    answered = {each.name: name(each.partitions[0].error_code) for each in group.wire.call(request, BY_ID - 1).topics}
    assert answered == {topic.name: "NONE", "no-such": "UNKNOWN_TOPIC_OR_PARTITION"}
    transaction.end()


def test_a_member_of_a_group_that_is_missing(group: GroupWire, topic_id: uuid.UUID) -> None:
    missing = GroupWire(group.wire, f"missing-{uuid.uuid4().hex[:8]}")
    missing.find()
    for member_id in ("", "m"):
        answer = Transaction(missing).commit([topic_id], generation_id_or_member_epoch=3, member_id=member_id)
        assert answer == [(topic_id, "GROUP_ID_NOT_FOUND")]


def test_an_old_member_of_a_consumer_group(group: GroupWire, topic_id: uuid.UUID) -> None:
    joined = group.beat(
        str(uuid.uuid4()), 0, rebalance_timeout_ms=10_000, subscribed_topic_names=["nothing"], topic_partitions=[]
    )
    answer = Transaction(group).commit(
        [topic_id], generation_id_or_member_epoch=joined.member_epoch + 5, member_id=joined.member_id
    )
    assert answer == [(topic_id, "STALE_MEMBER_EPOCH")]


def test_a_deleted_group_has_no_message(wire: Wire, group: GroupWire) -> None:
    (missing,) = wire.call(DeleteGroupsRequest(groups_names=[group.group_id]), 3).results
    assert (name(missing.error_code), missing.error_message) == ("GROUP_ID_NOT_FOUND", None)


# Groups of the consumer protocol --------------------------------------------------------------------------------------


def epochs(group: GroupWire) -> tuple[str, int, int]:
    described = group.describe_consumer_group()
    return described.group_state, described.group_epoch, described.assignment_epoch


def test_a_member_without_a_subscription_disturbs_nobody(group: GroupWire) -> None:
    topic = new_topic(group.wire)
    assert group.start(topic, "a", subscribed_topic_names=[]).member_epoch == 1
    assert group.start(topic, "b", subscribed_topic_names=[]).member_epoch == 1
    assert epochs(group) == ("Stable", 1, 1)
    assert name(group.beat("a", -1).error_code) == "NONE"
    assert epochs(group) == ("Assigning", 2, 1)
    assert name(group.beat("b", -1).error_code) == "NONE"
    assert epochs(group) == ("Empty", 3, 3)


def test_a_changed_preference_of_assignors_raises_the_epoch(group: GroupWire) -> None:
    topic = new_topic(group.wire)
    epoch = group.start(topic, "a", subscribed_topic_names=[], server_assignor="uniform").member_epoch
    assert epochs(group)[1] == epoch == 1
    group.beat("a", epoch, server_assignor="range")
    assert epochs(group)[1] == 2
    group.beat("a", epoch, server_assignor="range")
    assert epochs(group)[1] == 2
    # One of each: the vote is as it was.
    group.start(topic, "b", subscribed_topic_names=[], server_assignor="range")
    group.start(topic, "c", subscribed_topic_names=[], server_assignor="uniform")
    assert epochs(group)[1] == 2


def test_an_instance_id_that_is_in_use(group: GroupWire) -> None:
    topic = new_topic(group.wire)
    epoch = group.start(topic, "a", instance_id="i", subscribed_topic_names=[]).member_epoch
    for taker in ("a", "b"):
        refused = group.start(topic, taker, instance_id="i", subscribed_topic_names=[])
        assert (name(refused.error_code), refused.error_message) == (
            "UNRELEASED_INSTANCE_ID",
            f"Static member {taker} with instance id i cannot join the group because the instance id is owned by a "
            "member.",
        )
    refused = group.beat("b", epoch, instance_id="i")
    assert (name(refused.error_code), refused.error_message) == (
        "FENCED_INSTANCE_ID",
        "Static member b with instance id i was fenced by member a.",
    )
    refused = group.beat("a", epoch, instance_id="j")
    assert (name(refused.error_code), refused.error_message) == ("UNKNOWN_MEMBER_ID", "Instance id j is unknown.")
    refused = group.beat("a", epoch + 1, instance_id="i")
    assert (name(refused.error_code), refused.error_message) == (
        "FENCED_MEMBER_EPOCH",
        f"The consumer group member has a greater member epoch ({epoch + 1}) than the one known by the group "
        f"coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )
    assert group.beat("a", -2, instance_id="i").member_epoch == -2
    back = group.start(topic, "b", instance_id="i", subscribed_topic_names=[])
    assert (name(back.error_code), back.member_epoch) == ("NONE", epoch)


def test_a_classic_member_that_joins_again_counts_with_what_it_said_before(group: GroupWire) -> None:
    """In a group of the consumer protocol."""
    topic = new_topic(group.wire)
    group.start(topic, "native", subscribed_topic_names=[])
    member_id = group.join().member_id
    assert name(group.join(member_id).error_code) == "NONE"
    other = group.join(member_id, protocols=[("roundrobin", SUBSCRIPTION)])
    assert (name(other.error_code), other.member_id) == ("INCONSISTENT_GROUP_PROTOCOL", "")
    both = group.join(member_id, protocols=[("roundrobin", SUBSCRIPTION), ("range", SUBSCRIPTION)])
    assert name(both.error_code) == "NONE"


def test_a_share_group_has_no_offsets_to_fetch(group: GroupWire) -> None:
    topic = new_topic(group.wire)
    beat = ShareGroupHeartbeatRequest(
        group_id=group.group_id, member_id="m" * 22, member_epoch=0, subscribed_topic_names=[topic.name]
    )
    assert name(group.wire.call(beat, 1).error_code) == "NONE"
    assert group.fetch(topic, version=9)[0] == "NONE"


def test_what_a_member_leaves_out_when_it_joins_again_stays(group: GroupWire) -> None:
    topic = new_topic(group.wire)
    group.start(topic, "a", subscribed_topic_names=[topic.name])
    again = group.start(topic, "a", subscribed_topic_names=None, subscribed_topic_regex="nothing-like-this")
    assert name(again.error_code) == "NONE"
    (member,) = group.describe_consumer_group().members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([topic.name], "nothing-like-this")
    group.start(topic, "a", subscribed_topic_names=[])
    (member,) = group.describe_consumer_group().members
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([], "nothing-like-this")
