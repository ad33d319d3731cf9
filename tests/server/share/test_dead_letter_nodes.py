"""Dead letters on a whole node, while it stops, and while members leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import iter_records
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.server.share.dead_letters import DeadLetterQueues
from ottla.server.share.in_flight import REJECT
from tests.servers import RunningNode

from .conftest import ShareClient
from .test_share_groups import PATIENT, TOPIC, begin_early, produce

Serve = Callable[..., Any]
QUEUE = "dlq.q"


async def begin(node: RunningNode) -> tuple[UUID, ShareClient]:
    """The id of a queue, and a member of a group that has it, and has one record."""
    topic_id = await node.create_topic(TOPIC)
    queue_id = await node.create_topic(QUEUE, errors_deadletterqueue_group_enable="true")
    await produce(node, topic_id, b"a")
    await begin_early(node, "g")
    resource = ConfigResource(ResourceType.GROUP, "g")
    change = ConfigChange("errors.deadletterqueue.topic.name", ConfigOperation.SET, QUEUE)
    assert await node.broker.controller.alter_configs({resource: [change]}) == {resource: None}
    member = await ShareClient.join(node, "g", "m", TOPIC)
    assert await member.acquire() == [(0, 0, 1)]
    return queue_id, member


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while True:
            if holds():
                return
            await trio.sleep(0.01)


async def letters(node: RunningNode, queue_id: UUID, count: int) -> list[bytes]:
    """The offsets that the letters of a queue name, once there are so many."""
    log = node.broker.replica_manager.get_partition(queue_id, 0).log
    await until(lambda: log.high_watermark >= count)
    asked = FetchPartition(queue_id, 0, 0, 1 << 20, -1)
    (fetched,) = await node.broker.replica_manager.fetch(FetchParams(max_bytes=1 << 20), [asked])
    assert fetched.records is not None
    data = fetched.records.to_bytes()
    fetched.release()
    return [value for each in iter_records(data) for name, value in each.headers if name.endswith(".offset") and value]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Nothing is written to a queue before this is set."""
    gate = trio.Event()
    produce_as_ever = DeadLetterQueues._produce

    async def wait(self: DeadLetterQueues, *args: Any) -> None:
        await gate.wait()
        await produce_as_ever(self, *args)

    monkeypatch.setattr(DeadLetterQueues, "_produce", wait)
    return gate


async def test_a_letter_that_waits_when_the_node_stops_is_written_by_the_next(
    serve_node: Serve, held: trio.Event
) -> None:
    async with serve_node(PATIENT) as node:
        queue_id, member = await begin(node)
        assert await member.acknowledge(0, 0, REJECT) == ErrorCode.NONE
        assert [share.is_writing_dead_letters for share in node.broker.share.manager] == [True]
    held.set()
    async with serve_node(PATIENT) as node:
        assert node.broker.replica_manager.get_partition(queue_id, 0).log.high_watermark == 0
        member = ShareClient(await node.connect(), "g", "m")
        await member.beat(subscribed_topic_names=[TOPIC])
        await member.fetch()  # its leader begins with the share partition
        assert await letters(node, queue_id, 1) == [b"0"]


@pytest.mark.parametrize("leaves", ["closes its session", "loses its connection"])
async def test_a_member_that_leaves_does_not_end_what_is_written(
    serve_node: Serve, held: trio.Event, leaves: str
) -> None:
    async with serve_node(PATIENT) as node:
        queue_id, member = await begin(node)
        assert await member.acknowledge(0, 0, REJECT) == ErrorCode.NONE
        manager = node.broker.share.manager
        if leaves == "closes its session":
            member.session_epoch = -1
            assert not (await member.fetch()).error_code
        else:
            await trio.aclose_forcefully(member.client.stream)
        await until(lambda: not len(manager.sessions))
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [share.is_writing_dead_letters for share in manager] == [True]
        held.set()
        assert await letters(node, queue_id, 1) == [b"0"]
        await until(lambda: not list(manager))  # nothing is needed in memory
