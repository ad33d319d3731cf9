"""Common parts of ShareFetch and ShareAcknowledge: acknowledgements, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.coordinator.errors import (
    CoordinatorLoadInProgressError,
    FencedShareLeaderError,
    FencedStateEpochError,
    NotCoordinatorError,
    UninitializedShareError,
)
from ottla.kproto.errors import ErrorCode
from ottla.kproto.schema import ZERO_UUID
from ottla.metadata.acls import AclOperation, AclResource
from ottla.metadata.errors import TopicNotAuthorizedError
from ottla.replica.append import TopicIdPartition
from ottla.replica.errors import UnknownTopicIdError
from ottla.server.apis.data.leader_hints import leader_hint
from ottla.server.apis.errors import error_code
from ottla.server.share.errors import InvalidAcknowledgementError
from ottla.server.share.in_flight import REJECT, RENEW
from ottla.server.share.records import Acknowledgement
from ottla.server.share.sessions import SessionKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.runtime.work import Work
    from ottla.server.apis.context import RequestContext

MAX_MEMBER_ID_LENGTH: Final = 36
FIRST_VERSION_WITH_RENEWAL: Final = 2
_HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


#: What members are told of their share partition's coordinator (SharePartition.fetchPersisterError in Kafka): they know
#: of leaders, but not of who stores what the leaders say.
_CODES: Final[Mapping[type[Exception], ErrorCode]] = {
    FencedStateEpochError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    FencedShareLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    NotCoordinatorError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    CoordinatorLoadInProgressError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    UninitializedShareError: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class AcknowledgementBatch(Protocol):
    """A batch of acknowledgements, as both requests have it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class LeaderNow(NamedTuple):
    """Who leads a partition, and that broker's address if the client may know it."""

    leader_id: int
    leader_epoch: int
    endpoint: tuple[int, str, int, str | None] | None


def session_key(group_id: str | None, member_id: str | None) -> SessionKey | None:
    """The member that sent the request; None if that is not given properly."""
    if group_id is None or not member_id or len(member_id) > MAX_MEMBER_ID_LENGTH:
        return None
    return SessionKey(group_id, member_id)


def partition_error_code(error: Exception) -> ErrorCode:
    """The error code of a partition that cannot be served."""
    code = _CODES.get(type(error))
    return error_code(error) if code is None else code


async def read_acknowledgements(
    batches: Iterable[AcknowledgementBatch], work: Work, *, may_renew: bool
) -> list[Acknowledgement]:
    """The acknowledgements of one partition. Raises InvalidAcknowledgementError if they contradict themselves."""
    known = range((RENEW if may_renew else REJECT) + 1)
    previous_end = -1
    acknowledgements = []
    async for batch in work.over(batches, counts=False):
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first > last or first < previous_end:
            raise InvalidAcknowledgementError("Acknowledgement batches overlap, or are not in order.")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise InvalidAcknowledgementError("Acknowledgement types do not fit the offsets of their batch.")
        unknown = set(types).difference(known)
        if unknown:
            raise InvalidAcknowledgementError(f"Invalid acknowledge type: {min(unknown)}")
        previous_end = last
        acknowledgements.append(Acknowledgement(first, last, types))
    return acknowledgements


async def acknowledge(
    key: SessionKey,
    asked: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
    context: RequestContext,
    *,
    may_renew: bool,
) -> dict[TopicIdPartition, Exception | None]:
    """Pass on what a member acknowledges; returns for each partition why it was refused."""
    outcomes: dict[TopicIdPartition, Exception | None] = {}
    read: dict[TopicIdPartition, list[Acknowledgement]] = {}
    image = context.broker.metadata
    async for partition, batches in context.work.over(asked.items(), counts=False):
        if image.topic_by_id(partition.topic_id) is None:
            outcomes[partition] = UnknownTopicIdError("This server does not host this topic ID.")
            continue
        if not may_read(partition, context):
            outcomes[partition] = TopicNotAuthorizedError("Topic authorization failed.")
            continue
        try:
            read[partition] = await read_acknowledgements(batches, context.work, may_renew=may_renew)
        except InvalidAcknowledgementError as error:
            outcomes[partition] = error
    outcomes.update(await context.broker.share.manager.acknowledge(key, read))
    return outcomes


def may_read(partition: TopicIdPartition, context: RequestContext) -> bool:
    """Whether the sender may read a topic; an unknown one is not kept from anybody."""
    topic = context.broker.metadata.topic_by_id(partition.topic_id)
    if context.access is None or topic is None:
        return True
    return context.access.allows(AclOperation.READ, AclResource.TOPIC, topic.name)


def leader_now(context: RequestContext, partition: TopicIdPartition, error: Exception | None) -> LeaderNow | None:
    """Who leads a partition, if its error says that it is not the broker that was asked."""
    if error is None or partition_error_code(error) not in _HINTED or partition.topic_id == ZERO_UUID:
        return None
    hint = leader_hint(context, partition.topic_id, partition.partition)
    endpoint = None
    if hint.endpoint is not None:
        rack = None if hint.broker is None else hint.broker.rack
        endpoint = (hint.leader_id, hint.endpoint.host, hint.endpoint.port, rack)
    return LeaderNow(hint.leader_id, hint.leader_epoch, endpoint)
