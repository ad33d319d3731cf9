"""What the console reads of a tiered partition: records are what they are, on the disk and in the object store."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from ottla.console.layout import COLUMNS
from ottla.console.messages.readable import LocalPartition, RemotePartition
from ottla.console.messages.reading import Budget, Kind, Message, scan, scan_back
from ottla.console.tiers import MAX_STRETCHES, tiers
from ottla.kproto.records import Record, build_batch
from ottla.metadata.image import TopicImage
from ottla.storage.state.leader_epochs import EpochEntry
from ottla.tiers.manifest import Manifest, RemoteSegment
from ottla.tiers.names import UploadId
from tests.replica.remote.tiered import FIRST_MS, TOPIC_ID, TieredNode, new_store, tiered_node


async def append_transaction(node: TieredNode, producer_id: int, *, commits: bool) -> None:
    given: dict[str, Any] = {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": 0,
        "is_transactional": True,
    }
    await node.append_batch(build_batch([Record(timestamp_ms=FIRST_MS, value=b"t")], **given))
    await node.end_transaction(producer_id, commits=commits)


def readable(node: TieredNode) -> LocalPartition:
    broker: Any = SimpleNamespace(replica_manager=node.manager)
    return LocalPartition(broker, node.partition)


async def keep(_: Message) -> bool:
    return True


async def test_aborted_records_are_told_from_others_wherever_they_are(tmp_path: Path) -> None:
    async with tiered_node(tmp_path, new_store()) as node:
        await node.lead()
        await append_transaction(node, 1, commits=False)
        await append_transaction(node, 2, commits=True)
        await node.append(60)
        await append_transaction(node, 3, commits=False)
        kinds = [Kind.ABORTED, Kind.ABORT, Kind.RECORD, Kind.COMMIT, *[Kind.RECORD] * 120, Kind.ABORTED, Kind.ABORT]
        end = node.log.high_watermark
        for is_tiered in (False, True):
            if is_tiered:
                await node.tier()
            assert (node.log.log_start_offset > 60) is is_tiered
            partition = readable(node)
            found = await scan(partition, 0, end, budget=Budget(), keep=keep, limit=1000)
            assert [message.kind for message in found.messages] == kinds
            back = await scan_back(partition, end, budget=Budget(), keep=keep, limit=1000)
            assert [message.kind for message in reversed(back.messages)] == kinds
        assert node.manager.response_budget.used_bytes == 0


async def test_a_typical_record_is_one_of_those_whose_sizes_are_known(tmp_path: Path) -> None:
    async with tiered_node(tmp_path, new_store()) as node:
        await node.lead()
        await node.append(100)
        partition = readable(node)
        whole = partition.typical_bytes
        await node.tier()
        assert partition.size_bytes == node.log.size_bytes < 100 * whole
        assert partition.typical_bytes == pytest.approx(whole, rel=0.01)
        image = TopicImage("topic", TOPIC_ID, (), {"remote.storage.enable": "true"})
        other: Any = RemotePartition(SimpleNamespace(), 1, image, 0)  # type: ignore[arg-type]
        other.size_bytes = partition.size_bytes
        other.high_watermark, other.local_start_offset = node.log.high_watermark, node.log.log_start_offset
        assert other.typical_bytes == partition.typical_bytes


async def test_the_picture_has_both_tiers(tmp_path: Path) -> None:
    async with tiered_node(tmp_path, new_store()) as node:
        await node.lead()
        assert await tiers([node.partition]) == []
        await node.append(100)
        await node.tier()
        await node.remote.delete_until(31, node.log, 0)
        (row,) = await tiers([node.partition])
        manifest = node.remote.manifest
        assert manifest is not None
        assert (row.remote_bytes, row.local_bytes) == (manifest.size_bytes, node.log.size_bytes)
        # Without a gap, from the first offset on; and what is on the disk ends where the log does.
        ends = [31, *(each.end_offset for each in row.remote)]
        assert [each.first_offset for each in row.remote] == ends[:-1]
        assert ends[-1] == manifest.end_offset
        assert sum(each.segments for each in row.remote) == len(manifest) > 3
        assert row.remote[0].column == 0
        assert sum(each.width for each in row.remote) == pytest.approx(COLUMNS * (manifest.end_offset - 31) / 169)
        assert row.local.first_offset == node.log.log_start_offset
        assert row.local.column + row.local.width == pytest.approx(COLUMNS)


async def test_very_many_segments_share_stretches(tmp_path: Path) -> None:
    async with tiered_node(tmp_path, new_store()) as node:
        await node.lead()
        await node.append(10)
        manifest = Manifest(TOPIC_ID, 0)
        for number in range(150):
            segment = RemoteSegment(UploadId(0, UUID(int=number)), number, number, 0, 0, 1, 0, 1, 0)
            manifest = manifest.with_segment(segment, [EpochEntry(0, 0)][number:], 0, after=-1)
        await node.look()
        node.remote.file.manifest = manifest
        (row,) = await tiers([node.partition])
        assert len(row.remote) == 50 <= MAX_STRETCHES
        assert {each.segments for each in row.remote} == {3}
        assert row.remote[-1].end_offset == 150
