"""The storage engine's settings: of the node (`StorageConfig`) and of one partition's log (`LogConfig`).

Plain values with Kafka's defaults; the server fills them from its own tables of settings. The names are
those of Kafka's topic and broker settings with dots turned into underscores, where Kafka has the setting.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

__all__ = ["INT64_MAX", "MAX_DECOMPRESSED_BYTES", "LogConfig", "StorageConfig", "StoreLayout", "TimestampType"]

INT64_MAX = (1 << 63) - 1
# Nothing larger could be made in a JVM.
MAX_DECOMPRESSED_BYTES = 2_147_483_639


class TimestampType(Enum):
    """`message.timestamp.type`: whose clock stamps a record."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class StoreLayout(Enum):
    """Which partitions share one store (one set of files).

    PER_TOPIC: a store for each topic and each 10,000 of its partitions (the TubeMQ layout).
    SHARED: one store for all topics of the node, so that 10,000 topics of one partition cost as much
    as one topic of 10,000 partitions.
    """

    PER_TOPIC = "topic"
    SHARED = "shared"


class LogConfig(NamedTuple):
    """One topic's settings, as its logs need them. Times in milliseconds, sizes in bytes, -1 = no limit."""

    max_message_bytes: int = 1_048_588
    # Of one record in a compressed batch.
    max_decompressed_record_bytes: int = MAX_DECOMPRESSED_BYTES
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compact: bool = False
    delete: bool = True
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    flush_messages: int = INT64_MAX
    flush_bytes: int = INT64_MAX
    flush_ms: int = INT64_MAX
    # Look at every record of a client's batch as Kafka does, not just at its header.
    validates_all_records: bool = False


class StorageConfig(NamedTuple):
    """The node's storage settings. Times in milliseconds, sizes in bytes."""

    store_layout: StoreLayout = StoreLayout.PER_TOPIC
    partitions_per_store: int = 10_000

    # A memstore is full, and appends wait for the other one, when the first of these is reached.
    memstore_bytes: int = 8 * 1_048_576
    memstore_batches: int = 65_536
    memstore_records: int = 4_194_304

    # A block up to this size is written on the event loop, a larger one in a worker thread.
    inline_write_bytes: int = 262_144
    # A run is capped here, so that finding a batch inside it is a short walk.
    run_bytes: int = 262_144

    # A data segment is rolled at the first of size, index entries and age (the smaller of node and topic).
    segment_bytes: int = 1_073_741_824
    segment_index_entries: int = 700_000
    segment_ms: int = 604_800_000

    # The recovery point moves after this much data, so that no restart scans more.
    checkpoint_bytes: int = 67_108_864
    # A stop brings so many stores to the disk, or more, by syncs of the whole file system, where it can be synced.
    joint_checkpoint_stores: int = 64

    # Flushed blocks stay in memory for tail reads up to this size for the whole node.
    tail_cache_bytes: int = 33_554_432
    # The largest read that is tried on the event loop, in steps; larger and cold ones go to a worker thread.
    inline_read_bytes: int = 67_108_864
    # Check the CRC of every batch which was read from a file before it is served.
    verify_reads: bool = True
    fd_cache_capacity: int = 32
    # A file of this size is given up when the disk is full, for metadata and for whatever makes room; 0 keeps none.
    disk_reserve_bytes: int = 0

    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000

    # Reclaiming and cleaning.
    retention_check_interval_ms: int = 300_000
    cleaner_backoff_ms: int = 15_000
    cleaner_dedupe_buffer_bytes: int = 33_554_432
    cleaner_io_max_bytes_per_second: int = 67_108_864
    # Sealed segments are read at this rate, to find damage before somebody runs into it; 0 reads none.
    scrub_bytes_per_second: int = 0
    # How long after one pass over all of them the next one begins.
    scrub_interval_ms: int = 604_800_000
    # A sealed segment is rewritten when this part of it is dead, or when its mean run is shorter than that.
    rewrite_dead_ratio: float = 0.5
    rewrite_mean_run_bytes: int = 32_768
