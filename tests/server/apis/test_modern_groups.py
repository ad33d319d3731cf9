"""Describing groups while their members come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    NotCoordinatorError,
)
from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import Current, Subscription
from ottla.coordinator.group.share.group import ShareGroup
from ottla.coordinator.group.share.member import ShareCurrent, ShareSubscription
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.member import StreamsCurrent, StreamsSubscription
from ottla.kproto.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.server.apis.groups import consumer_group_describe, streams_group_describe
from ottla.server.apis.share import share_group_describe
from ottla.settings.config import BrokerConfig

KINDS: dict[str, tuple[Any, Any, Any, Any, Callable[..., Awaitable[Any]]]] = {
    "consumer": (ConsumerGroup, Subscription, Current, ConsumerGroupDescribeRequest, consumer_group_describe.handle),
    "share": (ShareGroup, ShareSubscription, ShareCurrent, ShareGroupDescribeRequest, share_group_describe.handle),
    "streams": (
        StreamsGroup,
        StreamsSubscription,
        StreamsCurrent,
        StreamsGroupDescribeRequest,
        streams_group_describe.handle,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_member_that_comes_while_the_group_is_described_disturbs_nobody(kind: str) -> None:
    new_group, subscription, current, request, handle = KINDS[kind]
    group = new_group("g")

    def join(member_id: str) -> None:
        group.replay_member(member_id, subscription(client_id="c"))
        group.replay_current(member_id, current(epoch=1))

    join("a")
    join("b")
    rests = 0

    async def charge(count: int = 1) -> None:
        """Another request is handled meanwhile."""
        nonlocal rests
        rests += 1
        join(f"another-{rests}")

    features = {"group.version": 1, "share.version": 1, "streams.version": 1}
    groups = SimpleNamespace(describe=lambda group_id: group)
    context: Any = SimpleNamespace(
        work=SimpleNamespace(charge=charge),
        access=None,
        broker=SimpleNamespace(
            group_coordinator=SimpleNamespace(consumer_groups=groups, share_groups=groups, streams_groups=groups),
            metadata=SimpleNamespace(topic_by_id=lambda topic_id: None, features=features),
            config=BrokerConfig(),
        ),
    )
    (described,) = (await handle(request(group_ids=["g"]), context)).groups
    assert not described.error_code
    assert [member.member_id for member in described.members][:2] == ["a", "b"]
    assert rests > 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GroupIdNotFoundError("Group g not found."), "Group g not found."),
        (NotCoordinatorError("node 2 coordinates it"), None),
        (CoordinatorLoadInProgressError("it is loaded"), None),
    ],
)
async def test_of_a_group_that_was_not_looked_for_there_is_a_sentence_only_if_it_is_a_share_group(
    kind: str, error: CoordinatorError, message: str | None
) -> None:
    """As in Kafka: ShareGroupDescribeRequest has one, the others have the code alone."""
    *_, request, handle = KINDS[kind]

    async def charge(count: int = 1) -> None:
        pass

    def describe(group_id: str) -> Any:
        raise error

    groups = SimpleNamespace(describe=describe)
    context: Any = SimpleNamespace(
        work=SimpleNamespace(charge=charge),
        access=None,
        broker=SimpleNamespace(
            group_coordinator=SimpleNamespace(consumer_groups=groups, share_groups=groups, streams_groups=groups),
            metadata=SimpleNamespace(
                topic_by_id=lambda topic_id: None,
                features={"group.version": 1, "share.version": 1, "streams.version": 1},
            ),
            config=BrokerConfig(),
        ),
    )
    (described,) = (await handle(request(group_ids=["g"]), context)).groups
    told = str(error) if kind == "share" else message
    assert (described.error_code, described.error_message) == (error.code, told)
