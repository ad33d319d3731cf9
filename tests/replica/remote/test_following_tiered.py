"""A follower whose leader has on its disk only the newer part of a tiered log."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replica.offset_lookup import OffsetSpec
from ottla.replica.partition import Partition
from ottla.storage.config import LogConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from tests.replica.test_real_logs import start
from tests.replica.test_replica_fetcher import OWN, Leader, fetcher_of, in_epoch

STARTS = {OffsetSpec.LATEST: 90, OffsetSpec.EARLIEST: 0, OffsetSpec.EARLIEST_LOCAL: 40}


class TieredLeader(Leader):
    """Has everything from offset 0 on in its object store, and from 40 on here; holds who has come so far."""

    async def call(self, request: Any, *, timeout_seconds: float | None = None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            offset = STARTS[OffsetSpec(request.topics[0].partitions[0].timestamp)]
            topics = [ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(offset=offset)])]
            return ListOffsetsResponse(topics=topics)
        if request.topics[0].partitions[0].fetch_offset >= STARTS[OffsetSpec.EARLIEST_LOCAL]:
            self.answer = trio.Event()
        return await super().call(request)


async def test_it_begins_where_the_leaders_log_begins_on_the_disk() -> None:
    leader, topic_id = TieredLeader(), uuid4()
    leader.error_code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    leader.answer.set()
    async with start(SimulatedDisk(1)) as node:
        log = await node.log_manager.open_log(topic_id, "t", 0, LogConfig())
        partition = Partition("t", topic_id, 0, log, node_id=OWN)
        partition.apply(in_epoch(3))
        fetcher = fetcher_of(leader)
        fetcher.follow(partition)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.run)
            with trio.fail_after(10):
                await leader.until_fetched(2)
            nursery.cancel_scope.cancel()
        asked = [fetch.topics[0].partitions[0].fetch_offset for fetch in leader.fetches]
        assert asked == [0, 40]
        assert (log.log_start_offset, log.log_end_offset) == (40, 40)
