"""A fetcher of the mirror alone: the source and the logs are not real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.server.mirror.copied import CopiedPartition
from ottla.server.mirror.fetcher import SourceFetcher
from ottla.server.mirror.progress import MirrorProgress
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.errors import DiskFullError

TOPIC_ID = UUID(int=1)


class Log:
    """Ends at offset 5, and nothing of it is shown yet."""

    log_start_offset = 0
    log_end_offset = 5
    latest_epoch = 0
    high_watermark = 0

    def __init__(self) -> None:
        self.refused = 0
        self.moved = trio.Event()

    async def advance_log_start_offset(self, offset: int) -> None:
        if not self.refused:
            self.refused += 1
            raise DiskFullError("no room")
        self.log_start_offset = offset
        self.moved.set()


class Led:
    """A partition that this node leads."""

    topic = "t"
    index = 0
    leader_epoch = 0

    def __init__(self, log: Log) -> None:
        self.log = log

    def mirrors(self, leader_epoch: int) -> bool:
        return True


class Manager:
    def follower_moved(self, partition: Led) -> None:
        """Nobody waits for it."""


class Source:
    """Its log begins at offset 3."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._calls = 0

    @asynccontextmanager
    async def connect(self, broker_id: int) -> AsyncIterator[Source]:
        yield self

    async def call(self, request: FetchRequest, *, timeout_seconds: float | None = None) -> FetchResponse:
        await trio.sleep(0.01)
        self._calls += 1
        if self._calls > 1:
            self._log.high_watermark = 5
        if not request.topics:
            return FetchResponse(session_id=1)
        data = PartitionData(partition_index=0, high_watermark=5, log_start_offset=3, records=None)
        return FetchResponse(session_id=1, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])])


def fetcher_of(source: Source) -> SourceFetcher:
    return SourceFetcher(
        1,
        cast("Any", source),
        cast("Any", Manager()),
        BrokerConfig({}),
        ManualClock(),
        MirrorProgress(),
        cast("Any", None),
    )


async def test_a_log_start_that_finds_no_room_is_tried_again(autojump_clock: Any) -> None:
    """Also where it had to wait for what comes after it: the disk is full, or the log was closed, since."""
    log = Log()
    copied = CopiedPartition(cast("Any", Led(log)), TOPIC_ID, 0)
    fetcher = fetcher_of(Source(log))
    await fetcher.set_partitions({copied.key: copied})
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.run)
            await log.moved.wait()
            nursery.cancel_scope.cancel()
    assert (log.refused, log.log_start_offset) == (1, 3)


class HeldSource(Source):
    """Holds its first answer back, and answers no other."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.says = trio.Event()

    async def call(self, request: FetchRequest, *, timeout_seconds: float | None = None) -> FetchResponse:
        if self.says.is_set():
            await trio.sleep_forever()
        await self.says.wait()
        return await super().call(request)


@pytest.mark.parametrize("has_a_new_leader", [True, False])
async def test_what_was_asked_in_a_former_epoch_of_the_source_is_void(
    has_a_new_leader: bool, autojump_clock: Any
) -> None:
    log = Log()
    log.refused, log.high_watermark = 1, 5
    source, led = HeldSource(log), Led(log)
    led.leader_epoch = 1
    fetcher = fetcher_of(source)
    asked = CopiedPartition(cast("Any", led), TOPIC_ID, 0)
    await fetcher.set_partitions({asked.key: asked})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await trio.testing.wait_all_tasks_blocked()
        if has_a_new_leader:
            await fetcher.set_partitions({asked.key: CopiedPartition(cast("Any", led), TOPIC_ID, 1)})
        source.says.set()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert log.log_start_offset == (0 if has_a_new_leader else 3)
