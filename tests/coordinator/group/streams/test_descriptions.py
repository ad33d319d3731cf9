"""Descriptions of topologies (KIP-1331): who is asked for one, what is kept, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.coordinator.group.streams.description import MAX_SIZE_BYTES, Asking
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.kproto.messages.groups.streams_group_describe import StreamsGroupDescribeRequest
from ottla.kproto.messages.groups.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.kproto.messages.groups.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
    TopologyDescriptionGlobalStore,
    TopologyDescriptionNode,
    TopologyDescriptionSubtopology,
)
from ottla.runtime.backoff import JITTER
from tests.coordinator.group.streams.test_on_a_node import SETTINGS, TOPOLOGY, connected
from tests.servers import Client

Serve = Callable[..., Any]

SOURCE = TopologyDescriptionNode(name="in", node_type=1, source_topics=["in"], successors=["count"])
COUNT = TopologyDescriptionNode(name="count", node_type=2, stores=["store"], successors=["out"])
OUT = TopologyDescriptionNode(name="out", node_type=3)
DESCRIPTION = TopologyDescription(
    subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=[SOURCE, COUNT, OUT])],
    global_stores=[TopologyDescriptionGlobalStore(source=SOURCE, processor=COUNT)],
)


async def beat(client: Client, epoch: int, member_id: str = "a", version: int = 1, **fields: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    answer = await client.call(request, version)
    assert not answer.error_code, answer.error_message
    return answer


async def join(client: Client, member_id: str = "a", version: int = 1) -> Any:
    said: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": member_id}
    return await beat(client, 0, member_id, version, topology=TOPOLOGY, rebalance_timeout_ms=5000, **said)


async def tell(client: Client, said: TopologyDescription = DESCRIPTION, **fields: Any) -> Any:
    named: dict[str, Any] = {"group_id": "g", "member_id": "a", "topology_epoch": 0} | fields
    request = StreamsGroupTopologyDescriptionUpdateRequest(topology_description=said, **named)
    return await client.call(request, 0)


async def described(client: Client) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=["g"], include_topology_description=True)
    (group,) = (await client.call(request, 1)).groups
    return group


def names(group: Any) -> list[list[str]]:
    return [[node.name for node in part.nodes] for part in group.topology_description.subtopologies]


async def test_one_member_is_asked_and_what_it_says_is_kept_over_a_restart(serve_node: Serve, tmp_path: Path) -> None:
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        await node.create_topic("in", 1)
        client = await connected(node)
        assert not (await join(client, "old", version=0)).topology_description_required
        joined = await join(client)
        assert joined.topology_description_required
        # It is on its way: nobody else is asked.
        assert not (await join(client, "b")).topology_description_required
        assert not (await beat(client, joined.member_epoch)).topology_description_required
        before = await described(client)
        assert (before.topology_description, before.topology_description_status) == (None, 1)
        assert (await tell(client)).error_code == ErrorCode.NONE
        kept = await described(client)
        assert kept.topology_description_status == 3
        assert names(kept) == [["in", "count", "out"]]
        (part,) = kept.topology_description.subtopologies
        assert [node.stores for node in part.nodes] == [[], ["store"], []]
        assert kept.topology_description.global_stores[0].processor.name == "count"
        assert kept.group_epoch == before.group_epoch
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        client = await node.connect()
        while (group := await described(client)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        assert group.topology_description == kept.topology_description
        assert not (await join(client, "c")).topology_description_required
        for member_id in ("old", "a", "b", "c"):
            await beat(client, -1, member_id)
        assert (await described(client)).topology_description == kept.topology_description
        # It goes with its group.
        assert not (await client.call(DeleteGroupsRequest(groups_names=["g"]), 3)).results[0].error_code
        assert (await join(client)).topology_description_required
        assert (await described(client)).topology_description_status == 1


async def test_descriptions_that_are_refused(serve_node: Serve) -> None:
    async with serve_node(SETTINGS) as node:
        await node.create_topic("in", 1)
        client = await connected(node)
        assert (await tell(client)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        await join(client)
        assert (await tell(client, member_id="x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        for fields, message in (
            ({"member_id": " "}, "MemberId can't be empty."),
            ({"group_id": ""}, "GroupId can't be empty."),
            ({"topology_epoch": 1}, "Topology epoch 1 does not match the group's current topology epoch 0."),
        ):
            answer = await tell(client, **fields)
            assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
        for said, message in (
            (_of(TopologyDescriptionNode(name="n", node_type=4)), "Unknown topology node type: 4"),
            (
                TopologyDescription(global_stores=[TopologyDescriptionGlobalStore(source=COUNT, processor=COUNT)]),
                "Global store must be composed of a source and a processor node.",
            ),
        ):
            answer = await tell(client, said)
            assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
        assert (await described(client)).topology_description_status == 1


async def test_a_description_that_is_too_large_is_not_asked_for_again(serve_node: Serve, tmp_path: Path) -> None:
    long = "n" * 1000
    large = _of(*(TopologyDescriptionNode(name=f"{long}{n}", node_type=2) for n in range(MAX_SIZE_BYTES // 1000 + 1)))
    many = _of(*(TopologyDescriptionNode(name="n", node_type=2) for _ in range(10_200)))
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        await node.create_topic("in", 1)
        client = await connected(node)
        await join(client)
        for said in (large, many):
            assert (await tell(client, said)).error_code == ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
        assert (await described(client)).topology_description_status == 1
    async with serve_node(SETTINGS, data_dir=tmp_path) as node:
        client = await node.connect()
        while (await described(client)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await trio.lowlevel.checkpoint()
        assert not (await join(client)).topology_description_required
        # Another member may still tell one that fits.
        assert (await tell(client)).error_code == ErrorCode.NONE
        assert names(await described(client)) == [["in", "count", "out"]]


def test_members_are_asked_seldom_where_no_description_comes() -> None:
    asking, pauses = Asking(), []
    for _ in range(20):
        asking = asking.asked(100.0)
        pauses.append(asking.next_at - 100.0)
    assert pauses[:3] == pytest.approx([30.0, 60.0, 120.0], rel=JITTER)
    assert pauses[7:] == pytest.approx([3600.0] * len(pauses[7:]), rel=JITTER)


def _of(*nodes: TopologyDescriptionNode) -> TopologyDescription:
    return TopologyDescription(subtopologies=[TopologyDescriptionSubtopology(subtopology_id="0", nodes=list(nodes))])
