"""Streams groups on a whole node, on the wire: what a restart keeps, sessions, the feature, and rights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.cluster.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.groups.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from tests.servers import Client

Serve = Callable[..., Any]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
TOPOLOGY = Topology(
    epoch=0,
    subtopologies=[
        Subtopology(subtopology_id="0", source_topics=["in"], state_changelog_topics=[TopicInfo(name="g-changelog")])
    ],
)


async def beat(client: Client, epoch: int, member_id: str = "a", **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return await client.call(request, 0)


async def connected(node: Any) -> Client:
    """A client, and a coordinator that answers."""
    client: Client = await node.connect()
    await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 6)
    while (await described(client)).error_code != ErrorCode.GROUP_ID_NOT_FOUND:
        await trio.lowlevel.checkpoint()
    return client


async def join(client: Client, member_id: str = "a", **fields: Any) -> Any:
    said = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": member_id, **fields}
    return await beat(client, 0, member_id, topology=TOPOLOGY, rebalance_timeout_ms=5000, **said)


async def joined(client: Client, member_id: str = "a") -> int:
    """Join, and beat until the internal topics are there; the epoch."""
    answer = await join(client, member_id)
    while answer.status:
        assert not answer.error_code, answer.error_message
        answer = await beat(client, answer.member_epoch, member_id)
    epoch: int = answer.member_epoch
    return epoch


async def described(client: Client) -> Any:
    (group,) = (await client.call(StreamsGroupDescribeRequest(group_ids=["g"]), 0)).groups
    return group


async def test_a_restart_keeps_the_group(serve_node: Serve, tmp_path: Path) -> None:
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        await node.create_topic("in", 3)
        client = await connected(node)
        epoch = await joined(client)
        before = await described(client)
        assert (before.group_state, [len(each.partitions) for each in before.members[0].assignment.active_tasks]) == (
            "Stable",
            [3],
        )
        changelog = node.broker.metadata.topic("g-changelog")
        assert len(changelog.partitions) == 3
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        client = await node.connect()
        while (again := await beat(client, epoch)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        assert (again.error_code, again.member_epoch, again.active_tasks) == (0, epoch, None)
        assert await described(client) == before
        assert (await beat(client, -1)).error_code == 0
        assert (await described(client)).group_state == "Empty"


async def test_a_silent_member_is_removed_and_its_tasks_go_on(serve_node: Serve) -> None:
    async with serve_node(SETTINGS | {"group.streams.session.timeout.ms": "5001"}) as node:
        await node.create_topic("in", 2)
        client = await connected(node)
        await joined(client)
        epoch = (await join(client, "b")).member_epoch
        group = node.broker.group_coordinator.streams_groups.describe("g")
        # Its session is over, and somebody looks.
        group.members["a"].deadline = trio.current_time() - 1
        node.broker.group_coordinator.purgatory.signal(group.members["a"])
        with trio.fail_after(10):
            while "a" in group.members:
                await trio.lowlevel.checkpoint()
        assert (await beat(client, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        answer = await beat(client, epoch, "b", active_tasks=[], standby_tasks=[], warmup_tasks=[])
        assert [list(each.partitions) for each in answer.active_tasks] == [[0, 1]]


async def test_without_the_feature_there_are_no_streams_groups(serve_node: Serve) -> None:
    async with serve_node(SETTINGS) as node:
        client = await node.connect()
        off = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        assert (await client.call(UpdateFeaturesRequest(feature_updates=[off]), 1)).error_code == 0
        assert (await join(client)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(client)).error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_a_topology_that_nobody_has_is_refused_before_it_is_looked_at(serve_node: Serve) -> None:
    async with serve_node(SETTINGS) as node:
        client = await node.connect()
        topology = Topology(epoch=1, subtopologies=[Subtopology(subtopology_id=str(n)) for n in range(10_200)])
        answer = await client.call(StreamsGroupHeartbeatRequest(group_id="g", member_id="m", topology=topology), 0)
        assert answer.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert "more than 10000" in answer.error_message


async def test_internal_topics_that_cannot_be_made_are_told_of(serve_node: Serve) -> None:
    async with serve_node(SETTINGS) as node:
        await node.create_topic("in", 1)
        client = await connected(node)
        request = StreamsGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            rebalance_timeout_ms=1,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            topology=Topology(
                epoch=0,
                subtopologies=[
                    Subtopology(
                        subtopology_id="0",
                        source_topics=["in"],
                        state_changelog_topics=[TopicInfo(name="g-c", replication_factor=7)],
                    )
                ],
            ),
        )
        (status,) = (await client.call(request, 0)).status
        assert status.status_detail.startswith("Internal topics are missing: g-c; Creation failed: g-c (")
