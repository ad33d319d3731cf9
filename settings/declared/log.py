"""Logs on disk, and what a topic falls back to when it does not say."""

from __future__ import annotations

import sys

from ottla.settings.checks import GZIP_LEVEL, NO_EMPTY_VALUES, any_of, between, one_of
from ottla.settings.declaration import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    PER_BROKER,
    boolean,
    double,
    integer,
    long,
    string,
    strings,
)
from ottla.settings.types import INT64_MAX, MAX_DECOMPRESSED_BYTES


class LogSettings:
    """Logs on disk, and what a topic falls back to when it does not say."""

    log_dir: tuple[str, ...] = strings(
        ("ottla-data",), "Folder of the data, used where log.dirs is unset.", importance=HIGH
    )
    log_dirs: tuple[str, ...] | None = strings(
        None, "Folders for the data; Ottla uses one: the first in the list.", importance=HIGH
    )
    cordoned_log_dirs: tuple[str, ...] = strings(
        (), "Data folders that receive no new partitions.", check=NO_EMPTY_VALUES, update=PER_BROKER, in_use=False
    )
    log_dir_failure_timeout_ms: int = long(
        30_000,
        "How long a broker may fail to report a failed data folder before it stops.",
        check=between(1),
        importance=LOW,
        in_use=False,
    )
    num_partitions: int = integer(1, "Partitions of a topic that does not say how many.", check=between(1))
    auto_create_topics_enable: bool = boolean(
        True, "Create a topic when a client asks for its metadata and allows it.", importance=HIGH
    )
    delete_topic_enable: bool = boolean(True, "Allow topics to be deleted.", importance=HIGH)
    log_segment_bytes: int = integer(
        1_073_741_824,
        "Size at which a segment is sealed and the next one begins.",
        check=between(1_048_576),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_roll_ms: int | None = long(
        None, "Age at which a segment is sealed; unset: log.roll.hours.", importance=HIGH, update=CLUSTER_WIDE
    )
    log_roll_hours: int = integer(168, "Age in hours at which a segment is sealed.", check=between(1), importance=HIGH)
    log_roll_jitter_ms: int | None = long(
        None,
        "Most that is taken off log.roll.ms at random; unset: log.roll.jitter.hours.",
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    log_roll_jitter_hours: int = integer(
        0, "Most hours that are taken off log.roll.hours at random.", check=between(0), importance=HIGH, in_use=False
    )
    log_retention_ms: int | None = long(
        None,
        "How long records are kept; -1 is forever; unset: log.retention.minutes.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_retention_minutes: int | None = integer(
        None, "Minutes that records are kept; unset: log.retention.hours.", importance=HIGH
    )
    log_retention_hours: int = integer(168, "Hours that records are kept.", importance=HIGH)
    log_retention_bytes: int = long(
        -1, "Bytes that each partition keeps at most; -1 means no limit.", importance=HIGH, update=CLUSTER_WIDE
    )
    log_retention_check_interval_ms: int = long(
        300_000, "How often the broker looks for segments to delete.", check=between(1)
    )
    log_cleanup_policy: tuple[str, ...] = strings(
        ("delete",),
        "delete drops old records, compact keeps the last of each key; both may be given.",
        check=any_of("compact", "delete"),
        update=CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms: int = long(
        60_000,
        "How long the files of a deleted segment or topic stay on disk.",
        check=between(0),
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    log_flush_interval_messages: int = long(
        INT64_MAX,
        "Sync a partition to disk after this many records; 1 syncs before each acknowledgement.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_flush_interval_ms: int | None = long(
        None,
        "Longest time that a record stays unsynced; unset: log.flush.scheduler.interval.ms.",
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    log_flush_scheduler_interval_ms: int = long(
        INT64_MAX, "How often the broker looks for logs to sync.", importance=HIGH
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often the recovery point is written down.", check=between(0), importance=HIGH, in_use=False
    )
    log_flush_start_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often log start offsets are written down.", check=between(0), importance=HIGH, in_use=False
    )
    log_index_interval_bytes: int = integer(
        4096,
        "Bytes of log per index entry in Kafka; Ottla has an index record for each run.",
        check=between(0),
        update=CLUSTER_WIDE,
        in_use=False,
    )
    log_index_size_max_bytes: int = integer(
        10_485_760,
        "Largest index file in Kafka; Ottla's index grows with its segment.",
        check=between(4),
        update=CLUSTER_WIDE,
        in_use=False,
    )
    log_preallocate: bool = boolean(
        False, "Allocate a segment's whole file when it is begun.", update=CLUSTER_WIDE, in_use=False
    )
    log_initial_task_delay_ms: int = long(
        30_000,
        "Pause after the start before retention and flush tasks run first.",
        check=between(0),
        importance=LOW,
        internal=True,
        in_use=False,
    )
    log_message_timestamp_type: str = string(
        "CreateTime",
        "CreateTime keeps the producer's timestamps, LogAppendTime replaces them with the broker's.",
        check=one_of("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = long(
        INT64_MAX,
        "How far a record's timestamp may lie before the broker's clock.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms: int = long(
        3_600_000,
        "How far a record's timestamp may lie after the broker's clock.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    message_max_bytes: int = integer(
        1_048_588,
        "Largest record batch that is accepted, in its compressed size.",
        check=between(0),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    compression_type: str = string(
        "producer",
        "Codec that batches are kept in; producer keeps what the producer chose.",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=HIGH,
        update=CLUSTER_WIDE,
    )
    compression_gzip_level: int = integer(
        -1, "Level of gzip where the broker compresses.", check=GZIP_LEVEL, update=CLUSTER_WIDE, in_use=False
    )
    compression_lz4_level: int = integer(
        9, "Level of lz4 where the broker compresses.", check=between(1, 17), update=CLUSTER_WIDE, in_use=False
    )
    compression_zstd_level: int = integer(
        3, "Level of zstd where the broker compresses.", check=between(-131_072, 22), update=CLUSTER_WIDE, in_use=False
    )
    log_cleaner_enable: bool = boolean(True, "Compact topics whose policy asks for it.", in_use=False)
    log_cleaner_threads: int = integer(
        1,
        "Compaction threads in Kafka; Ottla compacts as it rewrites sealed segments.",
        check=between(0),
        update=CLUSTER_WIDE,
        in_use=False,
    )
    log_cleaner_backoff_ms: int = long(
        15_000, "How long compaction rests when nothing is dirty.", check=between(0), update=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(
        33_554_432, "Memory for the keys of one compaction pass.", update=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = long(
        86_400_000,
        "How long a deletion marker stays readable in a compacted topic.",
        check=between(0),
        update=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "How full Kafka's compaction hash table may get.", update=CLUSTER_WIDE, in_use=False
    )
    log_cleaner_io_buffer_size: int = integer(
        524_288, "Size of the I/O buffers of Kafka's compaction.", check=between(0), update=CLUSTER_WIDE, in_use=False
    )
    log_cleaner_io_max_bytes_per_second: float = double(
        sys.float_info.max, "Most bytes a second that compaction reads and writes.", update=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5, "Share of a log that must be uncompacted before it is compacted.", check=between(0, 1), update=CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0, "A record younger than this is never compacted away.", check=between(0), update=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        INT64_MAX, "A record older than this makes its log due for compaction.", check=between(1), update=CLUSTER_WIDE
    )
    num_recovery_threads_per_data_dir: int = integer(
        2,
        "Worker threads that recover stores when the broker starts.",
        check=between(1),
        importance=HIGH,
        update=CLUSTER_WIDE,
        in_use=False,
    )
    num_replica_alter_log_dirs_threads: int | None = integer(
        None, "Threads that move replicas between data folders; Ottla has one folder.", importance=HIGH, in_use=False
    )
    log_local_retention_bytes: int = long(
        -2,
        "Bytes kept locally once a segment is in remote storage.",
        check=between(-2),
        update=CLUSTER_WIDE,
    )
    log_local_retention_ms: int = long(
        -2,
        "How long records are kept locally once they are in remote storage.",
        check=between(-2),
        update=CLUSTER_WIDE,
    )
    max_decompressed_message_bytes: int = integer(
        MAX_DECOMPRESSED_BYTES,
        "Largest record that is accepted in a compressed batch, in its decompressed size; any limit has such batches "
        "looked into.",
        check=between(1, MAX_DECOMPRESSED_BYTES),
        update=CLUSTER_WIDE,
    )
    log_remote_copy_lag_bytes: int = long(
        -1,
        "Bytes that follow a segment before it is copied to remote storage; -1: as many as are kept locally.",
        check=between(-1),
        update=CLUSTER_WIDE,
    )
    log_remote_copy_lag_ms: int = long(
        0,
        "How old a segment is when it is copied to remote storage; -1: as old as it gets locally.",
        check=between(-1),
        update=CLUSTER_WIDE,
    )
