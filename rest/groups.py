"""The cluster's consumer groups: members, committed offsets, and lag."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple

import trio

from ottla.client.admin.group_state import KINDS, Group, Kind, Member
from ottla.client.errors import BrokerError, UnsupportedVersionError
from ottla.client.offsets import TopicPartition
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import COORDINATOR_NOT_READY
from ottla.kproto.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.kproto.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.kproto.schema import Request
from ottla.rest.cluster import Cluster

__all__ = ["Groups", "Lag"]

#: Of consumers, and of a group that only commits offsets.
_OF_CONSUMERS: Final = ("consumer", "")
_CONSUMER: Final = "consumer"
_FETCH_BY_NAME: Final = 7
_GROUPS_A_REQUEST: Final = 100
_RETRY_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.1
_CLASSIC_KIND: Final = next(kind for kind in KINDS if kind.api is ApiKey.DESCRIBE_GROUPS)
_CONSUMER_KIND: Final = next(kind for kind in KINDS if kind.api is ApiKey.CONSUMER_GROUP_DESCRIBE)


class Lag(NamedTuple):
    """A group's lag in a partition, and the member that reads it; None if none does."""

    partition: TopicPartition
    current_offset: int
    log_end_offset: int
    member: Member | None

    @property
    def lag(self) -> int:
        return max(0, self.log_end_offset - self.current_offset)


class Groups:
    """Asks the brokers of a cluster. Every method raises ClientError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self, is_seen: Callable[[str], bool]) -> list[Group]:
        """The groups of consumers that may be seen, by their ids."""
        found: list[Group] = []
        for broker in (await self._cluster.metadata([])).brokers:
            connection = await self._cluster.connection((broker.host, broker.port))
            answer = await connection.call(ListGroupsRequest())
            if answer.error_code:
                raise BrokerError(answer.error_code, what=f"the groups of broker {broker.node_id}")
            listed = [it for it in answer.groups if it.protocol_type in _OF_CONSUMERS and is_seen(it.group_id)]
            modern = [it.group_id for it in listed if it.group_type.lower() == _CONSUMER]
            classic = [it.group_id for it in listed if it.group_type.lower() != _CONSUMER]
            for kind, ids in ((_CONSUMER_KIND, modern), (_CLASSIC_KIND, classic)):
                for first in range(0, len(ids), _GROUPS_A_REQUEST):
                    some = ids[first : first + _GROUPS_A_REQUEST]
                    found += await _described(connection, kind, some, broker.node_id)
        return sorted(found, key=lambda group: group.group_id)

    async def find(self, group_id: str) -> Group | None:
        """The group if there is one of consumers."""
        deadline = trio.current_time() + _RETRY_SECONDS
        while True:
            try:
                node_id, address = await self._cluster.coordinator(group_id)
                connection = await self._cluster.connection(address)
                for kind in (_CONSUMER_KIND, _CLASSIC_KIND):
                    for group in await _described(connection, kind, [group_id], node_id):
                        return group
            except BrokerError as error:
                if error.code not in COORDINATOR_NOT_READY or trio.current_time() >= deadline:
                    raise
            else:
                return None
            await trio.sleep(_PAUSE_SECONDS)

    async def lags(self, group: Group, is_seen: Callable[[str], bool]) -> list[Lag]:
        """How far a group is behind, in each partition of which it has committed an offset and that may be seen."""
        committed = {part: at for part, at in (await self._committed(group.group_id)).items() if is_seen(part.topic)}
        ends = await self._cluster.end_offsets(committed)
        readers = {part: member for member in group.members for part in member.assignment}
        return [Lag(part, committed[part], ends[part], readers.get(part)) for part in sorted(committed) if part in ends]

    async def _committed(self, group_id: str) -> dict[TopicPartition, int]:
        deadline = trio.current_time() + _RETRY_SECONDS
        while True:
            _, address = await self._cluster.coordinator(group_id)
            connection = await self._cluster.connection(address)
            request = OffsetFetchRequest(group_id=group_id, topics=None)
            answer = await connection.call(request, at_most=_FETCH_BY_NAME)
            if not answer.error_code:
                return {
                    TopicPartition(topic.name, it.partition_index): it.committed_offset
                    for topic in answer.topics
                    for it in topic.partitions
                    if it.committed_offset >= 0
                }
            if answer.error_code not in COORDINATOR_NOT_READY or trio.current_time() >= deadline:
                raise BrokerError(answer.error_code, what=f"offsets of group {group_id}")
            await trio.sleep(_PAUSE_SECONDS)


async def _described(connection: TrioConnection, kind: Kind, ids: Collection[str], node_id: int) -> Sequence[Group]:
    """Those of some groups that are of this kind. A broker that is older than the kind has none."""
    if not ids:
        return []
    request: Request = DescribeGroupsRequest(groups=list(ids))
    if kind is _CONSUMER_KIND:
        request = ConsumerGroupDescribeRequest(group_ids=list(ids))
    try:
        answer: Any = await connection.call(request)
    except UnsupportedVersionError:
        return []
    found = (kind.group_in(described, node_id) for described in answer.groups)
    return [group for group in found if group is not None]
