"""The data folder of a cluster that is restored from an object store: one node, which has and leads everything.

Where new records go on is decided here. Every offset that was ever acknowledged is below that, also those of records
that were not copied in time: a reader that was there finds what comes after the restoration, and passes over nothing of
it. Offsets are never given twice. In between lies a batch without records, as compaction leaves them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.group.offset_and_metadata import TopicPartition
from ottla.coordinator.group.shard import offset_records
from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.kproto.records.builder import BatchBuilder
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.metadata.internal_topics import CONSUMER_OFFSETS
from ottla.server.snapshots.snapshots import SCHEMAS_TOPIC
from ottla.settings.mirrored import MIRROR_SETTING
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.log_manager import LogManager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.cli.folders.objects.found_cluster import FoundCluster
    from ottla.metadata.snapshot import RestoredTopic
    from ottla.storage.log.partition_log import PartitionLog

__all__ = ["Restored", "RestoredPartition", "write_folder"]

GAP_OFFSETS: Final = 1_000_000_000
"""New records get offsets from a multiple of this on, at least so many after the largest one that anything tells of.

So many records may have been acknowledged in one partition since its end was noted last.
"""

_NEVER_MS: Final = 1 << 40
_MAX_BATCH_OFFSETS: Final = 1 << 31
_OFFSETS_A_BATCH: Final = 1000


class RestoredPartition(NamedTuple):
    """[`start_offset`, `copied_end`) is in the object store. `known_end` is as far as anybody is known to have written
    or read; `first_new` is the first offset of new records.
    """

    topic: str
    partition: int
    start_offset: int
    copied_end: int
    known_end: int
    first_new: int


class Restored(NamedTuple):
    """What is in the folder."""

    partitions: list[RestoredPartition]
    committed_offsets: int
    schema_records: int


async def write_folder(data_dir: Path, node_id: int, found: FoundCluster, leader_epoch: int) -> Restored:
    """Write the logs of all topics. The manifests must be fenced, and as they are now. Raises StorageError or OSError.

    Nothing of tiered records is copied: they are read where they are.
    """
    config = StorageConfig(cleaner_backoff_ms=_NEVER_MS)
    committed = _committed(found)
    manager = LogManager(RealDisk(), str(data_dir), config, SystemClock(), node_id=node_id)
    partitions = []
    async with manager.run():
        manager.node_dir.join(found.cluster_id)
        counts = {}
        for topic in found.topics:
            if topic.name == CONSUMER_OFFSETS:
                counts[topic.name] = await _write_offsets(manager, topic, found, leader_epoch)
            elif topic.name == SCHEMAS_TOPIC and found.schemas is not None:
                counts[topic.name] = await _write_schemas(manager, topic, found.schemas.content)
            elif topic.name not in INTERNAL_TOPICS and MIRROR_SETTING not in topic.configs:
                for number in range(topic.partitions):
                    restored = _place(found, topic, number, committed)
                    log = await manager.open_log(topic.topic_id, topic.name, number, LogConfig(delete=False))
                    if restored.copied_end:
                        await log.truncate_fully_and_start_at(restored.copied_end)
                    for gap in _gap(restored, leader_epoch):
                        await _append(log, gap)
                    partitions.append(restored)
        await manager.flush_all()
    return Restored(partitions, counts.get(CONSUMER_OFFSETS, 0), counts.get(SCHEMAS_TOPIC, 0))


def _place(
    found: FoundCluster, topic: RestoredTopic, number: int, committed: Mapping[TopicPartition, int]
) -> RestoredPartition:
    file = found.files.get((topic.topic_id, number))
    manifest = None if file is None else file.manifest
    start_offset, copied_end = (0, 0) if manifest is None else (manifest.log_start_offset, manifest.end_offset)
    known_end = max(
        copied_end,
        found.ends.get((topic.topic_id, number), 0),
        committed.get(TopicPartition(topic.name, number), 0),
    )
    first_new = (known_end // GAP_OFFSETS + 2) * GAP_OFFSETS
    return RestoredPartition(topic.name, number, start_offset, copied_end, known_end, first_new)


def _gap(restored: RestoredPartition, leader_epoch: int) -> Iterator[bytes]:
    """Batches without records from where the copied ones end to where new ones begin."""
    offset = restored.copied_end
    while offset < restored.first_new:
        next_offset = min(restored.first_new, offset + _MAX_BATCH_OFFSETS)
        yield BatchBuilder(base_offset=offset, leader_epoch=leader_epoch).build(last_offset=next_offset - 1)
        offset = next_offset


def _committed(found: FoundCluster) -> dict[TopicPartition, int]:
    """The largest offset that any group has committed of each partition."""
    largest: dict[TopicPartition, int] = {}
    for snapshot in found.offsets.values():
        for key, value in _records(snapshot.content):
            partition = offset_records.offset_partition(key)
            offset = offset_records.decode_offset(0, value).offset
            largest[partition] = max(largest.get(partition, 0), offset)
    return largest


async def _write_offsets(manager: LogManager, topic: RestoredTopic, found: FoundCluster, leader_epoch: int) -> int:
    """Commit the offsets again, as of now: they expire as long after the restoration as they would have before."""
    count = 0
    now_ms = SystemClock().time_ms()
    for number, snapshot in sorted(found.offsets.items()):
        if number >= topic.partitions:
            continue
        log = await manager.open_log(topic.topic_id, topic.name, number, LogConfig(delete=False))
        records = []
        for key, value in _records(snapshot.content):
            committed = offset_records.decode_offset(0, value)
            group, partition = offset_records.offset_group(key), offset_records.offset_partition(key)
            _, again = offset_records.offset_commit(group, partition, committed._replace(commit_timestamp_ms=now_ms))
            records.append(Record(key=key, value=again, timestamp_ms=now_ms))
        for first in range(0, len(records), _OFFSETS_A_BATCH):
            some = records[first : first + _OFFSETS_A_BATCH]
            await _append(log, build_batch(some, base_offset=first, leader_epoch=leader_epoch))
        count += len(records)
    return count


async def _write_schemas(manager: LogManager, topic: RestoredTopic, content: bytes) -> int:
    log = await manager.open_log(topic.topic_id, topic.name, 0, LogConfig(delete=False))
    count = 0
    for position, header in iter_batches(content):
        if not count:
            await log.truncate_fully_and_start_at(header.base_offset)
        await _append(log, content[position : position + header.size_bytes])
        count += header.record_count
    return count


async def _append(log: PartitionLog, batch: bytes) -> None:
    await log.wait_for_room()
    log.append_as_follower(memoryview(bytearray(batch)), None, now_ms=SystemClock().time_ms())


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    for position, header in iter_batches(content):
        for record in iter_records(content, position, header):
            if record.key is not None and record.value is not None:
                yield record.key, record.value
