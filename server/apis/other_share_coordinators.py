"""Requests to other brokers for share groups: to share coordinators (APIs 83 to 87), and for the ends of logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import ClientError
from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    FencedShareLeaderError,
    UninitializedShareError,
    UnknownSharePartitionError,
)
from ottla.coordinator.share.state import UNINITIALIZED_COUNT, SharePartitionKey, ShareState, StateBatch
from ottla.kproto.errors import ErrorCode, errors_by_code
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.share import delete_share_group_state as deleting
from ottla.kproto.messages.share import initialize_share_group_state as initializing
from ottla.kproto.messages.share import read_share_group_state as reading
from ottla.kproto.messages.share import read_share_group_state_summary as summing
from ottla.kproto.messages.share import write_share_group_state as writing
from ottla.runtime.errors import kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.coordinator.share.persister import Initialization
    from ottla.coordinator.share.state import StateChange
    from ottla.kproto.schema import Request
    from ottla.server.cluster.peers import Peers

_CHANNEL: Final = "share state"
TIMEOUT_SECONDS: Final = 10.0
_LATEST: Final = -1

_ERRORS: Final[Mapping[ErrorCode, type[CoordinatorError]]] = errors_by_code(CoordinatorError) | {
    ErrorCode.INVALID_REQUEST: UninitializedShareError,
    ErrorCode.FENCED_LEADER_EPOCH: FencedShareLeaderError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownSharePartitionError,
}


class PeerShareCoordinators:
    """Implements OtherShareCoordinators over `Peers`."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def initialize(
        self, node_id: int, wanted: Sequence[Initialization]
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        outcomes: dict[SharePartitionKey, CoordinatorError | None] = {}
        for key, state_epoch, start_offset in wanted:
            data = initializing.PartitionData(
                partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
            )
            topic = initializing.InitializeStateData(topic_id=key.topic_id, partitions=[data])
            request = initializing.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])
            outcomes[key] = await self._outcome(node_id, request, key)
        return outcomes

    async def delete(
        self, node_id: int, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        outcomes: dict[SharePartitionKey, CoordinatorError | None] = {}
        for key in keys:
            data = deleting.PartitionData(partition=key.partition)
            topic = deleting.DeleteStateData(topic_id=key.topic_id, partitions=[data])
            request = deleting.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
            outcomes[key] = await self._outcome(node_id, request, key)
        return outcomes

    async def read(self, node_id: int, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        data = reading.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        topic = reading.ReadStateData(topic_id=key.topic_id, partitions=[data])
        request = reading.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])
        found = await self._ask(node_id, request, key)
        batches = (
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        )
        return ShareState(found.state_epoch, leader_epoch, found.start_offset, UNINITIALIZED_COUNT, tuple(batches))

    async def write(self, node_id: int, key: SharePartitionKey, change: StateChange) -> None:
        data = writing.PartitionData(
            partition=key.partition,
            state_epoch=change.state_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.delivery_complete_count,
            state_batches=[
                writing.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
                for first, last, state, count in change.batches
            ],
        )
        topic = writing.WriteStateData(topic_id=key.topic_id, partitions=[data])
        await self._ask(node_id, writing.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic]), key)

    async def read_summary(self, node_id: int, key: SharePartitionKey) -> ShareState:
        data = summing.PartitionData(partition=key.partition, leader_epoch=-1)
        topic = summing.ReadStateSummaryData(topic_id=key.topic_id, partitions=[data])
        request = summing.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        found = await self._ask(node_id, request, key)
        return ShareState(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count)

    async def end_offset(self, node_id: int, topic: str, partition: int) -> int:
        """The offset after the last record that consumers may see. Raises CoordinatorError."""
        asked = ListOffsetsTopic(
            name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=_LATEST)]
        )
        answer = await self._call(node_id, ListOffsetsRequest(topics=[asked]))
        found = _only(
            node_id,
            [
                it
                for each in answer.topics
                if each.name == topic
                for it in each.partitions
                if it.partition_index == partition
            ],
        )
        if found.error_code:
            raise CoordinatorNotAvailableError(f"node {node_id} answered {ErrorCode.of(found.error_code).name}")
        return int(found.offset)

    async def _outcome(self, node_id: int, request: Request, key: SharePartitionKey) -> CoordinatorError | None:
        try:
            await self._ask(node_id, request, key)
        except CoordinatorError as error:
            return kept(error)
        return None

    async def _ask(self, node_id: int, request: Request, key: SharePartitionKey) -> Any:
        """The only partition in the answer to a request for one partition. Raises CoordinatorError."""
        answer = await self._call(node_id, request)
        found = _only(
            node_id,
            [
                it
                for each in answer.results
                if each.topic_id == key.topic_id
                for it in each.partitions
                if it.partition == key.partition
            ],
        )
        if found.error_code:
            known = ErrorCode.of(found.error_code)
            refused = _ERRORS.get(known, CoordinatorNotAvailableError)
            raise refused(f"node {node_id} answered {known.name}: {found.error_message}")
        return found

    async def _call(self, node_id: int, request: Request) -> Any:
        try:
            return await self._peers.call(node_id, request, channel=_CHANNEL, timeout_seconds=TIMEOUT_SECONDS)
        except ClientError as error:
            raise CoordinatorNotAvailableError(str(error)) from None


def _only(node_id: int, found: Sequence[Any]) -> Any:
    """The answer for the one partition that was asked for. An answer with none or several is refused."""
    if len(found) != 1:
        raise CoordinatorNotAvailableError(f"node {node_id} answered {len(found)} times for one partition")
    return found[0]
