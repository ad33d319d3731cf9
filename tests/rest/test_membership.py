"""A member of a group whose coordinator assigns, takes away, fences it and is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import trio
import trio.testing

from ottla.client.errors import ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.rest.consumers.membership import Membership

TOPIC_ID = UUID(int=7)


class Coordinator:
    """Answers heartbeats from a list, and after that with nothing new."""

    def __init__(self, *answers: ConsumerGroupHeartbeatResponse | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[ConsumerGroupHeartbeatRequest] = []
        self.assigned: list[list[int]] = []
        self.membership = Membership(self, "g", ["orders"], self)  # type: ignore[arg-type]

    async def heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else beat(request.member_epoch)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def topic_names(self) -> Mapping[UUID, str]:
        return {TOPIC_ID: "orders"}

    async def take_assigned(self, parts: frozenset[TopicPartition]) -> None:
        self.assigned.append(sorted(part.partition for part in parts))

    async def run(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self.membership.run()


def beat(epoch: int, partitions: list[int] | None = None, error: ErrorCode = ErrorCode.NONE) -> Any:
    assignment = None
    if partitions is not None:
        topics = [TopicPartitions(topic_id=TOPIC_ID, partitions=partitions)] if partitions else []
        assignment = Assignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        error_code=error, member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment
    )


def owned(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


async def test_it_says_what_it_has_once_it_has_nothing_else(autojump_clock: trio.testing.MockClock) -> None:
    coordinator = Coordinator(beat(1, [0, 1]), beat(1), beat(2, [0]))
    await coordinator.run(6)
    assert coordinator.assigned == [[0, 1], [0]]
    epochs = [(request.member_epoch, owned(request)) for request in coordinator.requests]
    assert epochs == [(0, []), (1, [0, 1]), (1, None), (2, [0])]


async def test_a_member_that_is_fenced_gives_everything_up_and_joins_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fenced = beat(0, error=ErrorCode.FENCED_MEMBER_EPOCH)
    coordinator = Coordinator(beat(1, [0]), fenced, beat(3, [1]))
    await coordinator.run(4)
    assert coordinator.assigned == [[0], [], [1]]
    third = coordinator.requests[2]
    assert (third.member_epoch, owned(third), third.subscribed_topic_names) == (0, [], ["orders"])


async def test_after_a_failure_it_says_everything_again(autojump_clock: trio.testing.MockClock) -> None:
    coordinator = Coordinator(beat(1, [0]), beat(1), ConnectionLostError("it went"))
    await coordinator.run(5.5)
    assert isinstance(coordinator.membership.failure, ConnectionLostError)
    await coordinator.run(1)
    assert coordinator.membership.failure is None
    assert coordinator.assigned == [[0]]


async def test_it_leaves_if_it_may_have_joined(autojump_clock: trio.testing.MockClock) -> None:
    coordinator = Coordinator()
    await coordinator.membership.leave()
    assert coordinator.requests == []
    coordinator = Coordinator(ConnectionLostError("it may have come"))
    await coordinator.run(0.5)
    await coordinator.membership.leave()
    assert coordinator.requests[-1].member_epoch == -1
