"""OffsetFetch: all offsets of a group that has many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

TOPICS, PARTITIONS = ("b", "a"), 300


def commit() -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index) for index in range(PARTITIONS)
    ]
    return OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name in TOPICS]
    )


async def test_all_offsets_of_a_large_group_are_looked_up_in_steps(
    serve_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_node({"offsets.topic.num.partitions": "1"}) as node:
        for name in TOPICS:
            await node.create_topic(name, PARTITIONS)
        client = await node.connect()
        await node.broker.controller.ensure_topic("__consumer_offsets")
        loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        with trio.fail_after(30):
            while (await client.call(commit(), 8)).topics[0].partitions[0].error_code in loading:
                await trio.lowlevel.checkpoint()
        coordinator = node.broker.group_coordinator
        steps: list[int] = []
        fetch = coordinator.offsets.fetch

        def counted(group_id: str, partitions: Any, **named: Any) -> Any:
            steps.append(len(partitions))
            return fetch(group_id, partitions, **named)

        monkeypatch.setattr(coordinator.offsets, "fetch", counted)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = (await client.call(request, 8)).groups
        assert sum(steps) == len(TOPICS) * PARTITIONS
        assert max(steps) <= 128
        assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in group.topics] == [
            (name, list(range(PARTITIONS))) for name in sorted(TOPICS)
        ]
        assert all(each.committed_offset == each.partition_index for topic in group.topics for each in topic.partitions)
