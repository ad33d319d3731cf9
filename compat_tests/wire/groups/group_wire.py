"""The group APIs request by request: one group of one connection, every field and version as the test wants it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from compat_tests.wire.wire import Wire
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.kproto.messages.groups.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest

SESSION_MS = 10_000

# Version 1, one topic "t", no user data, no owned partitions.
SUBSCRIPTION = b"\0\1" + b"\0\0\0\1\0\1t" + b"\xff\xff\xff\xff" + b"\0\0\0\0"

# Version 0, no partitions, no user data: Kafka's tools read the assignments of all consumers that they list.
ASSIGNMENT = b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff"


class GroupWire:
    """A group by its id, and the requests on it. Error codes come back as names."""

    def __init__(self, wire: Wire, group_id: str) -> None:
        self.wire = wire
        self.group_id = group_id

    def find(self) -> None:
        """Wait until the group's coordinator answers: the first request to it creates `__consumer_offsets`."""
        retriable = {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"}
        self.wire.call(FindCoordinatorRequest(key=self.group_id), 3)
        while self.delete()[0] in retriable:
            self.wire.call(FindCoordinatorRequest(key=self.group_id), 3)

    # The classic protocol

    def join(self, member_id: str = "", *, version: int = 9, **options: Any) -> Any:
        self.send_join(member_id, version=version, **options)
        return self.wire.receive(JoinGroupRequest.API_KEY, version)

    def send_join(
        self,
        member_id: str = "",
        *,
        version: int = 9,
        protocols: Sequence[tuple[str, bytes]] = (("range", SUBSCRIPTION),),
        **options: Any,
    ) -> None:
        fields: dict[str, Any] = {
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "protocol_type": "consumer",
        } | options
        named = [JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols]
        request = JoinGroupRequest(group_id=self.group_id, member_id=member_id, protocols=named, **fields)
        self.wire.send(request, version)

    def joined(self, **options: Any) -> tuple[str, int]:
        """The only member of a group that is stable: its id and the generation."""
        first = self.join(**options)
        answer = first if first.error_code == 0 else self.join(first.member_id, **options)
        assert answer.error_code == 0, answer
        synced = self.sync(answer.member_id, answer.generation_id, assignments={answer.member_id: ASSIGNMENT})
        assert synced[0] == "NONE", synced
        return answer.member_id, answer.generation_id

    def sync(
        self,
        member_id: str,
        generation_id: int,
        *,
        version: int = 5,
        assignments: Mapping[str, bytes] | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        **options: Any,
    ) -> tuple[str, str | None, str | None, bytes]:
        request = SyncGroupRequest(
            group_id=self.group_id,
            member_id=member_id,
            generation_id=generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
            **options,
        )
        answer = self.wire.call(request, version)
        return name(answer.error_code), answer.protocol_type, answer.protocol_name, bytes(answer.assignment)

    def heartbeat(self, member_id: str, generation_id: int, *, version: int = 4, **options: Any) -> str:
        request = HeartbeatRequest(group_id=self.group_id, member_id=member_id, generation_id=generation_id, **options)
        return name(self.wire.call(request, version).error_code)

    def leave(self, member_id: str, *, version: int = 2) -> str:
        request = LeaveGroupRequest(group_id=self.group_id, member_id=member_id)
        return name(self.wire.call(request, version).error_code)

    def leave_all(
        self, *members: tuple[str, str | None], version: int = 5
    ) -> tuple[str, list[tuple[str, str | None, str]]]:
        identities = [
            MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members
        ]
        answer = self.wire.call(LeaveGroupRequest(group_id=self.group_id, members=identities), version)
        return name(answer.error_code), [
            (member.member_id, member.group_instance_id, name(member.error_code)) for member in answer.members
        ]

    # Offsets

    def commit(
        self,
        topic: Any,
        offset: int = 5,
        *,
        version: int = 9,
        partition: int = 0,
        member_id: str = "",
        generation_id: int = -1,
        metadata: str | None = "",
        epoch: int = -1,
        **options: Any,
    ) -> str:
        asked = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=epoch,
            committed_metadata=metadata,
        )
        named = OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=[asked])
        request = OffsetCommitRequest(
            group_id=self.group_id,
            member_id=member_id,
            generation_id_or_member_epoch=generation_id,
            topics=[named],
            **options,
        )
        (answered,) = self.wire.call(request, version).topics
        assert answered.topic_id == topic.topic_id if version >= 10 else answered.name == topic.name
        return name(answered.partitions[0].error_code)

    def commit_in_transaction(
        self,
        topic: Any,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        version: int = 4,
        member_id: str = "",
        generation_id: int = -1,
        instance: str | None = None,
        partition: int = 0,
        offset: int = 7,
    ) -> str:
        asked = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=self.group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=[asked])],
        )
        return name(self.wire.call(request, version).topics[0].partitions[0].error_code)

    def fetch(
        self,
        topic: Any = None,
        *,
        version: int = 9,
        partitions: Sequence[int] = (0,),
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[str, list[tuple[str, int, int, int, str | None, str]]]:
        """The group's error, and of each partition: topic, index, offset, epoch, metadata, error. No topic: all."""
        request = OffsetFetchRequest(require_stable=require_stable)
        if version >= 8:
            asked: Any = None
            if topic is not None:
                asked = [
                    OffsetFetchRequestTopics(
                        name=topic.name, topic_id=topic.topic_id, partition_indexes=list(partitions)
                    )
                ]
            request.groups = [
                OffsetFetchRequestGroup(
                    group_id=self.group_id, member_id=member_id, member_epoch=member_epoch, topics=asked
                )
            ]
            (group,) = self.wire.call(request, version).groups
            assert group.group_id == self.group_id
            return name(group.error_code), _fetched(group.topics, by_id=version >= 10)
        request.group_id = self.group_id
        request.topics = None
        if topic is not None:
            request.topics = [OffsetFetchRequestTopic(name=topic.name, partition_indexes=list(partitions))]
        answer = self.wire.call(request, version)
        return name(answer.error_code), _fetched(answer.topics, by_id=False)

    def delete_offset(self, topic: Any, *, partition: int = 0) -> tuple[str, list[str]]:
        asked = OffsetDeleteRequestTopic(
            name=topic.name, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
        )
        answer = self.wire.call(OffsetDeleteRequest(group_id=self.group_id, topics=[asked]), 0)
        return name(answer.error_code), [name(p.error_code) for t in answer.topics for p in t.partitions]

    # Administration

    def describe(self, *, version: int = 6, operations: bool = False) -> Any:
        request = DescribeGroupsRequest(groups=[self.group_id], include_authorized_operations=operations)
        (described,) = self.wire.call(request, version).groups
        return described

    def delete(self, *group_ids: str, version: int = 2) -> list[str]:
        request = DeleteGroupsRequest(groups_names=list(group_ids) or [self.group_id])
        return [name(result.error_code) for result in self.wire.call(request, version).results]

    # The consumer protocol

    def beat(self, member_id: str, epoch: int, *, version: int = 1, **options: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=member_id, member_epoch=epoch, **options
        )
        return self.wire.call(request, version)

    def start(self, topic: Any, member_id: str | None = None, *, version: int = 1, **options: Any) -> Any:
        """Join a group of the consumer protocol, with everything that the first heartbeat needs."""
        fields = {
            "rebalance_timeout_ms": SESSION_MS,
            "subscribed_topic_names": [topic.name],
            "topic_partitions": [],
        } | options
        return self.beat(str(uuid.uuid4()) if member_id is None else member_id, 0, version=version, **fields)

    def describe_consumer_group(self, *, version: int = 1) -> Any:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        (described,) = self.wire.call(request, version).groups
        return described


class Topic(NamedTuple):
    """A topic as requests of any version name it."""

    name: str
    topic_id: uuid.UUID


def new_topic(wire: Wire, *, partitions: int = 2) -> Topic:
    """A topic with a name of its own."""
    topic = f"wire-{uuid.uuid4().hex[:8]}"
    creation = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    answer = wire.call(CreateTopicsRequest(topics=[creation], timeout_ms=60_000), 7)
    return Topic(topic, answer.topics[0].topic_id)


def name(code: int) -> str:
    """An error code as Kafka names it."""
    return ErrorCode(code).name


def _fetched(topics: Any, *, by_id: bool) -> list[tuple[str, int, int, int, str | None, str]]:
    return [
        (
            str(topic.topic_id) if by_id else topic.name,
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.metadata,
            name(partition.error_code),
        )
        for topic in topics
        for partition in topic.partitions
    ]
