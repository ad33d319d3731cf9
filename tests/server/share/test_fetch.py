"""A share fetch over records that the test gives: what may happen while they are read, and what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.coordinator.errors import GroupIdNotFoundError
from ottla.kproto.records import Record, build_batch, patch_base_offset_and_epoch
from ottla.replica.append import TopicIdPartition
from ottla.replica.partition import Isolation
from ottla.runtime.purgatory import Purgatory
from ottla.server.share.fetch import ShareFetchOperation, ShareFetchParams, ShareFetchResult
from ottla.server.share.partition import SharePartition
from ottla.server.share.records import Acquired
from ottla.storage.memory.iobuf import IOBuf

from .test_partition import KEY, World

FAR = 1_000_000
MOST = 0x7FFFFFFF


class Reads:
    """A replica manager that reads what it is given, and lets something happen meanwhile."""

    def __init__(self, records: bytes, meanwhile: Callable[[], None]) -> None:
        self.share_fetch_purgatory = Purgatory("share fetch")
        self.held = 0
        self._records = records
        self._meanwhile = meanwhile

    async def fetch(self, params: Any, asked: list[Any]) -> list[Any]:
        await trio.lowlevel.checkpoint()
        self._meanwhile()
        self.held += 1
        iobuf = IOBuf()
        for begin in range(0, len(self._records), 100_000):
            iobuf.append(self._records[begin : begin + 100_000])
        return [SimpleNamespace(error=None, records=iobuf, aborted_transactions=(), release=self._release)]

    def _release(self) -> None:
        self.held = 0


def batches(offsets: Iterable[int]) -> bytes:
    """One record at each offset, each in a batch of its own."""
    written = bytearray()
    for offset in offsets:
        batch = bytearray(build_batch([Record(timestamp_ms=1, value=b"a")]))
        patch_base_offset_and_epoch(memoryview(batch), 0, offset, 0)
        written += batch
    return bytes(written)


async def fetch(
    world: World,
    records: bytes,
    max_records: int = MOST,
    meanwhile: Callable[[], None] = lambda: None,
    made: list[Reads] | None = None,
) -> tuple[ShareFetchResult, Reads]:
    world.partition.visible_end = lambda isolation: FAR * 2
    await world.share.load()
    params = ShareFetchParams("m", 1000, 1, 1 << 20, max_records, 500, False, Isolation.HIGH_WATERMARK)
    result = ShareFetchResult(TopicIdPartition(KEY.topic_id, KEY.partition), world.share)
    reads: Any = Reads(records, meanwhile)
    if made is not None:
        made.append(reads)
    await ShareFetchOperation(params, [result], reads).run()
    return result, reads


async def test_a_share_partition_that_ends_while_it_is_read(autojump_clock: MockClock) -> None:
    """That is its error alone, and what was read is given back."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        altered = GroupIdNotFoundError("its offsets were altered")
        result, reads = await fetch(world, batches([0]), meanwhile=lambda: world.share.end(altered))
    assert isinstance(result.error, GroupIdNotFoundError)
    assert reads.held == 0


@pytest.mark.parametrize("max_records", [1, MOST])
async def test_records_behind_a_wide_gap_are_acquired(max_records: int, autojump_clock: MockClock) -> None:
    """Compaction leaves gaps that are wider than what may be in flight."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        result, _ = await fetch(world, batches([FAR]), max_records)
    assert result.acquired == [Acquired(FAR, FAR, 1)]


async def test_others_run_while_much_is_put_together(autojump_clock: MockClock) -> None:
    """What is in pieces is copied a little at a time, and a member that goes meanwhile leaves nothing behind."""
    large = bytearray(build_batch([Record(timestamp_ms=1, value=bytes(3_000_000))]))
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        result, reads = await fetch(world, bytes(large))
        assert result.records is not None
        assert bytes(result.records) == bytes(large)
        result.release()
        assert reads.held == 0
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        with trio.CancelScope() as scope:
            all_reads: list[Reads] = []
            await fetch(world, bytes(large), meanwhile=scope.cancel, made=all_reads)
        assert scope.cancelled_caught
        assert all_reads[0].held == 0
        assert world.share.in_flight.count == 0
        assert not world.share.is_fetching


async def test_no_more_is_looked_at_than_may_be_in_flight(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many records a member asks for: the loop is held while they are walked."""
    seen: list[int] = []
    acquire = SharePartition.acquire

    def count(share: SharePartition, member_id: str, offset: int, spans: Any, *rest: Any, **options: Any) -> Any:
        seen.append(len(spans))
        return acquire(share, member_id, offset, spans, *rest, **options)

    monkeypatch.setattr(SharePartition, "acquire", count)
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        world.config = world.config._replace(max_records=10)
        result, _ = await fetch(world, batches(range(100)))
    assert sum(each.record_count for each in result.acquired) == 10
    assert seen == [20]
