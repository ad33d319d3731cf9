"""OffsetCommit: how long an offset is kept, and when it is stored."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.server.apis.groups import offset_commit

SETTINGS = {"offsets.topic.num.partitions": "1"}


def commit_of(offset: int, retention_ms: int = -1) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    return OffsetCommitRequest(group_id="g", retention_time_ms=retention_ms, topics=topics)


async def committed(node: Any, commit: OffsetCommitRequest) -> int:
    """The answer's error code, once the group's partition is loaded."""
    await node.create_topic("t", 1)
    client = await node.connect()
    await node.broker.controller.ensure_topic("__consumer_offsets")
    loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
    with trio.fail_after(30):
        while (code := (await client.call(commit, 4)).topics[0].partitions[0].error_code) in loading:
            await trio.lowlevel.checkpoint()
    return int(code)


async def test_an_endless_retention_is_no_error(serve_node: Callable[..., Any]) -> None:
    async with serve_node(SETTINGS) as node:
        assert await committed(node, commit_of(4, (1 << 63) - 1)) == ErrorCode.NONE


async def test_commits_of_one_turn_are_stored_together_when_it_ends(serve_node: Callable[..., Any]) -> None:
    async with serve_node(SETTINGS) as node:
        assert await committed(node, commit_of(4)) == ErrorCode.NONE
        context = node.broker.log_manager.context
        blocks = sum(context.block_writes.counts)

        def begun(offset: int) -> Any:
            context: Any = SimpleNamespace(broker=node.broker, header=SimpleNamespace(api_version=8), counted=None)
            return offset_commit.handle(commit_of(offset), context)

        answers = [begun(number) for number in range(3)]
        assert not any(answer.is_ready for answer in answers)
        context.turn.end()
        assert all(answer.is_ready for answer in answers)
        assert sum(context.block_writes.counts) == blocks + 1
        for answer in answers:
            assert answer.response().topics[0].partitions[0].error_code == ErrorCode.NONE


async def test_a_partition_that_is_named_twice_is_told_twice_that_it_failed(serve_node: Callable[..., Any]) -> None:
    async with serve_node(SETTINGS) as node:
        assert await committed(node, commit_of(4)) == ErrorCode.NONE
        client = await node.connect()
        twice = commit_of(5)
        twice.topics += commit_of(6).topics
        twice.topics[1].partitions += commit_of(7).topics[0].partitions
        answer = await client.call(twice, 8)
        assert [[it.error_code for it in topic.partitions] for topic in answer.topics] == [[0], [0, 0]]
        twice.generation_id_or_member_epoch, twice.member_id = 3, "nobody"
        answer = await client.call(twice, 8)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        assert [[it.error_code for it in topic.partitions] for topic in answer.topics] == [[code], [code, code]]
