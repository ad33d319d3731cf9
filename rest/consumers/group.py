"""A consumer group as its coordinator has it: heartbeats of a member (KIP-848), commits, and what is committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import trio

from ottla.client.errors import BrokerError, ClientError, UnreachableError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import COORDINATOR_NOT_READY
from ottla.kproto.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.kproto.schema import Request
from ottla.kproto.versions import OPEN_END
from ottla.rest.cluster import Cluster

_PATIENCE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_BY_NAME: Final = 9


class Member(NamedTuple):
    """The committing member; without an epoch, a client outside of the group."""

    member_id: str = ""
    epoch: int = -1


class Committed(NamedTuple):
    """The committed offset of a partition, with its metadata."""

    offset: int
    metadata: str


class Group:
    """One group, asked through a cluster. Its verbs raise ClientError."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id

    async def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """The coordinator's answer, also if it is an error of the member's."""
        answer: ConsumerGroupHeartbeatResponse = await self._ask(request, lambda it: it.error_code)
        return answer

    async def commit(self, member: Member, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets: where to go on. BrokerError if one of them is refused."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for part, committed in offsets.items():
            asked = OffsetCommitRequestPartition(
                partition_index=part.partition,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata,
            )
            topics.setdefault(part.topic, []).append(asked)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        answer = await self._ask(request, lambda it: _first_error(it.topics), at_most=_BY_NAME)
        if code := _first_error(answer.topics):
            raise BrokerError(code, what=f"group {self._group_id}")

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Committed]:
        """The committed offsets of these partitions; those without are left out."""
        topics: dict[str, list[int]] = {}
        for part in partitions:
            topics.setdefault(part.topic, []).append(part.partition)
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics.items()]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group_id, topics=asked)])
        answer = await self._ask(request, lambda it: it.groups[0].error_code, at_most=_BY_NAME)
        (group,) = answer.groups
        if group.error_code:
            raise BrokerError(group.error_code, what=f"group {self._group_id}")
        found = {}
        for topic in group.topics:
            for state in topic.partitions:
                part = TopicPartition(topic.name, state.partition_index)
                if state.error_code:
                    raise BrokerError(state.error_code, what=f"what group {self._group_id} has committed for {part}")
                if state.committed_offset >= 0:
                    found[part] = Committed(state.committed_offset, state.metadata or "")
        return found

    async def _ask(self, request: Request, code_of: Callable[[Any], int], *, at_most: int = OPEN_END) -> Any:
        """Send a request to the coordinator, and again if it has moved."""
        deadline = trio.current_time() + _PATIENCE_SECONDS
        while True:
            failure: ClientError
            try:
                _, address = await self._cluster.coordinator(self._group_id)
                connection = await self._cluster.connection(address)
            except UnreachableError as error:
                failure = error
            except BrokerError as error:
                if error.code not in COORDINATOR_NOT_READY:
                    raise
                failure = error
            else:
                answer = await connection.call(request, at_most=at_most)
                code = code_of(answer)
                if code not in COORDINATOR_NOT_READY:
                    return answer
                failure = BrokerError(code, what=f"group {self._group_id}")
            if trio.current_time() >= deadline:
                raise failure
            await trio.sleep(_PAUSE_SECONDS)


def _first_error(topics: Iterable[Any]) -> int:
    return next((part.error_code for topic in topics for part in topic.partitions if part.error_code), 0)
