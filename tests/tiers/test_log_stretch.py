"""Logs of a running store, copied and read again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker, iter_batches
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.errors import ChecksTakeLongError
from ottla.storage.log.append_checks import check_and_recompress
from ottla.storage.log.partition_log import AppendOrigin, PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.tiers.errors import NotContiguousError, StaleUploadError
from ottla.tiers.log_stretch import LogStretch, next_stretch
from ottla.tiers.manifest import Manifest
from ottla.tiers.reading.lookup import offset_for_timestamp
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.tier import NAMES, TOPIC_ID, Tier, read_all, reading

FIRST_TIME_MS = 1_700_000_000_000


class Node:
    """A store with segments of about 20 batches, whatever the partition."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        config = StorageConfig(segment_bytes=5000, run_bytes=1000, rewrite_mean_run_bytes=0)
        self.manager = LogManager(RealDisk(), folder, config, self.clock)
        self.tier = Tier(MemoryObjectStore(lambda: 1))
        self.is_leading = True

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Node]:
        async with self.manager.run():
            yield self

    async def log(self, partition: int = 0) -> PartitionLog:
        return await self.manager.open_log(TOPIC_ID, "trips", partition, LogConfig())

    async def append(self, log: PartitionLog, count: int, *, epoch: int = 1, **options: Any) -> None:
        """Batches of two records, each a millisecond after the one before it, written and readable."""
        for _ in range(count):
            first = log.log_end_offset
            records = [Record(timestamp_ms=FIRST_TIME_MS + first + number, value=b"v" * 100) for number in range(2)]
            self.append_batch(log, build_batch(records, **options), epoch=epoch)
            await log.flush()
            log.advance_high_watermark(log.flushed_end_offset)
        await self.manager.maintenance.wait_idle()

    def append_batch(
        self, log: PartitionLog, content: bytes, *, epoch: int = 1, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        batch = memoryview(bytearray(content))
        options: Any = {"leader_epoch": epoch, "origin": origin, "now_ms": FIRST_TIME_MS}
        try:
            log.append_as_leader(batch, None, **options)
        except ChecksTakeLongError:
            checked = check_and_recompress(batch, log.config, FIRST_TIME_MS)
            log.append_as_leader(batch, None, checked=checked, **options)

    async def end_transaction(self, log: PartitionLog, producer_id: int, *, commits: bool) -> None:
        marker = build_end_txn_marker(EndTxnMarker(producer_id, 0, 0, commits), timestamp_ms=FIRST_TIME_MS)
        self.append_batch(log, marker, origin=AppendOrigin.COORDINATOR)
        await log.flush()
        log.advance_high_watermark(log.flushed_end_offset)

    async def stretch(self, log: PartitionLog, *, epoch: int = 1, max_bytes: int = 1 << 30) -> LogStretch | None:
        manifest = await self.tier.file(log.partition).refresh()
        return await next_stretch(log, manifest, leader_epoch=epoch, leadership=self, max_bytes=max_bytes)

    def leads_in(self, leader_epoch: int) -> bool:
        return self.is_leading

    async def copy(self, log: PartitionLog, **options: Any) -> Manifest:
        stretch = await self.stretch(log, **options)
        assert stretch is not None
        manifest = (await self.tier.copy([stretch]))[log.partition]
        assert isinstance(manifest, Manifest), manifest
        return manifest


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def content_of(log: PartitionLog, end_offset: int, offset: int = 0) -> bytes:
    found = b""
    while offset < end_offset:
        records, offset = await log.read_batches(offset, end_offset)
        with records:
            found += records.to_bytes()
    return found


async def test_what_is_sealed_is_copied(node: Node) -> None:
    async with node.run():
        logs = [await node.log(partition) for partition in range(3)]
        for _ in range(6):
            for log in logs:
                await node.append(log, 7)
        stretches = [stretch for log in logs if (stretch := await node.stretch(log)) is not None]
        assert len(stretches) == 3
        results = await node.tier.copy(stretches)
        async with reading(node.tier.store) as reader:
            for log in logs:
                manifest = results[log.partition]
                assert isinstance(manifest, Manifest)
                assert 40 < manifest.end_offset == log.places.spans[-1].last_offset + 1
                assert await read_all(reader, manifest) == await content_of(log, manifest.end_offset)
            assert await node.stretch(logs[0]) is None
            await node.append(logs[0], 60)
            manifest = await node.copy(logs[0])
            assert await read_all(reader, manifest) == await content_of(logs[0], manifest.end_offset)
            assert len(manifest) == 2


async def test_an_upload_is_not_larger_than_it_may_be(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 100)
        ends = []
        while (await node.stretch(log, max_bytes=10_000)) is not None:
            ends.append((await node.copy(log, max_bytes=10_000)).end_offset)
        assert len(ends) > 2
        async with reading(node.tier.store) as reader:
            manifest = await node.tier.file(0).refresh()
            assert await read_all(reader, manifest) == await content_of(log, manifest.end_offset)


async def test_an_open_transaction_is_not_copied(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 40)
        transactional = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        first = log.log_end_offset
        await node.append(log, 1, base_sequence=0, **transactional)
        await node.append(log, 60)
        assert log.last_stable_offset == first
        manifest = await node.copy(log)
        assert manifest.end_offset <= first
        await node.end_transaction(log, 7, commits=False)
        await node.append(log, 40)
        manifest = await node.copy(log)
        assert manifest.end_offset > first
        async with reading(node.tier.store) as reader:
            index = await reader.index(NAMES, 0, manifest[1])
            assert [each.producer_id for each in index.aborted] == [7]
            records = await reader.read(NAMES, manifest, first, max_bytes=1000, end_offset=manifest.end_offset)
            assert [each.first_offset for each in records.aborted] == [first]


async def test_what_is_not_committed_is_not_copied(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 60)
        log.set_high_watermark(45)
        manifest = await node.copy(log)
        assert manifest.end_offset <= 45


async def test_epochs_go_with_the_records(node: Node) -> None:
    async with node.run():
        log = await node.log()
        for epoch in (1, 4, 6):
            await node.append(log, 30, epoch=epoch)
        manifest = await node.copy(log, epoch=6, max_bytes=1)
        while await node.stretch(log, epoch=6) is not None:
            manifest = await node.copy(log, epoch=6, max_bytes=1)
        assert [tuple(entry) for entry in manifest.epochs] == [(1, 0), (4, 60), (6, 120)]
        for offset in (0, 59, 60, 119, 120):
            assert manifest.epochs.epoch_for_offset(offset) == log.epochs.epoch_for_offset(offset)
        assert manifest.leader_epoch == 6


async def test_a_log_that_was_cut_meanwhile_is_not_named(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 60)
        stretch = await node.stretch(log)
        assert stretch is not None
        await log.truncate_to(log.log_end_offset - 2)
        with pytest.raises(StaleUploadError):
            await node.tier.copy([stretch])
        assert (await node.tier.file(0).refresh()).revision == 0


async def test_who_does_not_lead_any_more_names_nothing(node: Node) -> None:
    async with node.run():
        log, other = await node.log(), await node.log(1)
        await node.append(log, 60)
        await node.append(other, 60)
        stretches = [await node.stretch(log), await node.stretch(other)]
        assert stretches[0] is not None
        assert stretches[1] is not None
        real = stretches[1].read

        async def read_and_lose(offset: int) -> Any:
            # When everything of it is read, it is led by another node.
            found = await real(offset)
            node.is_leading = False
            return found

        stretches[1].read = read_and_lose  # type: ignore[method-assign]
        results = await node.tier.copy([each for each in stretches if each is not None])
        assert [type(result) for result in results.values()] == [StaleUploadError] * 2
        for partition in (0, 1):
            assert (await node.tier.file(partition).refresh()).revision == 0


async def test_a_log_that_begins_after_the_manifest_is_not_copied_with_a_gap(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 60)
        manifest = await node.copy(log)
        await log.advance_log_start_offset(manifest.end_offset + 4)
        with pytest.raises(NotContiguousError):
            await node.stretch(log)
        await node.tier.file(0).change(lambda manifest: manifest.with_log_start(log.log_start_offset, 1))
        await node.append(log, 60)
        manifest = await node.copy(log)
        async with reading(node.tier.store) as reader:
            start = log.log_start_offset
            assert await read_all(reader, manifest, start) == await content_of(log, manifest.end_offset, start)


async def test_records_are_found_by_their_times(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 90)
        while await node.stretch(log) is not None:
            manifest = await node.copy(log, max_bytes=1)
        assert len(manifest) > 2
        async with reading(node.tier.store) as reader:
            for offset in (0, 1, 37, 80, manifest.end_offset - 1):
                found = await offset_for_timestamp(reader, NAMES, manifest, FIRST_TIME_MS + offset)
                assert found == await log.offset_for_timestamp(FIRST_TIME_MS + offset)
                assert found is not None
                assert found.offset == offset
            late = FIRST_TIME_MS + manifest.end_offset
            assert await offset_for_timestamp(reader, NAMES, manifest, late) is None
            later = manifest.with_log_start(21, 1)
            found = await offset_for_timestamp(reader, NAMES, later, 0)
            assert found is not None
            assert found.offset == 21


async def test_a_log_that_begins_within_a_batch(node: Node) -> None:
    async with node.run():
        log = await node.log()
        await node.append(log, 60)
        await log.advance_log_start_offset(7)
        manifest = await node.copy(log)
        assert manifest.log_start_offset == 7
        async with reading(node.tier.store) as reader:
            content = await read_all(reader, manifest, 7)
        assert next(iter_batches(content))[1].base_offset == 6
        assert content == await content_of(log, manifest.end_offset, 7)
