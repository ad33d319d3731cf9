"""A member of a consumer group (KIP-848): the group's coordinator assigns, the member says what it has."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol
from uuid import UUID, uuid4

import trio

from ottla.client.errors import BrokerError, ClientError, ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from ottla.rest.consumers.group import Group, Member

logger = logging.getLogger(__name__)

_REBALANCE_TIMEOUT_MS: Final = 60_000
_JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_FENCED: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_AFTER_FAILURE_SECONDS: Final = 1.0


class Assignee(Protocol):
    """The consumer that is the member."""

    async def topic_names(self) -> Mapping[UUID, str]:
        """The names of its topics."""

    async def take_assigned(self, parts: frozenset[TopicPartition]) -> None:
        """The group has decided that it has these now; once this returns, nothing else is read any more."""


class Membership:
    """Takes part in a group from `run` on, until that is cancelled."""

    def __init__(
        self,
        group: Group,
        group_id: str,
        topics: Sequence[str],
        assignee: Assignee,
    ) -> None:
        self._group = group
        self._group_id = group_id
        self._topics = list(topics)
        self._assignee = assignee
        self._member_id = str(uuid4())
        self._epoch = _JOIN_EPOCH
        self._has_asked = False
        self._owned: list[TopicPartitions] = []
        #: Why the member is not in the group, if it is not.
        self.failure: ClientError | None = None

    @property
    def member(self) -> Member:
        """The member as the sender of a commit."""
        return Member(self._member_id, self._epoch)

    @property
    def is_in_group(self) -> bool:
        """Whether it is a member, by the coordinator's last answer."""
        return self._epoch > _JOIN_EPOCH

    async def run(self) -> None:
        """Send heartbeats, and pass on what the group assigns."""
        is_full = True
        while True:
            try:
                interval_seconds, is_full = await self._beat(is_full=is_full)
                self.failure = None
            except ClientError as error:
                if not isinstance(error, ConnectionLostError):
                    logger.debug("group %s: %s", self._group_id, error)
                self.failure = error
                interval_seconds, is_full = _AFTER_FAILURE_SECONDS, True
            await trio.sleep(interval_seconds)

    async def leave(self) -> None:
        """Leave the group, so that others need not wait for the session's end. Not during `run`. Raises ClientError."""
        if self._has_asked:
            self._epoch = _LEAVE_EPOCH
            await self._group.heartbeat(self._request(is_full=False))

    async def _beat(self, *, is_full: bool) -> tuple[float, bool]:
        """Send one heartbeat; returns when the next is due, and whether that must have all fields."""
        self._has_asked = True
        answer = await self._group.heartbeat(self._request(is_full=is_full or self._epoch == _JOIN_EPOCH))
        if answer.error_code in _FENCED:
            self._epoch, self._owned = _JOIN_EPOCH, []
            await self._assignee.take_assigned(frozenset())
            return 0.0, True
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, answer.error_message, what=f"group {self._group_id}")
        self._epoch = answer.member_epoch
        if answer.assignment is not None and _key(answer.assignment.topic_partitions) != _key(self._owned):
            await self._take(answer.assignment)
            return 0.0, True  # tells what it has now
        return answer.heartbeat_interval_ms / 1000, False

    async def _take(self, assignment: Assignment) -> None:
        names = await self._assignee.topic_names()
        parts = {
            TopicPartition(names[topic.topic_id], index)
            for topic in assignment.topic_partitions
            if topic.topic_id in names
            for index in topic.partitions
        }
        await self._assignee.take_assigned(frozenset(parts))
        self._owned = list(assignment.topic_partitions)

    def _request(self, *, is_full: bool) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            topic_partitions=self._owned if is_full else None,
        )


def _key(topics: Iterable[TopicPartitions]) -> set[tuple[UUID, int]]:
    return {(topic.topic_id, index) for topic in topics for index in topic.partitions}
