"""OffsetCommit: what a request of an old version says of how long an offset is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


async def test_an_endless_retention_is_no_error(serve_node: Callable[..., Any]) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=4)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    commit = OffsetCommitRequest(group_id="g", retention_time_ms=(1 << 63) - 1, topics=topics)
    async with serve_node({"offsets.topic.num.partitions": "1"}) as node:
        await node.create_topic("t", 1)
        client = await node.connect()
        await node.broker.controller.ensure_topic("__consumer_offsets")
        loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
        with trio.fail_after(30):
            while (code := (await client.call(commit, 4)).topics[0].partitions[0].error_code) in loading:
                await trio.lowlevel.checkpoint()
        assert code == ErrorCode.NONE
